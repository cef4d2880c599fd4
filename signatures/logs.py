"""Logs to values: which parameters of an event are indexed, and what they are.

A log has up to four topics. The first is the hash of the event's text, unless the event is anonymous; each other
topic is an indexed parameter. The text does not say which parameters these are. Where a declaration says it, its
split is tried first. Otherwise every split with this number of topics is tried: a topic must be a word of its
parameter's type, the data must decode strictly as the other parameters. What remains is ordered:

1. splits that use all of the data,
2. fewest improbable values: an address with twelve zero bytes more than its padding, an integer as large as an address or hash,
3. the leading parameters indexed, which is how most events are declared.

A topic of a dynamic value (string, bytes, arrays, tuples) is the hash of that value, and is shown as the hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from sigdir.signatures.abi_decoder import PADDING, TOPICS, Budget, DecodeAttempt, Layout, attempt, attempt_of, layout_of
from sigdir.signatures.types import BadTypeList, Type

_MAX_DECODED = 64
_MAX_PARAMETERS = 4096  # of all splits that are decoded

Split = tuple[int, ...]
"""The numbers of the indexed parameters, rising."""


class IndexedHash(bytes):
    """The hash of an indexed value that a topic cannot hold."""


class LogAttempt(NamedTuple):
    """What came of a text on a log. ``others`` are the other splits that decode as strictly.

    ``is_ambiguous`` says whether the values of another split are as probable.
    """

    attempt: DecodeAttempt
    split: Split = ()
    others: tuple[Split, ...] = ()
    is_ambiguous: bool = False


def log_attempt(
    topics: Sequence[bytes], data: bytes, text: str, budget: Budget, declared: Split | None = None, first: int = 1
) -> LogAttempt:
    """Decode a log with a text; ``topics`` are those after the first, or all of an anonymous event.

    ``declared`` is the split that a declaration gives; where no split decodes, the attempt says why that one does not.
    ``first`` is the number of the first of the topics in the sentences of the attempt.
    """
    try:
        layout = layout_of(text)
    except BadTypeList:
        return LogAttempt(attempt(data, text, budget, first=0))
    types = layout.types
    if len(topics) > len(types):
        detail = f"the log has {len(topics)} indexed values, the event {len(types)} parameters"
        return LogAttempt(DecodeAttempt(text, types, reason=TOPICS, detail=detail))
    if declared is None or len(declared) != len(topics):
        return _best(topics, data, text, layout, budget)
    found = _with_split(topics, data, text, layout, declared, budget, first)
    if found.values is not None:
        return LogAttempt(found, declared)
    best = _best(topics, data, text, layout, budget)
    return best if best.attempt.values is not None else LogAttempt(found, declared)


def _best(topics: Sequence[bytes], data: bytes, text: str, layout: Layout, budget: Budget) -> LogAttempt:
    count = min(_MAX_DECODED, 1 + _MAX_PARAMETERS // (1 + len(layout.types)))
    splits = islice(_splits(topics, layout.types), count)
    tried = [(split, _with_split(topics, data, text, layout, split, budget)) for split in splits]
    if not tried:
        detail = f"no {len(topics)} parameters of the event have types that its topics fit"
        return LogAttempt(DecodeAttempt(text, layout.types, reason=TOPICS, detail=detail))
    tried.sort(key=lambda pair: _order(pair[1]))  # stable: leading parameters come first
    split, found = tried[0]
    if found.values is None:
        return LogAttempt(found, split)
    best = _order(found)
    rest = [(other, _order(one)) for other, one in tried[1:]]
    others = tuple(other for other, order in rest if order[:3] == best[:3])
    return LogAttempt(found, split, others, any(order == best for _, order in rest))


def _order(found: DecodeAttempt) -> tuple[bool, bool, int, int]:
    if found.values is None:
        return True, True, 0, 0
    improbable = sum(map(_is_improbable, found.types, found.values))
    return False, not found.exact, found.left_over, improbable


def _is_improbable(type: Type, value: Any) -> bool:
    if type.text == "address" and isinstance(value, str):
        return 0xFF < int(value, 16) < 1 << 64
    return type.text in ("uint256", "int256") and bool(1 << 120 <= value < 1 << 255)


def _splits(topics: Sequence[bytes], types: tuple[Type, ...]) -> Iterator[Split]:
    """Each choice of parameters whose types the topics fit, leading parameters first."""
    distinct = {type.text: type for type in types}
    places: list[list[int]] = []
    end = len(types)
    for topic in reversed(topics):
        fitting = {text for text, type in distinct.items() if _topic_value(type, topic) is not None}
        places.insert(0, [number for number, type in enumerate(types[:end]) if type.text in fitting])
        end = places[0][-1] if places[0] else 0  # so each place leaves one for the topics behind it
    return _rising(places)


def _rising(places: Sequence[Sequence[int]], first: int = 0) -> Iterator[Split]:
    """Each choice of one number of each list, rising."""
    if not places:
        yield ()
        return
    for number in places[0]:
        if number >= first:
            for rest in _rising(places[1:], number + 1):
                yield number, *rest


def _topic_value(type: Type, topic: bytes) -> Any:
    """The value of an indexed parameter; None where the topic is no word of its type."""
    if type.is_array or type.components is not None or type.text in ("bytes", "string"):
        return IndexedHash(topic)
    found = attempt(topic, f"_({type.text})", Budget.of(len(topic)), first=0)
    return None if found.values is None else found.values[0]


def _with_split(
    topics: Sequence[bytes], data: bytes, text: str, layout: Layout, split: Split, budget: Budget, first: int = 1
) -> DecodeAttempt:
    types, indexed = layout.types, dict(zip(split, topics, strict=True))
    found = attempt_of(data, text, layout.without(indexed), budget, first=0)
    found = found._replace(types=types)
    if found.values is None:
        return found
    unindexed = iter(found.values)
    values: list[Any] = []
    for number, type in enumerate(types):
        value = _topic_value(type, indexed[number]) if number in indexed else next(unindexed)
        if value is None:  # of a declared split
            detail = f"topic {first + split.index(number)} is out of range for {type.text}, or its padding is not zero"
            return found._replace(values=None, exact=False, left_over=0, reason=PADDING, detail=detail)
        values.append(value)
    return found._replace(values=tuple(values))
