"""The inputs of an import as tasks: a file each, or splits of a large file of lines.

A split is read alone, and checked afterwards: if it ends inside a comment or a quoted field, the split after it was not
what it seemed. What a task cannot read by itself, the driver reads as a local import does: such a file, inputs that
refer to others, inputs that end the import, and small files, for which a task would take longer than the reading.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from sigdir.pipeline.engines.tasks import RunFiles, Task
from sigdir.pipeline.errors import BadInput, PipelineError
from sigdir.pipeline.formats.registry import Format, Import, MultiSourceReader, by_name, detect
from sigdir.pipeline.inputs import folder_at, input_at, read_object
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import FileReport, ImportReport, Unread, UnreadInputs
from sigdir.pipeline.run import ImportRun, InputReader, Options
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
from sigdir.warehouse.publish.spill import Spill
from sigdir.warehouse.table.parquet import rejects_in
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.stores import is_url

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
    input_of_batch: dict[Collection, list[int]]
    rejects: Path | None
    skipped: list[Unread]
    faults: list[Unread]
    lines: int
    """The line breaks of a split."""

    def paths(self) -> list[Path]:
        """The files to be read."""
        rejects = [self.rejects] if self.rejects is not None else []
        return [path for spill in self.spills.values() if spill.rows for path in spill.files()] + rejects


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
    return ReadPart(
        report.files, state.spills, state.input_of_batch, state.rejects_path, report.skipped, report.faults,
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
