"""Where rows are written to: a file or an object that appears when it is complete, a device, or standard output.

Rows of a query in Python, and in the formats of programs: csv, json, ndjson, parquet, arrow.

JSON and CSV have no bytes, times or decimals of their own.

Every format is streamed: a batch is written before the next one is computed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, BinaryIO, cast
from urllib.parse import unquote

import orjson
import pyarrow as pa

from sigdir.pipeline.errors import BadTarget, PipelineError, one_line, printable
from sigdir.warehouse.table.files import replacing, sync
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.stores import is_url, open_store

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


def _objects(batches: pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    for row in rows_of(batches):
        yield dict(zip(batches.schema.names, row, strict=True))


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
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:  # intervals and unions; maps without a key
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


STDOUT = "-"
_REQUESTS = 16


@contextmanager
def open_target(target: str, packs: bool) -> Iterator[BinaryIO]:
    """The target to write to, packed with gzip or zstd if it ends so. A regular file appears when it is complete."""
    if target == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    if is_url(target):
        with _object(target, packs) as out:
            yield out
        return
    path = Path(os.path.realpath(target))  # replaces the file that a link points to, not the link
    ending = path.suffix if packs else ""
    if path.is_dir():
        raise BadTarget(printable(target), "is a folder")
    if path.exists() and not path.is_file():  # a pipe or a device is not replaced
        with path.open("wb") as device, _packed(device, ending) as packed:
            yield packed
        return
    with replacing(path) as out, _packed(out, ending) as packed:
        yield packed


@contextmanager
def _object(url: str, packs: bool) -> Iterator[BinaryIO]:
    """An object of a store, written as a file first. Raises StoreError."""
    folder, _, name = url.rpartition("/")
    if not name or folder.endswith("/"):
        raise BadTarget(printable(url), "names no object; write s3://bucket/name")
    store = open_store(folder)
    with TemporaryDirectory(prefix="sigdir-") as scratch:
        file = Path(scratch) / name
        with open_target(str(file), packs) as out:
            yield out
        store.put(unquote(name), file)


@contextmanager
def open_folder(target: str) -> Iterator[Path]:
    """A folder to fill, which appears when it is complete; of a store's URL the files become objects.

    Raises BadTarget where there is one already, StoreError.
    """
    if not is_url(target):
        with _new_folder(Path(target)) as folder:
            yield folder
        return
    with TemporaryDirectory(prefix="sigdir-") as scratch:
        yield Path(scratch)
        _put_tree(Path(scratch), target)


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which gets its name when that is done. Raises BadTarget where there is one already."""
    if os.path.lexists(target) and not (target.is_dir() and not any(target.iterdir())):
        raise BadTarget(printable(str(target)), "exists already; name a new folder")
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        yield part
        os.sync()  # one sync per file would take a hundred times as long
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    sync(target.absolute().parent)


def _put_tree(folder: Path, url: str) -> None:
    """Write the files of a folder into a store; raises BadTarget where there are objects already, StoreError."""
    store = open_store(url)
    if store.list():
        raise BadTarget(printable(url), "has objects already; name a new prefix")
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    for_each(lambda file: store.put(file.relative_to(folder).as_posix(), file), files, _REQUESTS)


@contextmanager
def _packed(out: BinaryIO, ending: str) -> Iterator[BinaryIO]:
    if ending == ".gz":
        # Without name and time the same rows give the same bytes.
        with gzip.GzipFile("", "wb", 6, out, mtime=0) as packed:
            yield cast(BinaryIO, packed)
    elif ending == ".zst":
        from backports import zstd  # a query to standard output does without it

        parameter = zstd.CompressionParameter
        options: dict[int, int] = {parameter.compression_level: 3, parameter.nb_workers: os.cpu_count() or 1}
        with zstd.ZstdFile(out, "wb", options=options) as packed:
            yield cast(BinaryIO, packed)
    else:
        yield out
