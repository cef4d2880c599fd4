"""Calldata and the texts of its selector to values, or to the reason why a text does not fit.

What is here knows texts, types and values; ``sigdir.signatures.coders`` decodes. Data over ``MAX_BYTES`` and types over
``MAX_DEPTH`` deep or ``MAX_TEXT`` long are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sigdir.signatures.errors import SigdirError

MAX_BYTES = 128 << 10
"""Of calldata; a transaction of that size is hardly relayed."""
MAX_DEPTH = 16
MAX_TEXT = 8192

SELECTOR = 4
_MAX_DIGITS = 18
_EXACT_BITS = 48  # integers up to this width are JSON numbers: 2^53 is where those cease to be exact

SHORT, OFFSET, PADDING, UTF8, WORK, TYPE = "too_short", "bad_offset", "bad_padding", "bad_utf8", "too_much", "bad_type"
REASONS = (SHORT, OFFSET, PADDING, UTF8, WORK, TYPE)


class BadCalldata(SigdirError):
    """The data is no calldata: not hex, too short for a selector, or too long."""


@dataclass(frozen=True, slots=True)
class Type:
    """A canonical type: a tuple of ``members``, an array of ``element``, or a word of the grammar.

    ``length`` is None for arrays of any length; ``depth`` counts the tuples and arrays within each other.
    """

    text: str
    members: tuple[Type, ...] | None = None
    element: Type | None = None
    length: int | None = None
    depth: int = 0


@dataclass(frozen=True, slots=True)
class DecodeAttempt:
    """A text, and what came of decoding with it.

    ``values`` beside ``types``, as Python values: int, bool, str, bytes, Decimal, and tuples of those. ``exact``
    where encoding them gives the data again; ``left_over`` counts the bytes behind the last one that was read.
    Where the text does not decode, ``values`` is None, ``reason`` one of REASONS and ``detail`` a sentence.
    """

    text: str
    types: tuple[Type, ...] = ()
    values: tuple[Any, ...] | None = None
    exact: bool = False
    left_over: int = 0
    reason: str = ""
    detail: str = ""


def calldata(text: str) -> bytes:
    """The bytes that hex digits write, with 0x or without, blanks and line ends between them left out.

    Raises BadCalldata.
    """
    digits = "".join(text.split())
    digits = digits[2:] if digits[:2] in ("0x", "0X") else digits
    if len(digits) > 2 * MAX_BYTES:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; at most {MAX_BYTES} are decoded")
    wrong = re.search("[^0-9a-fA-F]", digits)
    if wrong:
        raise BadCalldata(f"calldata: {wrong[0]!a} at digit {wrong.start() + 1} is no hex digit")
    if len(digits) % 2:
        raise BadCalldata(f"calldata: {len(digits)} hex digits are no whole bytes")
    if len(digits) < 2 * SELECTOR:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; a selector has {SELECTOR}")
    return bytes.fromhex(digits)


def decode(data: bytes, texts: Iterable[str]) -> list[DecodeAttempt]:
    """Try each text on the calldata; the best first, those that fit equally well in the order given.

    Texts are canonical and have the data's selector. Best is what encodes to the same data, then what uses
    all of it in another order, then what leaves the least over, then what does not decode.
    """
    from sigdir.signatures.coders import Work, candidate  # eth-abi takes 0.2 s and 29 MB; few workers are asked for it

    work = Work.of(data)
    return sorted((candidate(data[SELECTOR:], text, work) for text in texts), key=_rank)


def _rank(candidate: DecodeAttempt) -> tuple[bool, bool, int]:
    return candidate.values is None, not candidate.exact, candidate.left_over


# Types.


def types_of(text: str) -> tuple[Type, ...]:
    """The types of a canonical text's parameters; raises ValueError for what is not decoded."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"a text of {len(text)} characters; at most {MAX_TEXT} are decoded")
    words = iter(_WORDS.findall(text[text.index("(") :]))
    next(words)
    return _members(words, 1)


_WORDS = re.compile(r"[(),]|[a-z][a-z0-9]*|\[\d*\]")


def _members(words: Iterator[str], depth: int) -> tuple[Type, ...]:
    """The types up to the parenthesis that ends them; the one that began them has been taken."""
    found: list[Type] = []
    for word in words:
        if word == ")":
            break
        if word == "(":
            _bound(depth)
            found.append(_tuple_type(_members(words, depth + 1)))
        elif word[0] == "[":
            found[-1] = _array_type(found[-1], word)
        elif word != ",":
            found.append(Type(word))
    return tuple(found)


def _tuple_type(members: tuple[Type, ...]) -> Type:
    if not members:
        raise ValueError("a tuple without members, which no contract takes")
    depth = 1 + max(member.depth for member in members)
    return Type("(" + ",".join(member.text for member in members) + ")", members, depth=_bound(depth))


def _array_type(element: Type, brackets: str) -> Type:
    length = brackets[1:-1]
    if len(length) > _MAX_DIGITS:
        raise ValueError(f"an array whose length has {len(length)} digits")
    depth = _bound(element.depth + 1)
    return Type(element.text + brackets, element=element, length=int(length) if length else None, depth=depth)


def _bound(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    return depth


# Values as JSON.


def as_json(type: Type, value: Any) -> Any:
    """A value as JSON has it: which kind of JSON depends on the type alone, never on the value.

    Bytes are hex with 0x, addresses lower-case, integers of up to 48 bits numbers and wider ones decimal text,
    fixed-point numbers decimal text, tuples and arrays lists.
    """
    if type.members is not None:
        return [as_json(member, one) for member, one in zip(type.members, value, strict=True)]
    if type.element is not None:
        return [as_json(type.element, one) for one in value]
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int) and type.text != "bool":
        return value if int(type.text.lstrip("uint")) <= _EXACT_BITS else str(value)
    return value
