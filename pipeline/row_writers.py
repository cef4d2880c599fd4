"""Rows of a query in the formats of programs: csv, json, ndjson, parquet, arrow.

Every format is streamed: a batch is written before the next one is computed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from sigdir.pipeline.values import distinct_names, json_of, plain, rows_of


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
        writer = csv.writer(text, lineterminator="\n")
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

    with pq.ParquetWriter(out, batches.schema, compression="zstd") as writer:
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
