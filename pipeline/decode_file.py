"""A file of transactions or logs, decoded with all cores: Parquet, CSV or JSON to Parquet or NDJSON.

The main process reads (``decode_source.py``) and writes; each worker process has its own view of the warehouse and
decodes one batch at a time (``decode_rows.py``), because decoding is Python and holds the GIL. Batches are bounded in
rows and in bytes, and few are in flight, so memory does not grow with the file. The results are in the file's order.
"""

from __future__ import annotations

import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.decode_arguments import ARGUMENTS, ArgumentColumns
from sigdir.pipeline.decode_calls import Texts
from sigdir.pipeline.decode_rows import SCHEMA, decode_batch
from sigdir.pipeline.decode_source import BLOCK_BYTES, JSON, Rows, read_rows
from sigdir.pipeline.directory import Directory, Source, open_directory, opened
from sigdir.pipeline.errors import BadTarget, PipelineError
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, open_target
from sigdir.pipeline.values import json_of
from sigdir.warehouse.table.parallel import ordered_map

_AHEAD = 3  # batches in flight for each worker
_KNOWN = 65_536  # hashes whose texts a worker remembers


@dataclass
class DecodeReport:
    """How many rows were read, how many of each confidence were written, and what was not kept.

    ``left_out`` counts values by their name that the first batch of JSON lines does not have.
    """

    rows: int = 0
    confidence: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "confidence": dict(self.confidence), "left_out": dict(self.left_out)}

    def lines(self) -> list[str]:
        parts = ", ".join(f"{self.confidence[name]:,} {name}" for name in ("high", "medium", "low", "none"))
        left_out = ", ".join(f"{name} of {count:,} rows" for name, count in self.left_out.most_common(10))
        note = [f"left out, because the first lines do not have it: {left_out}"] if left_out else []
        return [f"{self.rows:,} rows by confidence: {parts}", *note]


def decode_file(source: str, target: str, directory: Source, workers: int, progress: Reporter) -> DecodeReport:
    """Decode each row of a file; raises a PipelineError, WarehouseError and OSError."""
    _require_format(target)
    report = DecodeReport()
    size = Path(source).stat().st_size
    kept: deque[pa.RecordBatch] = deque()
    batches = _tasks(read_rows(source, progress, report.left_out), kept)
    workers = workers if size > BLOCK_BYTES // 4 else 1
    with _results(directory, batches, workers) as results:
        whole = (_joined(result, kept.popleft()) for result in results)
        first = next(whole, pa.RecordBatch.from_pylist([], SCHEMA))
        with _writer(target, first) as write:
            for result in chain([first], whole):
                write(result)
                report.rows += result.num_rows
                for one in result.column("confidence").value_counts().to_pylist():
                    report.confidence[one["values"]] += one["counts"]
                progress.rows(result.num_rows)
    return report


def _tasks(rows: Iterable[Rows], kept: deque[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batches that are decoded, each with the number of its first row. The columns beside them wait in ``kept``."""
    first = 0
    for batch in rows:
        kept.append(batch.kept)
        yield batch.decoded, first
        first += batch.decoded.num_rows


def _joined(result: pa.RecordBatch, kept: pa.RecordBatch) -> pa.RecordBatch:
    schema = pa.schema([*result.schema, *kept.schema])
    return pa.RecordBatch.from_arrays([*result.columns, *kept.columns], schema=schema)


# Decoding.


@contextmanager
def _results(
    source: Source, batches: Iterator[tuple[pa.RecordBatch, int]], workers: int
) -> Iterator[Iterator[pa.RecordBatch]]:
    with opened(source) as directory:  # makes a warehouse's index once, before the workers map it
        if workers == 1:
            texts = _texts(directory)
            yield (decode_batch(batch, first, texts) for batch, first in batches)
        else:
            # The processes end first: a thread waits for the answer of one.
            with ThreadPoolExecutor(workers) as threads, _processes(directory.source, workers) as free:
                yield ordered_map(threads, partial(_decode, free), batches, _AHEAD * workers)


@contextmanager
def _processes(source: Source, count: int) -> Iterator[SimpleQueue[Connection]]:
    """Connections to processes that decode. A thread takes one for each batch.

    Python's own pool waits for ever for the rest of an answer whose process was killed while it wrote. A connection
    with two ends notices.
    """
    context = get_context("spawn")
    free: SimpleQueue[Connection] = SimpleQueue()
    started = []
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, source), daemon=True)
            process.start()
            theirs.close()
            started.append(process)
            free.put(ours)
        yield free
    finally:
        for process in started:
            process.terminate()
            process.join()


def _decode(free: SimpleQueue[Connection], item: tuple[pa.RecordBatch, int]) -> pa.RecordBatch:
    """Have a process decode a batch; raises what that raises, and PipelineError where the process has ended."""
    connection = free.get()
    try:
        connection.send(item)
        decoded = connection.recv()
    except (EOFError, OSError):
        raise PipelineError(
            "a process that decodes has ended, perhaps for want of memory; use fewer --workers"
        ) from None
    finally:
        free.put(connection)
    if isinstance(decoded, Exception):
        raise decoded
    return decoded


def _work(connection: Connection, source: Source) -> None:
    """Decode batches until the main process closes the connection. Ctrl-C ends the main process, which ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    texts: Texts | None = None
    with suppress(EOFError):
        while True:
            batch, first = connection.recv()
            try:
                texts = texts or _texts(open_directory(source))
                connection.send(decode_batch(batch, first, texts))
            except Exception as error:  # noqa: BLE001 - raised again in the main process
                connection.send(error)


def _texts(directory: Directory) -> Texts:
    return lru_cache(_KNOWN)(directory.known)


# Writing.


def _is_parquet(target: str) -> bool:
    return target.lower().endswith(".parquet")


def _require_format(target: str) -> None:
    """Raise BadTarget for a target whose name is of no format, before any row is decoded."""
    name = target.lower().removesuffix(".gz").removesuffix(".zst")
    if target != STDOUT and not _is_parquet(target) and not name.endswith((".ndjson", ".jsonl")):
        raise BadTarget(target, "its name ends neither with .parquet nor .ndjson nor .jsonl")


@contextmanager
def _writer(target: str, first: pa.RecordBatch) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """A function that writes a batch, by the target's name and the first batch."""
    if _is_parquet(target):
        arguments = ArgumentColumns(first)
        plain = arguments.schema(pa.schema([field.remove_metadata() for field in first.schema]))
        with open_target(target, packs=False) as out, pq.ParquetWriter(out, plain, compression="zstd") as writer:
            yield lambda batch: writer.write_batch(_without_json(arguments.typed(batch), plain))
        return
    with open_target(target, packs=True) as out:
        yield lambda batch: _write_lines(out, batch)


def _without_json(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the texts of JSON strings in place of their JSON. Other values of JSON stay JSON."""
    columns = [
        pa.array([orjson.loads(one) if one and one[0] == '"' else one for one in column.to_pylist()], pa.string())
        if field.metadata == JSON else column
        for field, column in zip(batch.schema, batch.columns, strict=True)
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _write_lines(out: BinaryIO, batch: pa.RecordBatch) -> None:
    """NDJSON, with what is JSON as JSON and not as text."""
    ours, kept = batch.select(range(len(SCHEMA))), batch.select(range(len(SCHEMA), batch.num_columns))
    json = [field.name for field in kept.schema if field.metadata == JSON]
    others = kept.to_pylist() if kept.num_columns else [{}] * batch.num_rows
    for row, other in zip(ours.to_pylist(), others, strict=True):
        line = orjson.dumps(_with_fragments(row, ("values", ARGUMENTS, "nested")))
        rest = json_of(_with_fragments(other, json))
        out.write((line[:-1] + b"," + rest[1:] if other else line) + b"\n")


def _with_fragments(row: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return row | {name: orjson.Fragment(row[name]) for name in names if row[name] is not None}
