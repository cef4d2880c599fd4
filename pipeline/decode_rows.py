"""A batch of transactions or logs to the texts and values that fit best: the unit of work of ``sigdir decode --file``.

A row is read like an input of ``/api/v1/decode/``, and its best candidate is kept. Most rows have one known text, or a
standard's, without bytes in it: then one attempt decides, and no tree is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson
import pyarrow as pa

from sigdir.signatures.abi_decoder import Budget, Layout, exact_values, layout_of
from sigdir.signatures.calldata import MAX_BYTES, JsonForm, json_form
from sigdir.signatures.decode_attempt import SELECTOR_BYTES
from sigdir.signatures.reading_json import ordered, parameters, reading_document
from sigdir.signatures.readings import Confidence, Form, Input, Known, Reading, Readings
from sigdir.signatures.standards import canonical
from sigdir.signatures.types import BadTypeList

INPUT, TO, DATA, TOPICS = "input", "to", "data", ("topic0", "topic1", "topic2", "topic3")
COLUMNS = (INPUT, TO, DATA, *TOPICS)
"""The columns that are read; ``input`` is a transaction's, ``data`` and the topics are a log's."""

SCHEMA = pa.schema([
    ("row", pa.int64()), ("to", pa.string()), ("kind", pa.string()), ("hash", pa.string()),
    ("text_signature", pa.string()), ("values", pa.string()), ("nested", pa.string()), ("confidence", pa.string()),
    ("exact", pa.bool_()), ("texts", pa.int32()), ("reason", pa.string()),
])  # fmt: skip
"""One row for each input: ``row`` counts from 0; ``values`` and ``nested`` are JSON; ``reason`` says why there is no text."""

_TREES = 64
"""Trees that are built at a time. The garbage collector walks all that are alive: 4,096 took twice as long for each."""

Texts = Callable[[bytes], Sequence[Known]]
Row = tuple[Any, ...]


def decode_batch(batch: pa.RecordBatch, first: int, texts: Texts) -> pa.RecordBatch:
    """The best reading of each row; ``first`` is the number of the first row, ``texts`` gives those of a hash."""
    rows = batch.num_rows
    nothing = [None] * rows
    columns = [batch.column(name).to_pylist() if name in batch.schema.names else nothing for name in COLUMNS]
    found: list[Row | None] = [None] * rows
    slow: list[tuple[int, Input]] = []
    plans: dict[bytes, _Plan | None] = {}
    for number, values in enumerate(zip(*columns, strict=True)):
        to = _text(values[1])
        try:
            input = _input(values)
        except ValueError as error:
            found[number] = (to, None, None, None, None, None, Confidence.NONE.value, None, None, str(error))
            continue
        row = _quick(input.data, plans, texts) if input.form is Form.CALLDATA else None
        if row is None:
            slow.append((number, input))
        else:
            found[number] = (to, *row)
    for some in (slow[at : at + _TREES] for at in range(0, len(slow), _TREES)):
        for (number, _), readings in zip(some, _read([input for _, input in some], texts), strict=True):
            found[number] = (_text(columns[1][number]), *_best(ordered(readings)[0]))
    numbered = zip(*((first + number, *row) for number, row in enumerate(found) if row is not None), strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(numbered, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA) if arrays else SCHEMA.empty_table().to_batches()[0]


def _text(value: Any) -> str | None:
    return "0x" + value.hex() if isinstance(value, bytes) else value


def _bytes(value: Any, name: str) -> bytes:
    """The bytes of a value, hex or binary; raises ValueError."""
    if isinstance(value, bytes):
        found = value
    else:
        try:
            found = bytes.fromhex(value[2:] if value[:2] in ("0x", "0X") else value)
        except (TypeError, ValueError):
            raise ValueError(f"{name}: no hex digits") from None
    if len(found) > MAX_BYTES:
        raise ValueError(f"{name}: {len(found)} bytes; at most {MAX_BYTES} are decoded")
    return found


def _input(values: Sequence[Any]) -> Input:
    """The input of a row; raises ValueError. A row with a topic is a log."""
    call, _, data, *topics = values
    if topics[0] not in (None, "", b""):
        words = [
            _bytes(topic, name) for topic, name in zip(topics, TOPICS, strict=True) if topic not in (None, "", b"")
        ]
        if any(len(word) != 32 for word in words):
            raise ValueError("topics: a topic has 32 bytes")
        return Input(Form.LOG, _bytes(data or b"", DATA), tuple(words))
    value, name = (call, INPUT) if call is not None else (data, DATA)
    if value is None:
        raise ValueError("no input, no topic and no data")
    return Input(Form.CALLDATA, _bytes(value, name))


class _Plan(NamedTuple):
    """How calldata of a selector is read where one text decides."""

    hash: str
    text: str
    layout: Layout
    forms: tuple[JsonForm, ...]
    texts: int


def _plan(selector: bytes, known: Sequence[Known]) -> _Plan | None:
    """The plan of a selector's texts; None where a tree has to be built."""
    if not known or "bytes" in known[0].text:
        return None
    text = known[0].text
    if len(known) > 1 and canonical().get(selector) != text:
        return None
    try:
        layout = layout_of(text)
    except BadTypeList:
        return None
    return _Plan("0x" + selector.hex(), text, layout, tuple(map(json_form, layout.types)), len(known))


def _quick(data: bytes, plans: dict[bytes, _Plan | None], texts: Texts) -> Row | None:
    """The row of calldata that one text decides; None where a tree has to be built."""
    selector = data[:SELECTOR_BYTES]
    if selector in plans:
        plan = plans[selector]
    else:
        plan = plans[selector] = _plan(selector, texts(selector)) if len(selector) == SELECTOR_BYTES else None
    if plan is None:
        return None
    values = exact_values(data[SELECTOR_BYTES:], plan.layout, Budget.of(len(data)))
    if values is None:
        return None
    json = orjson.dumps([form(value) for form, value in zip(plan.forms, values, strict=True)])
    return _CALLDATA, plan.hash, plan.text, json.decode(), None, _HIGH, True, plan.texts, None


_CALLDATA, _HIGH = Form.CALLDATA.value, Confidence.HIGH.value


def _read(inputs: list[Input], texts: Texts) -> list[list[Reading]]:
    readings = Readings(inputs)
    while wanted := readings.wanted():
        readings.supply({hash: texts(hash) for hash in wanted})
    return readings.results()


def _best(reading: Reading) -> Row:
    """The columns after ``to`` of a reading's best candidate."""
    hash = "0x" + reading.hash.hex() if reading.hash else None
    best = reading.best
    if best is None:
        why = reading.candidates[0].attempt.detail if reading.candidates else reading.note
        text = reading.candidates[0].attempt.text if reading.candidates else None
        return (reading.form.value, hash, text, None, None, Confidence.NONE.value, None, reading.texts, why)
    values = [one["value"] if "value" in one else one["hash"] for one in parameters(best)]
    nested = [{"path": list(one.path)} | reading_document(one.reading) for one in best.nested]
    return (
        reading.form.value, hash, best.attempt.text, orjson.dumps(values).decode(),
        orjson.dumps(nested).decode() if nested else None, best.confidence.value, best.attempt.exact, reading.texts, None,
    )  # fmt: skip
