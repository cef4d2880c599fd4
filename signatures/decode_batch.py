"""Decodes many calls and logs at once, each to the row of its best reading or to the API's answer.

Most calls have a selector with one known text, or a standard's. They are decoded by a plan, in less than half of the time
that a tree of readings takes, and so are the calls in their ``bytes``. The others get a tree: logs, calls that the text
does not fit, whose texts compete, or with calls in calls in calls. A test compares the two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import orjson

from sigdir.signatures.abi import BUILT_IN
from sigdir.signatures.abi_decoder import (
    SELECTOR_BYTES,
    Budget,
    JsonForm,
    Layout,
    attempt_of,
    json_form,
    layout_of,
)
from sigdir.signatures.clear_signing import Place
from sigdir.signatures.decode_input import hex_bytes, log_input, topics_of_hex
from sigdir.signatures.evidence import Kind
from sigdir.signatures.given_contract import AbiContract, DeployedContract, GivenContract
from sigdir.signatures.inner_calls import MAY_DELEGATE, Inner, has_bytes, inner_calls
from sigdir.signatures.reading_json import document, nested_documents, ordered, parameters, reading_document
from sigdir.signatures.readings import (
    Confidence,
    Descriptors,
    Form,
    Input,
    Known,
    Membership,
    Reading,
    Readings,
    add_displays,
    doubt_of,
    inner_reading,
    likely_kind,
)
from sigdir.signatures.standards import canonical
from sigdir.signatures.types import BadTypeList, Type

_SEARCHED_BYTES = 4096
"""The longest call whose ``bytes`` are searched for calls. A call of this size cannot reach the bounds of a tree."""

_LONGEST_TEXT = 1024
_TREES = 64
"""Trees that are built at a time, which bounds their memory."""
_REMEMBERED = 65_536
"""Hashes whose texts are remembered."""

Texts = Callable[[Sequence[bytes]], Mapping[bytes, Sequence[Known]]]
"""Gives the known texts of hashes, in rank order."""


class Row(NamedTuple):
    """The best reading of an input; ``values``, ``arguments`` and ``nested`` are JSON, ``reason`` says why there is no text."""

    kind: str | None = None
    hash: str | None = None
    text_signature: str | None = None
    values: str | None = None
    arguments: str | None = None
    nested: str | None = None
    confidence: str = Confidence.NONE.value
    exact: bool | None = None
    texts: int | None = None
    reason: str | None = None
    contract: str | None = None
    """The contract by which it was read: its chain and address, `abi` or `code` for one that was given; None for none."""
    display: str | None = None
    """How a descriptor shows it to whoever signs it, as JSON; None without a descriptor."""


def read_input(form: Form, data: str, topics: Sequence[str] | None) -> Input:
    """An input of hex digits; raises BadInput. It is a log where there is a list of topics, which may be empty."""
    if topics is not None:
        return log_input(topics_of_hex(topics), hex_bytes(data, "data"))
    return Input(form, hex_bytes(data, "input"))


def argument_keys(names: Sequence[str], count: int) -> list[str]:
    """The keys of ``count`` values: the names, a number from 0 where there is none or it comes again; empty without names."""
    keys: dict[str, None] = {}
    for number in range(count):
        name = names[number] if number < len(names) else ""
        keys[name if name and name not in keys else str(number)] = None
    return list(keys) if any(names) else []


class _Plan(NamedTuple):
    """How calls of a selector are read; ``texts`` counts its known texts."""

    hash: str
    text: str
    layout: Layout
    forms: tuple[JsonForm, ...]
    keys: list[str]
    texts: int
    has_bytes: bool


class _Call(NamedTuple):
    """A call that its plan's text decodes exactly."""

    plan: _Plan
    values: tuple[Any, ...]

    def json_values(self) -> list[Any]:
        return [form(value) for form, value in zip(self.plan.forms, self.values, strict=True)]


class _NeedsTree(Exception):
    """A call inside holds calls, or its texts are longer than it has room for."""


_Documents = list[dict[str, Any]]


class BatchDecoder:
    """Decodes batches of inputs. What ``texts`` gives of a hash is remembered."""

    def __init__(self, texts: Texts, descriptors: Descriptors) -> None:
        self._texts, self._descriptors = texts, descriptors
        self._forget()

    def _forget(self) -> None:
        self._known: dict[bytes, Sequence[Known]] = {}
        self._plans: dict[bytes, _Plan | None] = {}
        self._templates: dict[tuple[Form | None, bytes, int], dict[str, Any]] = {}

    def rows(self, inputs: Sequence[Input]) -> list[Row]:
        """The best reading of each input."""
        calls = self._calls(inputs)
        trees = self._trees(one for one, call in zip(inputs, calls, strict=True) if call is None)
        rows = (_best(next(trees)) if call is None else _row(*call) for call in calls)
        return [
            row if one.contract is None else row._replace(contract=_name_of(one.contract))
            for row, one in zip(rows, inputs, strict=True)
        ]

    def documents(self, inputs: Sequence[Input]) -> list[bytes]:
        """The answer of ``/api/v1/decode/`` for each input."""
        calls = [
            call if call is not None and call[0].plan.texts == 1 and one.contract is None else None
            for one, call in zip(inputs, self._calls(inputs), strict=True)
        ]
        trees = self._trees(one for one, call in zip(inputs, calls, strict=True) if call is None)
        return [
            orjson.dumps(document(next(trees), one.contract) if call is None else self._call_document(one, *call))
            for one, call in zip(inputs, calls, strict=True)
        ]

    def known(self, hashes: Iterable[bytes]) -> Mapping[bytes, Sequence[Known]]:
        """The texts of these hashes, and perhaps of others."""
        missing = [hash for hash in hashes if hash not in self._known]
        self._known.update(self._texts(missing) if missing else ())
        return self._known

    def _trees(self, inputs: Iterable[Input]) -> Iterator[list[Reading]]:
        inputs = iter(inputs)
        while some := list(islice(inputs, _TREES)):
            readings = Readings(some)
            while wanted := readings.wanted():
                readings.supply(self.known(wanted))
            for one, found in zip(some, readings.results(), strict=True):
                add_displays(one, found, self._descriptors)
                yield found

    # By plans.

    def _calls(self, inputs: Sequence[Input]) -> list[tuple[_Call, _Documents] | None]:
        """The calls that need no tree, with the documents of the calls inside."""
        if len(self._known) > _REMEMBERED:
            self._forget()
        self.known({one.data[:SELECTOR_BYTES] for one in inputs if _is_call(one)})
        calls = [self._read(one.data) if self._needs_no_tree(one) else None for one in inputs]
        inside = [None if call is None else _inside(one.data, call) for one, call in zip(inputs, calls, strict=True)]
        self.known({inner.data[:SELECTOR_BYTES] for found in inside for inner in found or ()})
        return [self._with_nested(*one) for one in zip(inputs, calls, inside, strict=True)]

    def _needs_no_tree(self, one: Input) -> bool:
        """Whether an input is a call whose contract, if one is known, says nothing of its texts but that it has the only one.

        A call that descriptors may show needs a tree, and so do calls inside of one whose contract is known.
        """
        if not _is_call(one):
            return False
        if one.contract is None:
            return True
        selector, place = one.data[:SELECTOR_BYTES], _place_of(one)
        if place is not None and self._descriptors(selector, place):
            return False
        stored = self._known[selector]
        known = one.contract.marked(selector, stored)
        return all(
            said.membership is Membership.UNKNOWN
            or (
                len(known) == len(stored) == 1
                and said.membership is Membership.HAS
                and said.declaration == stored[0].declaration
            )
            for said in known
        )

    def _read(self, data: bytes) -> _Call | None:
        """A call by the plan of its selector; None where it has none, or the data is not what an encoder makes."""
        selector = data[:SELECTOR_BYTES]
        if selector not in self._plans:
            self._plans[selector] = _plan(selector, self._known[selector])
        plan = self._plans[selector]
        if plan is None:
            return None
        found = attempt_of(data[SELECTOR_BYTES:], plan.text, plan.layout, Budget.of(len(data)))
        return _Call(plan, found.values or ()) if found.exact else None

    def _with_nested(
        self, one: Input, call: _Call | None, inside: Sequence[Inner] | None
    ) -> tuple[_Call, _Documents] | None:
        """A call with the documents of the calls inside; None where a tree has to be built."""
        if call is None or inside is None:
            return None
        try:
            nested = [document for inner in inside for document in self._inner_documents(inner)]
        except _NeedsTree:
            return None
        return None if nested and _place_of(one) is not None else (call, nested)

    def _inner_documents(self, inner: Inner) -> _Documents:
        """The document of a call inside, none where no text fits it; raises _NeedsTree where it holds calls itself."""
        call = self._read(inner.data)
        if call is not None and call.plan.texts == 1 and not call.plan.has_bytes:
            key = None, inner.data[:SELECTOR_BYTES], len(inner.data)
            if key not in self._templates:
                [self._templates[key]] = self._inner_readings(inner)
            return [{"path": inner.path, **_with_values(self._templates[key], call, [])}]
        return [{"path": inner.path, **found} for found in self._inner_readings(inner)]

    def _inner_readings(self, inner: Inner) -> _Documents:
        selector = inner.data[:SELECTOR_BYTES]
        budget = Budget.of(len(inner.data))
        reading = inner_reading(inner.data, self._known[selector], Form.CALLDATA, budget)
        if budget.is_used_up:
            raise _NeedsTree
        if reading is None:
            return []
        for attempt in (candidate.attempt for candidate in reading.candidates):
            if _calls_in(attempt.text, attempt.types, attempt.values or ()):
                raise _NeedsTree
        return [reading_document(reading)]

    def _call_document(self, input: Input, call: _Call, nested: _Documents) -> dict[str, Any]:
        key = input.form, input.data[:SELECTOR_BYTES], len(input.data)
        if key not in self._templates:
            [readings] = self._trees([input])
            self._templates[key] = document(readings)
        return _with_values(self._templates[key], call, nested)


def _is_call(input: Input) -> bool:
    return input.form in (Form.CALLDATA, Form.AUTO) and len(input.data) >= SELECTOR_BYTES


def _inside(data: bytes, call: _Call) -> Sequence[Inner] | None:
    """The calls in the values of a call; None where only a tree bounds them, or has their forms."""
    if not call.plan.has_bytes:
        return ()
    if len(data) > _SEARCHED_BYTES:
        return None
    found = _calls_in(call.plan.text, call.plan.layout.types, call.values)
    return found if all(one.kind == Form.CALLDATA for one in found) else None


def _name_of(contract: GivenContract) -> str | None:
    """The contract by which an input is read, as a row has it; one of which no text is known is none."""
    if isinstance(contract, DeployedContract):
        return contract.name if contract.texts else None
    return "abi" if isinstance(contract, AbiContract) else "code"


def _place_of(input: Input) -> Place | None:
    """Where a call goes, as descriptors name it; None where that is unknown."""
    called = input.contract.called if input.contract is not None else None
    return None if called is None else called.place


def _plan(selector: bytes, known: Sequence[Known]) -> _Plan | None:
    """The plan of a selector; None where no text is known, several compete, one is in doubt, has remarks on its values, or is
    long: a tree bounds what it takes.
    """
    if not known or selector in BUILT_IN:
        return None
    text = known[0].text
    if len(text) > _LONGEST_TEXT:
        return None
    if len(known) > 1 and not (canonical().get(selector) == text and likely_kind(known[0]) is Kind.FUNCTION):
        return None
    if doubt_of(selector, known[0]) or text in MAY_DELEGATE:
        return None
    try:
        layout = layout_of(text)
    except BadTypeList:
        return None
    forms = tuple(map(json_form, layout.types))
    keys = argument_keys(parameter_names(known[0]), len(forms))
    return _Plan("0x" + selector.hex(), text, layout, forms, keys, len(known), any(map(has_bytes, layout.types)))


def parameter_names(known: Known) -> list[str]:
    """The names of a text's parameters as declared, "" for none; empty without a declaration."""
    return [one.name for one in known.parsed().types]


def _calls_in(text: str, types: Sequence[Type], values: Sequence[Any]) -> list[Inner]:
    return [one for one in inner_calls(text, types, values, Budget.of(_SEARCHED_BYTES)) if one.is_shown]


def _with_values(template: dict[str, Any], call: _Call, nested: _Documents) -> dict[str, Any]:
    """A document of the same selector and size, with these values: nothing else in it depends on them."""
    [candidate] = template["candidates"]
    values = zip(candidate["parameters"], call.json_values(), strict=True)
    candidate = candidate | {"parameters": [{**parameter, "value": value} for parameter, value in values]}
    candidate.pop("nested", None)
    return template | {"candidates": [candidate | {"nested": nested} if nested else candidate]}


# Rows.


def _row(call: _Call, nested: _Documents) -> Row:
    plan, values = call.plan, call.json_values()
    return Row(
        Form.CALLDATA.value, plan.hash, plan.text, _json(values), _arguments(plan.keys, values),
        _json(nested) if nested else None, Confidence.HIGH.value, True, plan.texts,
    )  # fmt: skip


def _best(readings: list[Reading]) -> Row:
    """The best candidate of the surest reading."""
    reading = ordered(readings)[0]
    hash = "0x" + reading.hash.hex() if reading.hash else None
    best = reading.best
    if best is None:
        why = reading.candidates[0].attempt.detail if reading.candidates else reading.note
        text = reading.candidates[0].attempt.text if reading.candidates else None
        return Row(reading.form.value, hash, text, texts=reading.texts, reason=why)
    named = parameters(best)
    values = [one["value"] if "value" in one else one["hash"] for one in named]
    keys = argument_keys([one.get("name", "") for one in named], len(values))
    nested = nested_documents(best)
    return Row(
        reading.form.value, hash, best.attempt.text, _json(values), _arguments(keys, values),
        _json(nested) if nested else None, best.confidence.value, best.attempt.exact, reading.texts,
        display=None if best.display is None else _json(best.display.to_dict()),
    )  # fmt: skip


def _arguments(keys: Sequence[str], values: Sequence[Any]) -> str | None:
    return _json(dict(zip(keys, values, strict=True))) if keys else None


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
