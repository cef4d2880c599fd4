"""The reading of an import on Spark's API: PySpark, Spark Connect, or Sail.

::

    tasks:  files, splits of files ─ canonicalise ─► texts, sightings and rejects in the run's folder
    driver: all of them in the order of the inputs ─► the import goes on as any other: select, write, commit

The engine schedules tasks : it moves numbers and names, never texts. Only what Spark Connect offers too
is used: ``mapInArrow`` over the numbers of the tasks. The driver, which is this process, selects the new rows and
writes the table: to compare keys of 16 bytes takes it a tenth of what an engine takes to shuffle them.

This package has to be installed where the executors are. They read inputs in a store themselves, and the store
carries the run's files if the warehouse is in one. If the warehouse or the inputs are in a folder, all executors must
see that folder under the same path.

::

    from sigdir.pipeline import engine
    engine.run(session, Options(["lists/"], Path("data")))

What an engine's tasks do, and how they are done. Nothing of an engine is imported here: a task is a function of
files.

A task is a pickle in the run's folder (``RunFiles``), so that an engine moves numbers and names only. Each attempt
works in a folder of its own and its result counts only if the engine reports it, so a task may fail, be repeated or
run twice at once. An attempt creates only its own folder. If the import died and its run's folder was removed,
attempts that still run fail and leave no files.

The inputs of an import as tasks: a file each, or splits of a large file of lines.

A split is read alone, and checked afterwards: if it ends inside a comment or a quoted field, the split after it was
not what it seemed. What a task cannot read by itself, the driver reads as a local import does: such a file, inputs
that refer to others, inputs that end the import, and small files, for which a task would take longer than the
reading.
"""

from __future__ import annotations

import hmac
import io
import os
import pickle
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path, PurePath
from secrets import token_bytes
from threading import BoundedSemaphore, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.errors import BadInput, PipelineError, one_line
from sigdir.pipeline.formats.registry import Format, Import, MultiSourceReader, by_name, detect
from sigdir.pipeline.inputs import folder_at, input_at, read_object
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import FileReport, ImportReport, Unread, UnreadInputs
from sigdir.pipeline.run import ImportRun, InputReader, Options, make_garbage_collection_rare, run_import
from sigdir.pipeline.source import (
    BLOCK_BYTES,
    BYTE_ORDER_MARK,
    ENDS_INSIDE,
    HEAD_BYTES,
    STDIN,
    Sections,
    Source,
    count_lines,
)
from sigdir.pipeline.state import ImportState
from sigdir.signatures.collections import Collection
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.publish.spill import Spill
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.files import RunFolder, own_temporary_folder, run_name
from sigdir.warehouse.table.parallel import for_each, result_of
from sigdir.warehouse.table.parquet import rejects_in
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import REQUESTS, store_of
from sigdir.warehouse.table.stores import StoreError, is_url, open_store
from sigdir.warehouse.transfer.working_copy import IN_STORE, remove_run

# The files of one run, as its driver and its tasks see them.
#
# By default all processes see the run's folder under one path. Where the warehouse is in a store and the tasks are on other
# machines, the store carries the files, by the names that they have below the warehouse's folder. A task then works in a
# folder of its own machine, fetches what it reads, shares what it has made, and removes the folder.
#
# Pickles hold these names in place of paths. Each carries an HMAC that only the driver and the tasks can compute:
# unpickling runs code, and others may write into the bucket.


_CODE_BYTES = 32


@dataclass(frozen=True)
class RunFiles:
    """``folder`` is the run's in this process, ``root`` the warehouse's. It can be pickled."""

    folder: Path
    root: Path
    name: str
    """The name of the run's folder below the warehouse's."""
    secret: bytes = field(repr=False)
    url: str = ""
    """The store that carries the files; empty where all processes see them."""

    @contextmanager
    def here(self) -> Iterator[RunFiles]:
        """The files as a task sees them."""
        if not self.url:
            yield self
            return
        with RunFolder(own_temporary_folder("sigdir-tasks")) as own:
            (own.path / self.name).mkdir(parents=True)
            yield replace(self, folder=own.path / self.name, root=own.path)

    def save(self, name: str, value: Any) -> None:
        """Put a value that other processes of the run load; ``name`` is a file's below the run's folder."""
        content = io.BytesIO()
        _Pickler(content, self).dump(value)
        path = self.folder / name
        path.write_bytes(self._code(name, content.getvalue()) + content.getvalue())
        self.share([path])

    def load(self, name: str) -> Any:
        """What was put under this name. Raises StoreError for what another run has written."""
        path = self.folder / name
        self.fetch([path])
        raw = path.read_bytes()
        code, content = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(name, content)):
            raise StoreError(f"{path}: not what this import has written")
        return _Unpickler(io.BytesIO(content), self).load()

    def fetch(self, files: Iterable[Path]) -> None:
        """Have files at hand that other processes of the run made."""
        missing = [file for file in dict.fromkeys(files) if not file.exists()] if self.url else []
        for folder in {file.parent for file in missing}:
            folder.mkdir(parents=True, exist_ok=True)
        for_each(lambda file: open_store(self.url).download(self.name_of(file) or "", file), missing, REQUESTS)

    def share(self, files: Iterable[Path]) -> None:
        """Let other processes of the run have these files."""
        shared = list(files) if self.url else []
        for_each(lambda file: open_store(self.url).put(self.name_of(file) or "", file), shared, REQUESTS)

    def saved(self, folder: str, name: str) -> list[str]:
        """What has this name in a folder of the folder ``folder``."""
        if self.url:
            found = [PurePath(each.name) for each in open_store(self.url).list(f"{self.name}/{folder}")]
            return [str(path.relative_to(self.name)) for path in found if path.name == name]
        return [str(path.relative_to(self.folder)) for path in (self.folder / folder).glob(f"*/{name}")]

    def name_of(self, path: PurePath) -> str | None:
        """The name of a file of the run or the warehouse; None for any other."""
        for name, folder in ((self.name, self.folder), ("", self.root)):
            if path.is_relative_to(folder):
                return PurePath(name, path.relative_to(folder)).as_posix()
        return None

    def path_of(self, name: str) -> Path:
        """The file with this name, in this process."""
        path = PurePath(name)
        return self.folder / path.relative_to(self.name) if path.is_relative_to(self.name) else self.root / path

    def _code(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self.secret, name.encode() + b"\0" + content, "sha256")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, files: RunFiles) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._files = files

    def persistent_id(self, value: object) -> str | None:
        return self._files.name_of(value) if isinstance(value, PurePath) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, files: RunFiles) -> None:
        super().__init__(file)
        self._files = files

    def persistent_load(self, name: str) -> Path:
        return self._files.path_of(name)


TASKS = "read"
"""The folder of the tasks in the run's folder."""

# An engine inside of this process (Sail) starts all tasks at once. Each holds blocks of an input in memory.
_PERMITS = BoundedSemaphore(os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work. It may be done again, and elsewhere."""

    work: Callable[[Path], Any]
    """Does the work, with files in the given folder. It and its result can be pickled."""
    units: int
    """How much work it is, in the units of the progress."""


def task_file(number: int) -> str:
    return f"{TASKS}/{number:06d}.task"


def run_task(run_files: RunFiles, number: int) -> str:
    """Do a task; returns the name of the file with its result."""
    with _PERMITS, run_files.here() as files:
        make_garbage_collection_rare()
        task: Task = files.load(task_file(number))
        attempt = f"{TASKS}/{number:06d}-{uuid.uuid4().hex[:8]}"
        folder = files.folder / attempt
        folder.mkdir()
        failpoints.reach("task_begun")
        result = task.work(folder)
        files.share(file for file in folder.iterdir() if file.is_file())
        files.save(f"{attempt}/result", result)
        failpoints.reach("task_written")
        return f"{attempt}/result"


def done(run_files: RunFiles) -> set[int]:
    """The numbers of the tasks that are done."""
    return {int(Path(name).parent.name.partition("-")[0]) for name in run_files.saved(TASKS, "result")}


SPLIT_BLOCKS = 16
"""The blocks of a split: 32 MiB, about a million texts."""
SMALL_BYTES = HEAD_BYTES
"""An input of at most so many bytes is read by the driver."""

RunTasks = Callable[[Sequence[Task]], list[Any]]
"""Runs tasks, and gives their results in their order."""


def read(run: ImportRun, sources: list[Source], run_tasks: RunTasks, run_files: RunFiles) -> None:
    """Read all inputs into ``run.state``, by tasks where they can."""
    plan = [(source, _tasks(run, source)) for source in sources]
    results = iter(run_tasks([task for _, tasks in plan for task in tasks]))
    with InputReader(run) as reader:
        for source, tasks in plan:
            parts = [next(results) for _ in tasks]
            if _are_sound(parts):
                _add(run, run_files, parts)
            else:
                reader.read([source])
        reader.read_kept()


def _tasks(run: ImportRun, source: Source) -> list[Task]:
    """A task for each split, or one for the whole input; none for what the driver reads."""
    if source.size <= SMALL_BYTES and source.path != STDIN:
        return []
    ref, options = InputRef.of(source), replace(run.options, paths=[], threads=1, warehouse=run.paths.root)
    splits = _splits(run, ref)
    return [Task(partial(read_input, split, options), ref.size // len(splits)) for split in splits]


def _splits(run: ImportRun, ref: InputRef) -> list[InputRef]:
    """The splits of a large plain file of lines; another is whole, and its reader finds out what is wrong with it."""
    blocks = -(-ref.size // BLOCK_BYTES)
    if blocks <= SPLIT_BLOCKS or ref.names is not None:
        return [ref]
    opened = Split(ref, range(0))
    opened.columns = run.options.columns
    try:
        with opened.open(lambda _: None):
            format = by_name(run.options.format) if run.options.format else detect(opened)
            if opened.packed or format is None or format.is_by_line is None or not format.is_by_line(opened):
                return [ref]
    except BadInput:
        return [ref]
    firsts = range(0, blocks, SPLIT_BLOCKS)
    return [replace(ref, blocks=range(first, min(first + SPLIT_BLOCKS, blocks))) for first in firsts]


# What tasks get.


@dataclass(frozen=True, slots=True)
class InputRef:
    """An input on disk or in a store, as ``find`` found it. It can be pickled."""

    path: str
    """Absolute, because tasks run in other folders."""
    name: str
    """What messages call it: the path as given."""
    explicit: bool
    size: int
    below: str
    names: tuple[str, ...] | None
    """The files' names of a folder of hash-named files."""
    blocks: range | None = None
    """Those of a split; None for the whole input."""

    @classmethod
    def of(cls, source: Source) -> InputRef:
        if source.path == STDIN:
            raise BadInput(source.name, "the tasks of an engine cannot read it; write it to a file")
        path = source.path if is_url(source.path) else os.path.join(os.getcwd(), source.path)
        names = None if source.file_names is None else tuple(source.file_names)
        return cls(path, source.name, source.explicit, source.size, source.below, names)

    def source(self, unread: UnreadInputs) -> Source:
        if self.blocks is not None:
            return Split(self, self.blocks)
        if self.names is not None:
            return folder_at(self.path, self.names, self.size, unread, self.below, self.name)
        return input_at(self.path, self.explicit, self.name, self.size, self.below)

    def read(self, start: int, length: int) -> bytes:
        """Some of the stored bytes; of an object only these are fetched. Raises OSError."""
        if is_url(self.path):
            return read_object(self.path, start, min(length, self.size - start))
        with Path(self.path).open("rb") as file:
            file.seek(start)
            return file.read(length)


class Split(Source):
    """The lines of a plain file that begin in some of its blocks, in the blocks of the whole file.

    Its head is the file's, by which its format is known.
    """

    def __init__(self, ref: InputRef, blocks: range) -> None:
        super().__init__(
            ref.path, ref.explicit, ref.name, ref.size, lambda: BytesIO(ref.read(0, BLOCK_BYTES)), ref.below
        )
        self._ref, self._blocks = ref, blocks
        self.lines_from = 1 if blocks.start == 0 else 2  # what it is in the file the driver knows
        self.line_breaks = 0
        """The line breaks of ``chunks``."""

    def finish(self) -> tuple[int, str]:
        """Size and sha256 of the whole file, which the first split reads for them; nothing for the others."""
        if self._blocks.start:
            return 0, ""
        whole = replace(self._ref, blocks=None).source(UnreadInputs(ImportReport()))
        with whole.open(lambda _: None):
            return whole.finish()

    def chunks(self) -> Iterator[bytes]:
        try:
            mark = len(BYTE_ORDER_MARK) if self._ref.read(0, len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
            at, block = self._cut(mark, self._blocks.start)
            end, _ = self._cut(mark, self._blocks.stop)
            while at < end and (chunk := self._ref.read(at, min(mark + (block + 1) * BLOCK_BYTES, end) - at)):
                at, block = at + len(chunk), block + 1
                self.line_breaks += count_lines(chunk)
                yield chunk
        except OSError as error:
            raise BadInput(self.name, error.strerror or str(error)) from error

    def _cut(self, mark: int, block: int) -> tuple[int, int]:
        """Where the line begins that goes on into a block, and the block's number. In front of a block that is all one
        line there is no cut; the next one counts.
        """
        while block and (at := mark + block * BLOCK_BYTES) < self.size:
            if found := self._ref.read(at - BLOCK_BYTES, BLOCK_BYTES).rfind(b"\n") + 1:
                return at - BLOCK_BYTES + found, block
            block += 1
        return self.size if block else mark, block


# What tasks do.


@dataclass(frozen=True, slots=True)
class ReadPart:
    """What one task read: files in its folder, and the counts of the inputs, numbered from 0. It can be pickled."""

    files: list[FileReport]
    spills: dict[Collection, Spill]
    """Of the collections that have rows."""
    input_of_batch: dict[Collection, list[int]]
    rejects: Path | None
    skipped: list[Unread]
    faults: list[Unread]
    lines: int
    """The line breaks of a split."""

    def paths(self) -> list[Path]:
        """The files to be read."""
        rejects = [self.rejects] if self.rejects is not None else []
        return [path for spill in self.spills.values() for path in spill.files()] + rejects


class _NeedsOthers(PipelineError):
    """An input cannot be read without others."""


class _AloneReader(InputReader):
    def multi_source(self, format: Format, make: Callable[[Import], MultiSourceReader]) -> MultiSourceReader:
        raise _NeedsOthers(format.name)


def read_input(ref: InputRef, options: Options, folder: Path) -> ReadPart | None:
    """Read an input or a split as the local import does; None for what the driver has to read."""
    report = ImportReport()
    unread = UnreadInputs(report, options.strict)
    source = ref.source(unread)
    with ImportState(folder, report) as state:
        run = ImportRun(options, Paths(options.warehouse), Reporter(), report, state, unread, "")
        try:
            with _AloneReader(run) as reader:
                reader.read([source])
        except (_NeedsOthers, BadInput):
            return None
        state.finish_reading()
    for file in report.files:  # the places of rejects are resolved
        file.file_names, file.sections = None, Sections()
    spills = {collection: spill for collection, spill in state.spills.items() if spill.rows}
    return ReadPart(
        report.files, spills, state.input_of_batch, state.rejects_path, report.skipped, report.faults,
        source.line_breaks if isinstance(source, Split) else 0,
    )  # fmt: skip


# From results to the state of the import.


def _are_sound(parts: list[Any]) -> bool:
    """Whether tasks have read an input, and its splits are what they would be in a reading of the whole file."""
    return bool(parts) and None not in parts and (len(parts) == 1 or all(map(_is_sound, parts)))


def _is_sound(split: ReadPart) -> bool:
    return len(split.files) == 1 and not split.faults and ENDS_INSIDE not in split.files[0].warnings


def _add(run: ImportRun, run_files: RunFiles, parts: list[ReadPart]) -> None:
    """Add what the tasks of an input have read."""
    first, state = parts[0], run.state
    numbers = [state.add_file(file) for file in first.files]
    lines = 0
    for part in parts:
        if part is not first:
            first.files[0].add(part.files[0])
        run_files.fetch(part.paths())
        for collection, spill in part.spills.items():
            state.add_rows(spill, (numbers[number] for number in part.input_of_batch[collection]))
        for table in rejects_in(part.rejects) if part.rejects is not None else ():
            of_file = pc.add(table["line"], lines - (part is not first))
            state.add_rejects(table.set_column(table.column_names.index("line"), "line", of_file))
        for path in part.paths():
            path.unlink()
        run.report.skipped += part.skipped
        run.report.faults += part.faults
        run.progress.rows(sum(file.read for file in part.files))
        lines += part.lines


_POLL_SECONDS, _STORE_POLL_SECONDS = 0.2, 2.0
_Batches = Iterator[pa.RecordBatch]


def run(
    session: Any, options: Options, progress: Reporter | None = None, shares_disk: bool | None = None
) -> ImportReport:
    """Carry out one import on a Spark session, classic or Connect. Raises as ``run_import``, and EngineFailed.

    ``shares_disk`` says whether the executors see the folder of the warehouse's working copy, if it is in a store; by
    default those of a classic session with a local master do.
    """
    shares_disk = _has_local_master(session) if shares_disk is None else shares_disk
    return run_import(options, progress or Reporter(), partial(read_inputs, session, shares_disk))


def _has_local_master(session: Any) -> bool:
    try:
        return is_local(session.sparkContext.master)
    except Exception:  # noqa: BLE001 - a session of Spark Connect has no context; each engine has errors of its own
        return False


def read_inputs(session: Any, shares_disk: bool, run: ImportRun, sources: list[Source]) -> None:
    """Read all inputs into ``run.state``, and remove what the run has in a store."""
    name = run.paths.name(run.paths.tmp / (run.name or run_name()))  # a dry run has no name
    store = None if shares_disk else store_of(run.paths)
    if store is not None:
        (run.state.folder / IN_STORE).touch()
    files = RunFiles(run.state.folder, run.paths.root, name, token_bytes(), store.url if store is not None else "")
    try:
        read(run, sources, partial(_run_tasks, session, files, run.progress), files)
    finally:
        if store is not None:
            remove_run(open_store(store.url), name)


def _run_tasks(session: Any, files: RunFiles, progress: Reporter, work: Sequence[Task]) -> list[Any]:
    """Do the tasks; their results, in their order."""
    (files.folder / TASKS).mkdir()
    for number, task in enumerate(work):
        files.save(task_file(number), task)
    if not work:
        return []
    numbers = session.range(0, len(work), 1, len(work))  # one in each partition
    rows = collected(numbers.mapInArrow(_runner(files), "number long, result string"))
    reported: set[int] = set()
    while len(reported) < len(work) and not rows.done():
        with waiting():
            wait([rows], _STORE_POLL_SECONDS if files.url else _POLL_SECONDS)
        for number in done(files) - reported:
            reported.add(number)
            progress.advance(work[number].units)
    found = result_of(rows)
    results = dict(zip(found["number"].to_pylist(), found["result"].to_pylist(), strict=True))
    return [files.load(results[number]) for number in range(len(work))]


def _runner(files: RunFiles) -> Callable[[_Batches], _Batches]:
    """What the engine calls: a function in a function, because Spark takes nothing else."""

    def do(batches: _Batches) -> _Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([[number], [run_task(files, number)]], names=["number", "result"])

    return do


# Frames of an engine with Spark's API. Each engine has errors of its own.


class EngineFailed(PipelineError):
    """The engine cannot be reached, or a task of it failed."""


def is_local(master: str | None) -> bool:
    """Whether all processes of a master are on this machine: Sail in this process, ``local[N]`` and ``local-cluster[...]``."""
    return master is None or master.startswith("local")


def collected(frame: Any) -> Future[pa.Table]:
    """The rows of a frame, collected in a thread, which does not keep an interrupted import from ending.

    Their result raises EngineFailed with the sentence that says most.
    """
    rows: Future[pa.Table] = Future()

    def collect() -> None:
        try:
            with quietly():
                rows.set_result(frame.toArrow())
        except Exception as error:  # noqa: BLE001 - each engine has errors of its own
            failure = EngineFailed(f"the engine failed: {reason_of(error)}")
            failure.__cause__ = error
            rows.set_exception(failure)

    Thread(target=collect, daemon=True).start()
    return rows


_GRPC_DETAILS = "details = "
"""In front of what an error of gRPC says, in a dump of its fields."""


def reason_of(error: Exception) -> str:
    """The last line of an error that names an exception: engines put stack traces of Java around those of Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.", "java."))]
    named = named or [line.removeprefix(_GRPC_DETAILS).strip('"') for line in lines if line.startswith(_GRPC_DETAILS)]
    return one_line((named or lines or [type(error).__name__])[-1 if named else 0])[:500]


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of pyspark that it does not know pandas 3, which is not used here, and that it gives a server
    up, which the error says too.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
        yield
