"""Rows of a query in Python, and in the formats of programs: csv, json, ndjson, parquet, arrow.

JSON and CSV have no bytes, times or decimals of their own.

Every format is streamed: a batch is written before the next one is computed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from sigdir.pipeline.errors import PipelineError, one_line

_CRLF = "\r\n"


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows of batches, as tuples of Python's values; raises PipelineError for a time that Python has none for."""
    for batch in batches:
        yield from zip(*map(_values, batch.schema.names, batch.columns), strict=True)


def _values(name: str, column: pa.Array) -> list[Any]:
    try:
        # For a time with a zone pyarrow loads pandas where it is installed, which takes 0.2 s.
        if column.type == pa.timestamp("us", "UTC"):
            return [time and time.replace(tzinfo=UTC) for time in column.view(pa.timestamp("us")).to_pylist()]
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise PipelineError(f"{one_line(name)}: a time is not within the years 1 to 9999; CAST it to VARCHAR") from None
    return values


def plain(value: Any) -> Any:
    """A value in JSON: bytes as hex, times with six digits and Z, intervals as ISO 8601 writes them.

    A decimal of more digits than a float has is text.
    """
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%f") + ("Z" if value.tzinfo else "")
    if isinstance(value, Decimal):
        if value == value.to_integral_value():
            return int(value)
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, pa.MonthDayNano):
        seconds = Decimal(value.nanoseconds).scaleb(-9).normalize()
        return f"P{value.months}M{value.days}DT{seconds:f}S"
    return str(value)


def json_of(value: Any) -> bytes:
    """A value, or a list or mapping of values, as JSON."""
    try:
        return orjson.dumps(value, default=plain, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:  # an integer of over 64 bits
        return json.dumps(_finite(value), default=plain, ensure_ascii=False, separators=(",", ":")).encode()


def _finite(value: Any) -> Any:
    """A value as orjson writes it: null for a float that is no number or infinite, which JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, pa.MonthDayNano):
        return plain(value)
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names of columns, each once: the second `a` is `a_2`, so that no column is lost."""
    found: dict[str, None] = {}
    numbers: dict[str, int] = {}
    for name in names:
        key = name
        while key in found:
            numbers[name] = numbers.get(name, 1) + 1
            key = f"{name}_{numbers[name]}"
        found[key] = None
    return list(found)


def _objects(batches: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    keys = distinct_names(batches.schema.names)
    for row in rows_of(batches):
        yield dict(zip(keys, row, strict=True))


def _write_ndjson(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    out.writelines(json_of(row) + b"\n" for row in _objects(batches))


def _write_json(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    separator = b"["
    for row in _objects(batches):
        out.write(separator + json_of(row))
        separator = b",\n "
    out.write(b"]\n" if separator != b"[" else b"[]\n")


def _write_csv(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    text = io.TextIOWrapper(out, "utf-8", newline="", write_through=True)
    try:
        # A carriage return is quoted only where it is part of a line's end.
        lines = SimpleNamespace(write=lambda line: text.write(f"{line.removesuffix(_CRLF)}\n"))
        writer = csv.writer(lines, lineterminator=_CRLF)
        writer.writerow(batches.schema.names)
        for row in rows_of(batches):
            writer.writerow([_cell(value) for value in row])
        text.flush()
    finally:
        text.detach()  # closing the wrapper would close `out`


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict | list):
        return json_of(value).decode()
    return plain(value)


def _write_parquet(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    import pyarrow.parquet as pq  # 11 ms, which the other formats do without

    try:
        writer = pq.ParquetWriter(out, batches.schema, compression="zstd")
    except pa.ArrowNotImplementedError as error:  # intervals, unions
        raise PipelineError(f"Parquet has no such type; CAST the column to VARCHAR: {one_line(str(error))}") from None
    with writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    with pa.ipc.new_stream(out, batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


WRITERS: dict[str, Callable[[pa.RecordBatchReader, BinaryIO], None]] = {
    "csv": _write_csv,
    "json": _write_json,
    "ndjson": _write_ndjson,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}
