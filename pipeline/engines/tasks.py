"""What an engine's tasks do. Nothing of an engine is imported here: a task is a function of files.

A task is a pickle in the run's folder (``stage.py``), so that an engine moves numbers and names only. Each attempt
works in a folder of its own and its result counts only if the engine reports it, so a task may fail, be repeated or run
twice at once. An attempt creates only its own folder. If the import died and its run's folder was removed, attempts
that still run fail and leave no files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.engines.stage import Stage, StageFiles
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.solidity import Targets
from sigdir.pipeline.hash_named import folder_source
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport, Unread
from sigdir.pipeline.run import ImportRun, Options, Scope, make_garbage_collection_rare, read_inputs
from sigdir.pipeline.source import Piece, Source
from sigdir.pipeline.state import ImportState, ReadPart
from sigdir.pipeline.store_inputs import open_object, store_folder, store_source
from sigdir.pipeline.unread import UnreadInputs
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.columns import Keys
from sigdir.signatures.python_parser import PARSER_LOCK
from sigdir.warehouse import failpoints
from sigdir.warehouse.batch import FileTask
from sigdir.warehouse.dedupe import RowGroup, keys_of_group
from sigdir.warehouse.index.derived import map_column
from sigdir.warehouse.parquet import WrittenFile
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.spill import SpilledRows
from sigdir.warehouse.stores import is_url

Array = npt.NDArray[Any]

# An engine inside of this process (Sail) starts all tasks of a stage at once. Each holds blocks of an input in memory.
_PERMITS = BoundedSemaphore(os.cpu_count() or 1)


class Task(Protocol):
    """A piece of work. It may be done again, and elsewhere."""

    @property
    def units(self) -> int:
        """How much work it is, in the units of its stage's progress."""

    def input_files(self) -> Iterable[Path]:
        """The files of the run or the warehouse that it reads."""

    def __call__(self, folder: Path) -> Any:
        """Do the work, with files in ``folder``; the result can be pickled."""

    def output_files(self, result: Any) -> Iterable[Path]:
        """The files of a result that the driver reads."""


def put(stage_files: StageFiles, tasks: Sequence[Task]) -> None:
    """Put the tasks of a stage into its folder."""
    for number, task in enumerate(tasks):
        stage_files.save(_task_file(number), task)


def run_task(stage: Stage, number: int) -> str:
    """Do a task of a stage; returns the name of the file with its result."""
    with _PERMITS, stage.open() as stage_files:
        make_garbage_collection_rare()
        task: Task = stage_files.load(_task_file(number))
        stage_files.fetch(task.input_files())
        attempt = stage_files.folder / f"{number:06d}-{uuid.uuid4().hex[:8]}"
        attempt.mkdir()
        failpoints.reach("task_begun")
        result = task(attempt)
        stage_files.share(file for file in attempt.iterdir() if file.is_file())
        name = f"{attempt.name}/result"
        stage_files.save(name, result)
        failpoints.reach("task_written")
        stage_files.mark(number)
        return name


def result_of(stage_files: StageFiles, task: Task, name: str) -> Any:
    """The result of a task, with the files that the driver reads."""
    result = stage_files.load(name)
    stage_files.fetch(task.output_files(result))
    return result


def _task_file(number: int) -> str:
    return f"{number:06d}.task"


# Reading.


@dataclass(frozen=True, slots=True)
class InputRef:
    """An input on disk or in a store, as ``find`` found it."""

    path: str
    """Absolute, because tasks run in other folders."""
    name: str
    """What messages call it: the path as given."""
    explicit: bool
    size: int
    below: str
    names: tuple[str, ...] | None
    """The files' names of a folder of hash-named files."""

    @classmethod
    def of(cls, source: Source) -> InputRef:
        names = None if source.file_names is None else tuple(source.file_names)
        return cls(absolute(source.path), source.name, source.explicit, source.size, source.below, names)

    def source(self, unread: UnreadInputs) -> Source:
        if self.names is not None:
            if is_url(self.path):
                return store_folder(self.path, self.names, self.size, unread, self.below)
            return folder_source(self.path, self.names, self.size, unread, self.below, self.name)
        if is_url(self.path):
            return store_source(self.path, self.explicit, self.size, self.below)
        return Source(self.path, self.explicit, self.name, self.size, below=self.below)

    def piece(self, piece: range) -> Piece:
        """A part of the file or object."""
        open_file = partial(open_object, self.path, self.size) if is_url(self.path) else None
        return Piece(self.path, self.explicit, self.size, self.below, piece, open_file, self.name)


def absolute(path: str) -> str:
    """The path as it is valid in another folder; that of an object in a store is valid everywhere."""
    return path if is_url(path) else os.path.join(os.getcwd(), path)


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a reading task found. ``part`` is None where ``error`` ends the import: an input's name, and why."""

    part: ReadPart | None
    skipped: list[Unread]
    faults: list[Unread]
    lines: int = 0
    """The lines of a piece."""
    ends_inside: bool = False
    """As ``Source.ends_inside``."""
    error: tuple[str, str] | None = None

    def checked(self) -> ReadPart:
        """The part; raises the BadInput that ended the task."""
        if self.part is None:
            raise BadInput(*(self.error or ("", "")))
        return self.part


@dataclass(frozen=True, slots=True)
class ReadInputs:
    """Read whole inputs, or one piece of one, as the local import does."""

    inputs: tuple[InputRef, ...]
    options: Options
    scope: Scope = Scope.ALONE
    deferred: frozenset[str] = frozenset()
    targets: Targets | None = None
    piece: range | None = None
    units: int = 0

    def input_files(self) -> Iterable[Path]:
        return ()

    def output_files(self, result: ReadResult) -> Iterable[Path]:
        return result.part.read_by_driver() if result.part is not None else ()

    def __call__(self, folder: Path) -> ReadResult:
        options = replace(self.options, threads=1)
        report = ImportReport()
        unread = UnreadInputs(report, options.strict)
        sources = self._sources(unread)
        with ImportState(folder, report) as state:
            paths = Paths(options.warehouse.absolute())
            run = ImportRun(
                options, paths, Reporter(), report, state, unread, "", self.scope, self.deferred, self.targets
            )
            try:
                read_inputs(run, sources)
            except BadInput as error:
                return ReadResult(None, [], [], error=(error.name, error.reason))
            state.finish_reading()
            first = sources[0]
            return ReadResult(state.as_part(), report.skipped, report.faults, first.lines_read, first.ends_inside)

    def _sources(self, unread: UnreadInputs) -> list[Source]:
        if self.piece is None:
            return [ref.source(unread) for ref in self.inputs]
        [ref] = self.inputs
        return [ref.piece(self.piece)]


@dataclass(frozen=True, slots=True)
class DigestFile:
    """Size and sha256 of a file that is read in pieces."""

    input: InputRef
    units: int = 0

    def input_files(self) -> Iterable[Path]:
        return ()

    def output_files(self, result: tuple[int, str]) -> Iterable[Path]:
        return ()

    def __call__(self, folder: Path) -> tuple[int, str]:
        source = self.input.source(UnreadInputs(ImportReport()))
        with source.open(lambda _: None):
            return source.finish()


# Deduplicating.

KEYS_SCHEMA = "bucket int, high long, low long, number long"
"""28 bytes a row: what the engine shuffles."""
_KEY_TYPES = pa.schema([("bucket", pa.int32()), ("high", pa.int64()), ("low", pa.int64()), ("number", pa.int64())])
_CHUNK_ROWS = 1 << 16


class KeySource(Protocol):
    """Where keys come from: rows of the batch by their number, or stored texts by their id, negative."""

    @property
    def collection(self) -> Collection: ...

    def input_files(self) -> Iterable[Path]:
        """The files that it reads."""

    def keys(self) -> Iterator[tuple[Keys, Array]]:
        """Keys and numbers."""


@dataclass(frozen=True, slots=True)
class SpilledKeys:
    """The keys of a part of the batch, whose first row has the number ``first``."""

    rows: SpilledRows
    first: int

    @property
    def collection(self) -> Collection:
        return self.rows.collection

    def input_files(self) -> Iterable[Path]:
        return self.rows.key_files()

    def keys(self) -> Iterator[tuple[Keys, Array]]:
        for number, keys in self.rows.keys():
            yield keys, self.first + number + np.arange(len(keys.high), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """The keys of a row group of the table. ``seen`` is the file of ``dedupe.hash_map``."""

    collection: Collection
    group: RowGroup
    seen: Path | None

    def input_files(self) -> Iterable[Path]:
        return [self.group.path, *([self.seen] if self.seen is not None else [])]

    def keys(self) -> Iterator[tuple[Keys, Array]]:
        seen = None if self.seen is None else map_column(self.seen)
        keys, ids = keys_of_group(self.collection, self.group, seen)
        yield keys, -ids


@dataclass(frozen=True, slots=True)
class StagedKeys:
    """The keys of POSTed rows."""

    collection: Collection
    staged: Keys
    ids: Array

    def input_files(self) -> Iterable[Path]:
        return ()

    def keys(self) -> Iterator[tuple[Keys, Array]]:
        yield self.staged, -self.ids


def put_keys(stage_files: StageFiles, number: int, sources: Sequence[KeySource]) -> None:
    stage_files.save(_task_file(number), sources)


def key_batches(stage: Stage, number: int, buckets: int) -> Iterator[pa.RecordBatch]:
    """The keys of one group of sources, each row with its bucket: the same text of a collection is in one bucket."""
    with stage.open() as stage_files:
        for source in stage_files.load(_task_file(number)):
            stage_files.fetch(source.input_files())
            yield from _key_batches(source, buckets)


def _key_batches(source: KeySource, buckets: int) -> Iterator[pa.RecordBatch]:
    at = COLLECTIONS.index(source.collection)
    for keys, numbers in source.keys():
        bucket = ((keys.high % np.uint64(buckets)) * np.uint64(len(COLLECTIONS)) + np.uint64(at)).astype(np.int32)
        columns: list[Array] = [bucket, keys.high.view(np.int64), keys.low.view(np.int64), numbers]
        for first in range(0, len(numbers), _CHUNK_ROWS):
            cut = [pa.array(column[first : first + _CHUNK_ROWS]) for column in columns]
            yield pa.record_batch(cut, schema=_KEY_TYPES)


DROPPED_SCHEMA = "collection string, file string"
_DROPPED_TYPES = pa.schema([("collection", pa.string()), ("file", pa.string())])


def deduplicate(stage: Stage, bucket: pa.Table) -> pa.Table:
    """Write the numbers of a bucket's rows that are not new, and the number of the first row with their text.

    The least number of a text wins; that of a stored text is negative. Gives the collection and the file's name.
    """
    failpoints.reach("deduplicating")
    high, low, number = (bucket[name].to_numpy() for name in ("high", "low", "number"))
    dropped, first = _repeated(high, low, number)
    if not len(dropped):
        return _DROPPED_TYPES.empty_table()
    file = f"{uuid.uuid4().hex}.npy"
    with stage.open() as stage_files:
        np.save(stage_files.folder / file, np.stack([dropped, first]))
        stage_files.share([stage_files.folder / file])
    collection = COLLECTIONS[int(bucket["bucket"][0].as_py()) % len(COLLECTIONS)]
    return pa.table([[str(collection)], [file]], schema=_DROPPED_TYPES)


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
    dropped = ~begins & (number >= 0)
    return number[dropped], first[dropped]


def dropped(stage_files: StageFiles, file: str) -> tuple[Array, Array]:
    """What ``deduplicate`` wrote: numbers, and ids of their texts as ``TextIds`` has them."""
    stage_files.fetch([stage_files.folder / file])
    with PARSER_LOCK:
        numbers, first = np.load(stage_files.folder / file)
    return numbers, np.where(first < 0, -first, -1 - first)


# Writing.


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Write one data file into the attempt's folder, from which the publisher moves it into the table."""

    task: FileTask

    @property
    def units(self) -> int:
        return int(np.count_nonzero(self.task.numbered))

    def input_files(self) -> Iterable[Path]:
        return self.task.rows.text_files()

    def output_files(self, result: WrittenFile) -> Iterable[Path]:
        return [result.path]

    def __call__(self, folder: Path) -> WrittenFile:
        return replace(self.task, path=folder / self.task.path.name).write(lambda _: None)
