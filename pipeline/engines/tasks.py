"""What an engine's tasks do, and how they are done. Nothing of an engine is imported here: a task is a function of files.

A task is a pickle in the run's folder (``files.py``), so that an engine moves numbers and names only. Each attempt
works in a folder of its own and its result counts only if the engine reports it, so a task may fail, be repeated or run
twice at once. An attempt creates only its own folder. If the import died and its run's folder was removed, attempts
that still run fail and leave no files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.engines.files import RunFiles
from sigdir.pipeline.run import make_garbage_collection_rare
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.columns import Keys
from sigdir.signatures.python_parser import PARSER_LOCK
from sigdir.warehouse.index.derived import map_column
from sigdir.warehouse.publish.batch import FileTask
from sigdir.warehouse.publish.dedupe import keys_of_group, row_groups
from sigdir.warehouse.publish.spill import SpilledRows
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.parquet import WrittenFile

Array = npt.NDArray[Any]

# An engine inside of this process (Sail) starts all tasks of a stage at once. Each holds blocks of an input in memory.
_PERMITS = BoundedSemaphore(os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work. It may be done again, and elsewhere."""

    work: Callable[[Path], Any]
    """Does the work, with files in the given folder. It and its result can be pickled."""
    units: int
    """How much work it is, in the units of its stage's progress."""
    files: Sequence[Path] = ()
    """The files of the run or the warehouse that it reads."""


def task_file(stage: str, number: int) -> str:
    return f"{stage}/{number:06d}.task"


def run_task(run_files: RunFiles, stage: str, number: int) -> str:
    """Do a task of a stage; returns the name of the file with its result."""
    with _PERMITS, run_files.here() as files:
        make_garbage_collection_rare()
        task: Task = files.load(task_file(stage, number))
        files.fetch(task.files)
        attempt = f"{stage}/{number:06d}-{uuid.uuid4().hex[:8]}"
        folder = files.folder / attempt
        folder.mkdir()
        failpoints.reach("task_begun")
        result = task.work(folder)
        files.share(file for file in folder.iterdir() if file.is_file())
        files.save(f"{attempt}/result", result)
        failpoints.reach("task_written")
        return f"{attempt}/result"


def done(run_files: RunFiles, stage: str) -> set[int]:
    """The numbers of the tasks of a stage that are done."""
    return {int(Path(name).parent.name.partition("-")[0]) for name in run_files.saved(stage, "result")}


def write_file(task: FileTask, folder: Path) -> WrittenFile:
    """Write one data file, which the driver moves into the table."""
    return replace(task, path=folder / task.path.name).write(lambda _: None)


# Deduplicating.

KEYS_SCHEMA = "bucket int, high long, low long, number long"
"""28 bytes a row: what the engine shuffles."""
_KEY_TYPES = pa.schema([("bucket", pa.int32()), ("high", pa.int64()), ("low", pa.int64()), ("number", pa.int64())])
_CHUNK_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where keys come from: rows of the batch by their number, or stored texts by their id, negative."""

    collection: Collection
    rows: int
    keys: Callable[[], Iterable[tuple[Keys, Array]]]
    """Keys and numbers. It can be pickled."""
    files: Sequence[Path] = ()
    """The files that it reads."""


def spilled_keys(rows: SpilledRows, first: int) -> Iterator[tuple[Keys, Array]]:
    """The keys of rows of the batch, whose first one has the number ``first``."""
    for number, keys in rows.keys():
        yield keys, first + number + np.arange(len(keys.high), dtype=np.int64)


def stored_keys(collection: Collection, file: Path, seen: Path | None) -> Iterator[tuple[Keys, Array]]:
    """The keys of a data file. ``seen`` is the file of ``dedupe.hash_map``."""
    possible = None if seen is None else map_column(seen)
    for group in row_groups([file]):
        keys, ids = keys_of_group(collection, group, possible)
        yield keys, -ids


def staged_keys(keys: Keys, ids: Array) -> Iterator[tuple[Keys, Array]]:
    """The keys of POSTed rows."""
    yield keys, -ids


def key_batches(run_files: RunFiles, stage: str, number: int, buckets: int) -> Iterator[pa.RecordBatch]:
    """The keys of a source, each row with its bucket: the same text of a collection is in one bucket."""
    with run_files.here() as files:
        source: KeySource = files.load(task_file(stage, number))
        files.fetch(source.files)
        at = COLLECTIONS.index(source.collection)
        for keys, numbers in source.keys():
            bucket = ((keys.high % np.uint64(buckets)) * np.uint64(len(COLLECTIONS)) + np.uint64(at)).astype(np.int32)
            columns: list[Array] = [bucket, keys.high.view(np.int64), keys.low.view(np.int64), numbers]
            for first in range(0, len(numbers), _CHUNK_ROWS):
                cut = [pa.array(column[first : first + _CHUNK_ROWS]) for column in columns]
                yield pa.record_batch(cut, schema=_KEY_TYPES)


REPEATED_SCHEMA = "collection string, file string"
_REPEATED_TYPES = pa.schema([("collection", pa.string()), ("file", pa.string())])


def deduplicate(run_files: RunFiles, stage: str, bucket: pa.Table) -> pa.Table:
    """Write the numbers of a bucket's rows that are not new, and the number of the first row with their text.

    The least number of a text wins; that of a stored text is negative. Gives the collection and the file's name.
    """
    failpoints.reach("deduplicating")
    high, low, number = (bucket[name].to_numpy() for name in ("high", "low", "number"))
    repeated, first = _repeated(high, low, number)
    if not len(repeated):
        return _REPEATED_TYPES.empty_table()
    name = f"{stage}/{uuid.uuid4().hex}.npy"
    with run_files.here() as files:
        path = files.folder / name
        if files.url:
            path.parent.mkdir()
        np.save(path, np.stack([repeated, first]))
        files.share([path])
    collection = COLLECTIONS[int(bucket["bucket"][0].as_py()) % len(COLLECTIONS)]
    return pa.table([[str(collection)], [name]], schema=_REPEATED_TYPES)


def _repeated(high: Array, low: Array, number: Array) -> tuple[Array, Array]:
    """The numbers of the batch's rows with an earlier row of the same key, and the number of the earliest."""
    order = np.argsort(high)
    same = high[order[1:]] == high[order[:-1]]
    shared = np.zeros(len(high), np.bool_)
    shared[1:] |= same
    shared[:-1] |= same
    rows = order[shared]  # few, unless the import has many duplicates
    rows = rows[np.lexsort((number[rows], low[rows], high[rows]))]
    high, low, number = high[rows], low[rows], number[rows]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    first = number[np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))]
    is_repeated = ~begins & (number >= 0)
    return number[is_repeated], first[is_repeated]


def repeated_rows(files: RunFiles, name: str) -> tuple[Array, Array]:
    """What ``deduplicate`` wrote: numbers, and ids of their texts as ``TextIds`` has them."""
    path = files.folder / name
    files.fetch([path])
    with PARSER_LOCK:
        numbers, first = np.load(path)
    return numbers, np.where(first < 0, -first, -1 - first)
