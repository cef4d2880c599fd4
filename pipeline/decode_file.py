"""A file of transactions or logs, decoded with all cores: Parquet, CSV or JSON lines to Parquet or NDJSON.

The main process reads and writes; each worker process has its own view of the warehouse and decodes one batch at a
time (``decode_rows.py``), because decoding is Python and holds the GIL. Batches are bounded in rows and in bytes, and few
are in flight, so memory does not grow with the file. The results are in the file's order.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from sigdir.pipeline.decode_calls import Texts
from sigdir.pipeline.decode_rows import COLUMNS, SCHEMA, TO, TOPICS, decode_batch
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, open_target
from sigdir.signatures.readings import Known
from sigdir.warehouse.index.known import known_texts
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.parallel import ordered_map
from sigdir.warehouse.paths import Paths, existing

_TO_ADDRESS = "to_address"
_BATCH_ROWS = 4096
_BATCH_BYTES = 4 << 20
_AHEAD = 3  # batches in flight for each worker
_LINE_BYTES = 2 << 20
_BLOCK_BYTES = 8 << 20
_KNOWN = 65_536  # hashes whose texts a worker remembers


@dataclass
class DecodeReport:
    """How many rows were read, and how many of each confidence were written."""

    rows: int = 0
    confidence: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "confidence": dict(self.confidence)}

    def lines(self) -> list[str]:
        parts = ", ".join(f"{self.confidence[name]:,} {name}" for name in ("high", "medium", "low", "none"))
        return [f"{self.rows:,} rows by confidence: {parts}"]


def decode_file(source: str, target: str, warehouse: Path, workers: int, progress: Reporter) -> DecodeReport:
    """Decode each row of a file; raises BadInput, BadTarget, WarehouseError and OSError."""
    paths, report = existing(warehouse), DecodeReport()
    size = Path(source).stat().st_size
    with closing(Reader(paths)):  # makes the index once, before the workers map it
        pass
    batches = _numbered(_bounded(_batches(source, progress)))
    with _results(paths, batches, workers if size > _BLOCK_BYTES // 4 else 1) as results, _writer(target) as write:
        for result in results:
            write(result)
            report.rows += result.num_rows
            for one in result.column("confidence").value_counts().to_pylist():
                report.confidence[one["values"]] += one["counts"]
            progress.rows(result.num_rows)
    return report


# Reading.


def _batches(source: str, progress: Reporter) -> Iterator[pa.RecordBatch]:
    """The batches of a file. The progress counts what is read: rows of Parquet, bytes of any other file."""
    name = source.lower().removesuffix(".gz").removesuffix(".zst")
    try:
        if name.endswith(".parquet"):
            yield from _parquet(source, progress)
        elif name.endswith((".jsonl", ".ndjson", ".json")):
            yield from _with_bytes(source, _json_lines, progress)
        elif name.endswith(".csv"):
            yield from _with_bytes(source, _csv, progress)
        else:
            raise BadInput(source, "its name ends neither with .parquet nor .csv nor .jsonl")
    except pa.ArrowException as error:
        raise BadInput(source, str(error)) from None


def _wanted(source: str, names: Iterable[str]) -> list[str]:
    names = list(names)
    wanted = [
        name for name in names if name in COLUMNS or name == "topics" or (name == _TO_ADDRESS and TO not in names)
    ]
    if not {"input", "data", "topic0", "topics"}.intersection(wanted):
        raise BadInput(source, "it has none of the columns input, data, topic0 and topics")
    return wanted


def _parquet(source: str, progress: Reporter) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(source) as file:
        wanted = _wanted(source, file.schema_arrow.names)
        progress.stage("decode", file.metadata.num_rows)
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            yield _with_to(_with_topics(batch))
            progress.advance(batch.num_rows)


def _with_bytes(
    source: str, read: Callable[[str, BinaryIO], Iterator[pa.RecordBatch]], progress: Reporter
) -> Iterator[pa.RecordBatch]:
    """The batches that ``read`` makes of a file's unpacked bytes; the progress counts those of the file itself."""
    done = 0
    with open(source, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        progress.stage("decode", size)
        with pa.input_stream(file, compression=_PACKED.get(Path(source).suffix.lower())) as stream:
            for batch in read(source, stream):
                yield batch
                at = file.tell()
                progress.advance(at - done)
                done = at
    progress.advance(size - done)


_PACKED = {".gz": "gzip", ".zst": "zstd"}


def _with_topics(batch: pa.RecordBatch) -> pa.RecordBatch:
    """BigQuery has the topics as one list."""
    if "topics" not in batch.schema.names:
        return batch
    lists = [topics or [] for topics in batch.column("topics").to_pylist()]
    columns = {name: batch.column(name) for name in batch.schema.names if name not in ("topics", *TOPICS)}
    for number, name in enumerate(TOPICS):
        columns[name] = pa.array([topics[number] if len(topics) > number else None for topics in lists])
    return pa.RecordBatch.from_pydict(columns)


def _with_to(batch: pa.RecordBatch) -> pa.RecordBatch:
    """cryo and BigQuery call the column ``to_address``."""
    return batch.rename_columns([TO if name == _TO_ADDRESS else name for name in batch.schema.names])


def _csv(source: str, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    with pa.input_stream(source, compression="detect") as beginning:
        head = beginning.read(1 << 16).partition(b"\n")[0].decode("utf-8-sig", "replace")
    names = _wanted(source, [name.strip().strip('"') for name in head.split(",")])
    strings = dict.fromkeys((*COLUMNS, _TO_ADDRESS), pa.string())
    convert = pa_csv.ConvertOptions(column_types=strings, include_columns=names, strings_can_be_null=True)
    with pa_csv.open_csv(stream, pa_csv.ReadOptions(block_size=_BLOCK_BYTES), convert_options=convert) as batches:
        yield from map(_with_to, batches)


def _json_lines(source: str, stream: BinaryIO) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    size = 0
    for line in _lines(source, stream):
        rows.append(_json_row(line))
        size += len(line)
        if len(rows) == _BATCH_ROWS or size > _BATCH_BYTES:
            yield _of_rows(rows)
            rows, size = [], 0
    if rows:
        yield _of_rows(rows)


def _lines(source: str, stream: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line for line in lines if line.strip())
        if len(rest) > _LINE_BYTES:
            raise BadInput(source, f"a line of over {_LINE_BYTES} bytes")
    if rest.strip():
        yield rest


def _json_row(line: bytes) -> dict[str, Any]:
    """The columns of a line. One that is no object of JSON becomes a row whose input is no hex."""
    try:
        value = orjson.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return {"input": "a line that is no object of JSON"}
    value.setdefault(TO, value.get(_TO_ADDRESS))
    topics = value.get("topics")
    if isinstance(topics, list):
        value |= dict(zip(TOPICS, topics, strict=False))
    return {name: one if isinstance(one := value.get(name), str) else None for name in COLUMNS}


def _of_rows(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in COLUMNS}
    return pa.RecordBatch.from_pydict(columns)


def _bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, cut so that a worker gets a bounded number of bytes."""
    for batch in batches:
        parts = max(1, min(batch.num_rows, -(-batch.nbytes // _BATCH_BYTES), 4096), -(-batch.num_rows // _BATCH_ROWS))
        step = -(-batch.num_rows // parts)
        for first in range(0, batch.num_rows, max(step, 1)):
            part = batch.slice(first, step)
            yield part if parts == 1 else part.take(pa.array(range(part.num_rows)))  # a slice is sent with the whole


def _numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int]]:
    first = 0
    for batch in batches:
        yield batch, first
        first += batch.num_rows


# Decoding.


@contextmanager
def _results(
    paths: Paths, batches: Iterator[tuple[pa.RecordBatch, int]], workers: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    if workers == 1:
        with closing(Reader(paths)) as reader:
            texts = _texts(reader)
            yield (decode_batch(batch, first, texts) for batch, first in batches)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (paths.root,))
    try:
        yield ordered_map(pool, _work, batches, _AHEAD * workers)
    finally:
        pool.shutdown(cancel_futures=True)


_worker: dict[str, Texts] = {}


def _start(root: Path) -> None:
    """Of a worker. Ctrl-C ends the main process, which ends the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _worker["texts"] = _texts(Reader(existing(root)))


def _work(item: tuple[pa.RecordBatch, int]) -> pa.RecordBatch:
    return decode_batch(*item, _worker["texts"])


def _texts(reader: Reader) -> Texts:
    view, names = reader.current(), Names()

    @lru_cache(_KNOWN)
    def texts(hash: bytes) -> list[Known]:
        return known_texts(view, hash, names)

    return texts


# Writing.


@contextmanager
def _writer(target: str) -> Iterator[Any]:
    """A function that writes a batch, by the target's name."""
    name = target.lower()
    if name.endswith(".parquet"):
        with open_target(target, packs=False) as out, pq.ParquetWriter(out, SCHEMA, compression="zstd") as writer:
            yield writer.write_batch
        return
    if target != STDOUT and not name.removesuffix(".gz").removesuffix(".zst").endswith((".ndjson", ".jsonl")):
        raise BadTarget(target, "its name ends neither with .parquet nor .ndjson nor .jsonl")
    with open_target(target, packs=True) as out:
        yield lambda batch: _write_lines(out, batch)


def _write_lines(out: BinaryIO, batch: pa.RecordBatch) -> None:
    """NDJSON, with the JSON of values and calls inside as JSON and not as text."""
    for row in batch.to_pylist():
        for name in ("values", "nested"):
            row[name] = orjson.Fragment(row[name]) if row[name] is not None else None
        out.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
