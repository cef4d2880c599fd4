"""The rows of a file of transactions or logs: Parquet, CSV, JSON lines or a JSON document, read in bounded batches.

A batch has the columns that are decoded, and the file's other columns, which the result keeps.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from sigdir.pipeline.decode_rows import COLUMNS, SCHEMA, TO, TOPICS
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.json_document import parse_document
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.values import distinct_names, json_of

_TO_ADDRESS, _TOPICS = "to_address", "topics"
_BATCH_ROWS = 4096
_BATCH_BYTES = 4 << 20
_LINE_BYTES = 2 << 20
_DOCUMENT_BYTES = 64 << 20
_NO_VALUE = ("NULL", "null", "None", "NaN", "nan", "NA", "N/A")  # in a column of CSV that is decoded
BLOCK_BYTES = 8 << 20

JSON = {b"sigdir": b"json"}
"""The metadata of a kept column whose texts are JSON."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a file: the columns that are decoded, by their names in ``COLUMNS``, and the others."""

    decoded: pa.RecordBatch
    kept: pa.RecordBatch

    def part(self, first: int, count: int) -> Rows:
        """A part of the rows, whose decoded columns are a copy: a slice is sent to a worker with the whole."""
        decoded = self.decoded.slice(first, count)
        kept = self.kept.slice(first, count) if self.kept.num_columns else self.kept
        return Rows(decoded.take(pa.array(range(decoded.num_rows))), kept)


def read_rows(source: str, progress: Reporter, left_out: Counter[str]) -> Iterator[Rows]:
    """The rows of a file, in batches of bounded size; raises BadInput and OSError.

    The progress counts what is read: rows of Parquet, bytes of any other file. ``left_out`` counts the values of JSON lines
    whose name the first batch does not have.
    """
    name = source.lower().removesuffix(".gz").removesuffix(".zst")
    try:
        if name.endswith(".parquet"):
            yield from _bounded(_parquet(source, progress))
        elif name.endswith((".jsonl", ".ndjson", ".json")):
            yield from _bounded(_with_bytes(source, lambda source, stream: _json(source, stream, left_out), progress))
        elif name.endswith(".csv"):
            yield from _bounded(_with_bytes(source, _csv, progress))
        else:
            raise BadInput(source, "its name ends neither with .parquet nor .csv nor .jsonl")
    except pa.ArrowException as error:
        raise BadInput(source, str(error)) from None


def _bounded(batches: Iterable[Rows]) -> Iterator[Rows]:
    """The batches, cut so that a worker gets a bounded number of bytes."""
    for rows in batches:
        batch = rows.decoded
        parts = max(1, min(batch.num_rows, -(-batch.nbytes // _BATCH_BYTES), 4096), -(-batch.num_rows // _BATCH_ROWS))
        step = max(-(-batch.num_rows // parts), 1)
        for first in range(0, batch.num_rows, step):
            yield rows if parts == 1 else rows.part(first, step)


def _split(source: str, batch: pa.RecordBatch) -> Rows:
    """The columns that are decoded, and the others under names that the result has not."""
    names = batch.schema.names
    decoded = _decoded(source, names)
    others = [number for number in range(len(names)) if number not in decoded]
    kept = batch.select(others)
    renamed = distinct_names([*SCHEMA.names, *kept.schema.names])[len(SCHEMA) :]
    return Rows(_with_topics(_with_to(batch.select(decoded))), kept.rename_columns(renamed))


def _decoded(source: str, names: list[str]) -> list[int]:
    """The numbers of the columns that are decoded; of several of one name it is the first."""
    wanted = {*COLUMNS, _TOPICS, *(() if TO in names else (_TO_ADDRESS,))}
    found = [number for number, name in enumerate(names) if name in wanted and name not in names[:number]]
    if not {"input", "data", "topic0", _TOPICS}.intersection(names):
        raise BadInput(source, "it has none of the columns input, data, topic0 and topics")
    return found


def _with_topics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """BigQuery has the topics as one list."""
    if _TOPICS not in batch.schema.names:
        return batch
    lists = [topics or [] for topics in batch.column(_TOPICS).to_pylist()]
    columns = {name: batch.column(name) for name in batch.schema.names if name not in (_TOPICS, *TOPICS)}
    for number, name in enumerate(TOPICS):
        columns[name] = pa.array([topics[number] if len(topics) > number else None for topics in lists])
    return pa.RecordBatch.from_pydict(columns)


def _with_to(batch: pa.RecordBatch) -> pa.RecordBatch:
    """cryo and BigQuery call the column ``to_address``."""
    return batch.rename_columns([TO if name == _TO_ADDRESS else name for name in batch.schema.names])


def _parquet(source: str, progress: Reporter) -> Iterator[Rows]:
    with pq.ParquetFile(source) as file:
        _decoded(source, file.schema_arrow.names)
        progress.stage("decode", file.metadata.num_rows)
        for batch in file.iter_batches(_BATCH_ROWS):
            yield _split(source, batch)
            progress.advance(batch.num_rows)


def _with_bytes(source: str, read: Callable[[str, BinaryIO], Iterator[Rows]], progress: Reporter) -> Iterator[Rows]:
    """The rows that ``read`` makes of a file's unpacked bytes; the progress counts those of the file itself."""
    done = 0
    with open(source, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        progress.stage("decode", size)
        with pa.input_stream(file, compression=_PACKED.get(Path(source).suffix.lower())) as stream:
            for rows in read(source, stream):
                yield rows
                at = file.tell()
                progress.advance(at - done)
                done = at
    progress.advance(size - done)


_PACKED = {".gz": "gzip", ".zst": "zstd"}


# CSV. All columns are read as text, so that kept values stay as they are in the file.


def _csv(source: str, stream: BinaryIO) -> Iterator[Rows]:
    with pa.input_stream(source, compression="detect") as beginning:
        head = beginning.read(1 << 16).partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = next(csv.reader([head]), [])
    _decoded(source, names)
    convert = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    with pa_csv.open_csv(stream, pa_csv.ReadOptions(block_size=BLOCK_BYTES), convert_options=convert) as batches:
        for batch in batches:
            rows = _split(source, batch)
            columns = [_without_null_words(column) for column in rows.decoded.columns]
            yield Rows(pa.RecordBatch.from_arrays(columns, rows.decoded.schema.names), rows.kept)


def _without_null_words(column: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_in(column, pa.array(_NO_VALUE)), None, column)


# JSON: an object a line, or one document.

_DOCUMENT_HEAD = re.compile(rb'\s*(?:\[|\{\s*(?:\n|\Z)|\{[^\[\]{}]*"result"\s*:\s*\[)')
"""A list, an object over several lines, or the answer of a node or an explorer, whose ``result`` is a list."""


def _json(source: str, stream: BinaryIO, left_out: Counter[str]) -> Iterator[Rows]:
    head = stream.read(1 << 20)
    if _DOCUMENT_HEAD.match(head):
        return _of_objects(((value, 0) for value in _document_rows(source, head, stream)), left_out)
    return _of_objects(((_object(line), len(line)) for line in _lines(source, head, stream)), left_out)


def _document_rows(source: str, head: bytes, stream: BinaryIO) -> Iterable[Any]:
    """The objects of a JSON document: a list of them, a list in ``result``, or one object; raises BadInput."""
    raw = head + stream.read(_DOCUMENT_BYTES)
    if len(raw) > _DOCUMENT_BYTES:
        raise BadInput(
            source, f"one JSON document of over {_DOCUMENT_BYTES >> 20} MiB; write an object a line: jq -c '.[]' FILE"
        )
    document = parse_document(source, raw)
    rows = document.get("result") if isinstance(document, dict) and "result" in document else document
    rows = [rows] if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not any(isinstance(row, dict) and {*COLUMNS, _TOPICS} & {*row} for row in rows):
        raise BadInput(source, "a JSON document without an object that has input, data or topics")
    return rows


def _lines(source: str, head: bytes, stream: BinaryIO) -> Iterator[bytes]:
    rest, block = b"", head
    while block:
        *lines, rest = (rest + block).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > _LINE_BYTES:
            raise BadInput(source, f"a line of over {_LINE_BYTES} bytes")
        block = stream.read(1 << 20)
    if rest.strip():
        yield rest


_LONG_INTEGER = re.compile(rb"[0-9]{19}\s*[,\]}]")


def _object(line: bytes) -> Any:
    """The value of a line, None if it is no JSON. Where an integer may have over 64 bits the slower parser keeps it exact."""
    try:
        return (json.loads if _LONG_INTEGER.search(line) else orjson.loads)(line)
    except (ValueError, RecursionError):
        return None


def _of_objects(values: Iterable[tuple[Any, int]], left_out: Counter[str]) -> Iterator[Rows]:
    """The rows of JSON values, each with its bytes. The names of the first batch are those of the kept columns."""
    rows: list[tuple[dict[str, Any], dict[str, Any]]] = []
    names: list[str] | None = None
    size = 0
    for value, count in values:
        rows.append(_json_row(value))
        size += count
        if len(rows) == _BATCH_ROWS or size > _BATCH_BYTES:
            names = names if names is not None else _names(rows)
            yield _of_rows(rows, names, left_out)
            rows, size = [], 0
    if rows:
        yield _of_rows(rows, names if names is not None else _names(rows), left_out)


def _json_row(value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of an object that are decoded, and its others. What is no object becomes a row whose input is no hex."""
    if not isinstance(value, dict):
        return {"input": "a line that is no object of JSON"}, {}
    kept = {name: one for name, one in value.items() if name not in COLUMNS}
    if TO not in value:
        value[TO] = kept.pop(_TO_ADDRESS, None)
    if isinstance(kept.get(_TOPICS), list):
        value |= dict(zip(TOPICS, kept.pop(_TOPICS), strict=False))
    return {name: one if isinstance(one := value.get(name), str) else None for name in COLUMNS}, kept


def _names(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    return list({name: None for _, kept in rows for name in kept})


def _of_rows(rows: list[tuple[dict[str, Any], dict[str, Any]]], names: list[str], left_out: Counter[str]) -> Rows:
    decoded = {name: pa.array([row.get(name) for row, _ in rows], pa.string()) for name in COLUMNS}
    texts = [pa.array([_json_text(kept.get(name)) for _, kept in rows], pa.string()) for name in names]
    known = set(names)
    left_out.update(name for _, kept in rows for name in kept if name not in known)
    renamed = distinct_names([*SCHEMA.names, *names])[len(SCHEMA) :]
    schema = pa.schema([pa.field(name, pa.string(), metadata=JSON) for name in renamed])
    return Rows(pa.RecordBatch.from_pydict(decoded), pa.RecordBatch.from_arrays(texts, schema=schema))


def _json_text(value: Any) -> str | None:
    return None if value is None else json_of(value).decode()
