"""A batch of transactions or logs to the texts and values that fit best: the unit of work of ``sigdir decode --file``.

A row is read like an input of ``/api/v1/decode/``, and its best candidate is kept. ``decode_calls.py`` reads most calls
without a tree of readings.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa

from sigdir.pipeline.decode_arguments import ARGUMENTS, argument_keys, arguments_json
from sigdir.pipeline.decode_calls import CallDecoder, Row, Texts
from sigdir.signatures.calldata import MAX_BYTES
from sigdir.signatures.reading_json import ordered, parameters, reading_document
from sigdir.signatures.readings import Confidence, Form, Input, Reading, Readings

INPUT, TO, DATA, TOPICS = "input", "to", "data", ("topic0", "topic1", "topic2", "topic3")
COLUMNS = (INPUT, TO, DATA, *TOPICS)
"""The columns that are read; ``input`` is a transaction's, ``data`` and the topics are a log's."""
_TO, _TOPIC0 = COLUMNS.index(TO), COLUMNS.index(TOPICS[0])
_NOTHING = (None, "", b"")  # a topic that is not there

SCHEMA = pa.schema([
    ("row", pa.int64()), ("to", pa.string()), ("kind", pa.string()), ("hash", pa.string()),
    ("text_signature", pa.string()), ("values", pa.string()), (ARGUMENTS, pa.string()), ("nested", pa.string()), ("confidence", pa.string()),
    ("exact", pa.bool_()), ("texts", pa.int32()), ("reason", pa.string()),
])  # fmt: skip
"""One row for each input: ``row`` counts from 0; ``values``, ``arguments`` and ``nested`` are JSON; ``reason`` says why there is no text."""

_TREES = 64
"""Trees that are built at a time, which bounds their memory."""


def decode_batch(batch: pa.RecordBatch, first: int, texts: Texts) -> pa.RecordBatch:
    """The best reading of each row; ``first`` is the number of the first row, ``texts`` gives those of a hash."""
    with _uncollected():
        return _decode_batch(batch, first, texts)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a batch makes many objects and no cycles, and to walk them takes as long as to decode."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _decode_batch(batch: pa.RecordBatch, first: int, texts: Texts) -> pa.RecordBatch:
    nothing = [None] * batch.num_rows
    columns = [batch.column(name).to_pylist() if name in batch.schema.names else nothing for name in COLUMNS]
    found: list[Row | None] = [None] * batch.num_rows
    calls, logs = [], []
    for number, values in enumerate(zip(*columns, strict=True)):
        try:
            if values[_TOPIC0] in _NOTHING:
                calls.append((number, _call(values)))
            else:
                logs.append((number, _log(values)))
        except ValueError as error:
            found[number] = (*_NOT_READ, str(error))
    for (number, _), row in zip(calls, CallDecoder(texts).rows([data for _, data in calls]), strict=True):
        found[number] = row
    trees = logs + [(number, Input(Form.CALLDATA, data)) for number, data in calls if found[number] is None]
    for some in (trees[at : at + _TREES] for at in range(0, len(trees), _TREES)):
        for (number, _), readings in zip(some, _read([input for _, input in some], texts), strict=True):
            found[number] = _best(ordered(readings)[0])
    decoded = zip(*(row for row in found if row is not None), strict=True) if found else [()] * (len(_NOT_READ) + 1)
    parts = (range(first, first + batch.num_rows), map(_text, columns[_TO]), *decoded)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(parts, SCHEMA, strict=True)], schema=SCHEMA
    )


_NOT_READ = (None, None, None, None, None, None, Confidence.NONE.value, None, None)


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


def _call(values: Sequence[Any]) -> bytes:
    """The calldata of a row; raises ValueError."""
    call, _, data, *_ = values
    value, name = (call, INPUT) if call is not None else (data, DATA)
    if value is None:
        raise ValueError("no input, no topic and no data")
    return _bytes(value, name)


def _log(values: Sequence[Any]) -> Input:
    """The log of a row with a topic; raises ValueError."""
    _, _, data, *topics = values
    words = [_bytes(topic, name) for topic, name in zip(topics, TOPICS, strict=True) if topic not in _NOTHING]
    if any(len(word) != 32 for word in words):
        raise ValueError("topics: a topic has 32 bytes")
    return Input(Form.LOG, _bytes(data or b"", DATA), tuple(words))


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
        return (reading.form.value, hash, text, None, None, None, Confidence.NONE.value, None, reading.texts, why)
    named = parameters(best)
    values = [one["value"] if "value" in one else one["hash"] for one in named]
    keys = argument_keys([one.get("name", "") for one in named], len(values))
    nested = [{"path": list(one.path)} | reading_document(one.reading) for one in best.nested]
    return (
        reading.form.value, hash, best.attempt.text, orjson.dumps(values).decode(),
        arguments_json(keys, values), orjson.dumps(nested).decode() if nested else None, best.confidence.value, best.attempt.exact, reading.texts, None,
    )  # fmt: skip
