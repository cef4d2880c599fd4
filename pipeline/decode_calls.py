"""Decodes calls whose best text is certain into rows, without a tree of readings.

Most calls have a selector with one known text, or a standard's. They are decoded by columns (``abi_columns.py``),
one group for each selector and size, and the calls in their ``bytes`` as one more batch. The others are None here and
get a tree: those that the text does not fit, whose texts compete, or with calls in calls in calls. A test compares the
two ways.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from sigdir.pipeline.decode_arguments import argument_keys, arguments_json
from sigdir.signatures.abi_columns import Values, exact_rows
from sigdir.signatures.abi_decoder import SELECTOR_BYTES, Budget, Layout, exact_values, layout_of
from sigdir.signatures.calldata import JsonForm, json_form
from sigdir.signatures.evidence import Kind
from sigdir.signatures.inner_calls import Inner, has_bytes, inner_calls
from sigdir.signatures.reading_json import reading_document
from sigdir.signatures.readings import Confidence, Form, Known, inner_reading, likely_kind
from sigdir.signatures.reverts import BUILT_IN
from sigdir.signatures.standards import canonical
from sigdir.signatures.types import BadTypeList, Type

_SEARCHED_BYTES = 4096
"""The longest call whose ``bytes`` are searched for calls. A call of this size cannot reach the bounds of a tree."""

_LONGEST_TEXT = 1024

Texts = Callable[[bytes], Sequence[Known]]
Row = tuple[Any, ...]


class _Plan(NamedTuple):
    """How calls of a selector are read; ``texts`` counts its known texts."""

    hash: str
    text: str
    layout: Layout
    forms: tuple[JsonForm, ...]
    keys: list[str]
    texts: int
    has_bytes: bool


class _Read(NamedTuple):
    """A call that its plan's text decodes exactly."""

    plan: _Plan
    values: Values


class CallDecoder:
    """Decodes batches of calls; ``texts`` gives the known texts of a selector, in rank order."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._plans: dict[bytes, _Plan | None] = {}
        self._templates: dict[tuple[bytes, int], dict[str, Any]] = {}

    def rows(self, calls: Sequence[bytes]) -> list[Row | None]:
        """The columns after ``to`` of each call's row (``decode_rows.py``); None where a tree has to be built."""
        found = self._read(calls)
        nested = self._nested(calls, found)
        return [
            None if read is None or inside is None else _row(read, inside)
            for read, inside in zip(found, nested, strict=True)
        ]

    def _read(self, calls: Sequence[bytes]) -> list[_Read | None]:
        """What the plans read of the calls."""
        groups: dict[tuple[bytes, int], list[int]] = defaultdict(list)
        for number, data in enumerate(calls):
            groups[data[:SELECTOR_BYTES], len(data)].append(number)
        found: list[_Read | None] = [None] * len(calls)
        for (selector, _), numbers in groups.items():
            plan = self._plan(selector)
            if plan is not None:
                arguments = [calls[number][SELECTOR_BYTES:] for number in numbers]
                for number, data, values in zip(
                    numbers, arguments, exact_rows(arguments, plan.layout.types), strict=True
                ):
                    if values is None:
                        values = exact_values(data, plan.layout, Budget.of(len(data)))
                    found[number] = None if values is None else _Read(plan, values)
        return found

    def _plan(self, selector: bytes) -> _Plan | None:
        if selector not in self._plans:
            known = self._texts(selector) if len(selector) == SELECTOR_BYTES else ()
            self._plans[selector] = _plan(selector, known)
        return self._plans[selector]

    # Calls inside.

    def _nested(self, calls: Sequence[bytes], found: Sequence[_Read | None]) -> list[list[Any] | None]:
        """For each call the documents of the calls inside; None where a tree has to be built."""
        nested: list[list[Any] | None] = [[] for _ in calls]
        inside: list[tuple[int, Inner]] = []
        for number, (data, read) in enumerate(zip(calls, found, strict=True)):
            if read is not None and read.plan.has_bytes:
                inner = _calls_in(read.plan.text, read.plan.layout.types, read.values)
                if len(data) > _SEARCHED_BYTES or any(one.kind != Form.CALLDATA for one in inner):
                    nested[number] = None
                else:
                    inside += [(number, one) for one in inner]
        reads = self._read([one.data for _, one in inside])
        for (number, one), read in zip(inside, reads, strict=True):
            documents = nested[number]
            if documents is not None:
                try:
                    documents += self._inner_document(one, read)
                except _NeedsTree:
                    nested[number] = None
        return nested

    def _inner_document(self, inner: Inner, read: _Read | None) -> list[dict[str, Any]]:
        """The document of a call inside, none where no text fits it; raises _NeedsTree where it holds calls itself."""
        if read is not None and read.plan.texts == 1 and not read.plan.has_bytes:
            key = inner.data[:SELECTOR_BYTES], len(inner.data)
            if key not in self._templates:
                [self._templates[key]] = self._document(inner)
            return [{"path": inner.path, **_with_values(self._templates[key], read)}]
        return [{"path": inner.path, **document} for document in self._document(inner)]

    def _document(self, inner: Inner) -> list[dict[str, Any]]:
        known = self._texts(inner.data[:SELECTOR_BYTES])
        budget = Budget.of(len(inner.data))
        reading = inner_reading(inner.data, known, Form.CALLDATA, budget)
        if budget.is_used_up:
            raise _NeedsTree
        if reading is None:
            return []
        for attempt in (candidate.attempt for candidate in reading.candidates):
            if _calls_in(attempt.text, attempt.types, attempt.values or ()):
                raise _NeedsTree
        return [reading_document(reading)]


class _NeedsTree(Exception):
    """A call inside holds calls, or its texts are longer than it has room for."""


def _plan(selector: bytes, known: Sequence[Known]) -> _Plan | None:
    """The plan of a selector; None where no text is known, several compete, or one is long: a tree bounds what it takes."""
    if not known or selector in BUILT_IN:
        return None
    text = known[0].text
    if len(text) > _LONGEST_TEXT:
        return None
    if len(known) > 1 and not (canonical().get(selector) == text and likely_kind(known[0]) is Kind.FUNCTION):
        return None
    try:
        layout = layout_of(text)
    except BadTypeList:
        return None
    forms = tuple(map(json_form, layout.types))
    names = [name[0] if isinstance(name, tuple) else name for name in known[0].parsed().names]
    keys = argument_keys(names, len(forms))
    return _Plan("0x" + selector.hex(), text, layout, forms, keys, len(known), any(map(has_bytes, layout.types)))


def _calls_in(text: str, types: Sequence[Type], values: Values) -> list[Inner]:
    return [one for one in inner_calls(text, types, values, Budget.of(_SEARCHED_BYTES)) if one.is_shown]


def _json_values(read: _Read) -> list[Any]:
    return [form(value) for form, value in zip(read.plan.forms, read.values, strict=True)]


def _with_values(document: dict[str, Any], read: _Read) -> dict[str, Any]:
    """A document of the same selector and size, with these values: nothing else in it depends on them."""
    [candidate] = document["candidates"]
    values = zip(candidate["parameters"], _json_values(read), strict=True)
    parameters = [{**parameter, "value": value} for parameter, value in values]
    return {**document, "candidates": [{**candidate, "parameters": parameters}]}


def _row(read: _Read, nested: list[Any]) -> Row:
    values = _json_values(read)
    arguments = arguments_json(read.plan.keys, values)
    inside = orjson.dumps(nested).decode() if nested else None
    return (
        _CALLDATA, read.plan.hash, read.plan.text, orjson.dumps(values).decode(), arguments, inside, _HIGH, True,
        read.plan.texts, None,
    )  # fmt: skip


_CALLDATA, _HIGH = Form.CALLDATA.value, Confidence.HIGH.value
