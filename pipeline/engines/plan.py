"""How an import's inputs become tasks, and how what the tasks read becomes the state of one import.

A large file whose lines or rows each stand for themselves is cut into pieces. Everything else is read as a whole, small
inputs many in a task. Inputs that need others are read in a second stage, as the local import reads them last: Solidity
sources that import each other share a task, all Vyper sources are one task, all tables of Sourcify another.

A task assumes that its piece does not begin inside a comment or a quoted field. If a piece ends inside a comment or a
quoted field, or has a fault, this assumption is wrong, and the whole file is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sigdir.pipeline.engines.tasks import DigestFile, InputRef, ReadInputs, ReadResult, Task, absolute
from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.registry import by_name, detect
from sigdir.pipeline.formats.solidity import Targets, groups
from sigdir.pipeline.report import FileReport
from sigdir.pipeline.run import ImportRun, Options, Scope
from sigdir.pipeline.source import BLOCK_BYTES, PIECE_BLOCKS, STDIN, Source

_MOST_INPUTS = 1000
"""The most inputs of one task."""

RunTasks = Callable[[str, Sequence[Task]], list[Any]]
"""Runs the tasks of a stage, and gives their results in their order."""


@dataclass
class _Inputs:
    """Whole inputs of one task."""

    refs: list[InputRef] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True)
class _Deferred:
    """An input that a later task reads, together with those that it refers to."""

    number: int
    found_in: Sequence[InputRef]
    """The inputs of the task that met it. It is one of them, or a member of one."""
    references: Any


@dataclass(frozen=True)
class _DeferredTask:
    """Deferred inputs of one task."""

    inputs: Sequence[_Deferred]
    targets: Targets | None = None


@dataclass(frozen=True)
class _CutFile:
    """A file that is read in pieces."""

    ref: InputRef
    format: str
    pieces: list[range]


def read(run: ImportRun, sources: list[Source], run_tasks: RunTasks) -> None:
    """Read all inputs into ``run.state`` by tasks."""
    plan = [(item, _tasks(run, item)) for item in _planned(run, sources)]
    done = iter(run_tasks("read", [task for _, tasks in plan for task in tasks]))
    taken = [(item, [next(done) for _ in tasks]) for item, tasks in plan]
    again = [item.ref for item, found in taken if isinstance(item, _CutFile) and not _are_sound(found)]
    reread = iter(run_tasks("read-whole", [_whole(run, [ref]) for ref in again]))
    deferred: list[_Deferred] = []
    for item, found in taken:
        if isinstance(item, _CutFile) and _are_sound(found):
            _add_cut_file(run, item, found)
        else:
            refs = item.refs if isinstance(item, _Inputs) else [item.ref]
            deferred += _add_inputs(run, refs, next(reread) if isinstance(item, _CutFile) else found[0])
    if deferred:
        _add_deferred(run, _deferred_tasks(run, deferred), run_tasks)


# From inputs to tasks.


def _planned(run: ImportRun, sources: list[Source]) -> Iterator[_Inputs | _CutFile]:
    piece_bytes = PIECE_BLOCKS * BLOCK_BYTES
    together = _Inputs()
    for source in sources:
        if source.path == STDIN:
            raise BadInput(source.name, "the tasks of an engine cannot read it; write it to a file")
        cut = _cut(run, source) if source.size > piece_bytes else None
        is_full = together.bytes + source.size > piece_bytes or len(together.refs) == _MOST_INPUTS
        if together.refs and (is_full or cut is not None):
            yield together
            together = _Inputs()
        if cut is not None:
            yield cut
        else:
            together.refs.append(InputRef.of(source))
            together.bytes += source.size
    if together.refs:
        yield together


def _cut(run: ImportRun, source: Source) -> _CutFile | None:
    """The pieces of a large file; None if it is read as a whole, which also finds out what is wrong with it."""
    ref = InputRef.of(source)
    if ref.names is not None:
        return None
    opened = ref.piece(range(0))  # of an object only what is asked for is fetched
    opened.columns = run.options.columns
    try:
        with opened.open(lambda _: None):
            if opened.packed:
                return None
            format = by_name(run.options.format) if run.options.format else detect(opened)
            pieces = format.pieces(opened) if format is not None and format.pieces is not None else []
    except BadInput:
        return None
    return _CutFile(ref, format.name, pieces) if format is not None and len(pieces) > 1 else None


def _tasks(run: ImportRun, item: _Inputs | _CutFile) -> list[Task]:
    if isinstance(item, _Inputs):
        return [_whole(run, item.refs)]
    size = item.ref.size // len(item.pieces)
    pieces: list[Task] = [ReadInputs((item.ref,), _options(run), piece=piece, units=size) for piece in item.pieces]
    return [DigestFile(item.ref), *pieces]


def _whole(run: ImportRun, refs: Sequence[InputRef]) -> ReadInputs:
    return ReadInputs(tuple(refs), _options(run), units=sum(ref.size for ref in refs))


def _options(run: ImportRun) -> Options:
    return replace(run.options, paths=[absolute(path) for path in run.options.paths])


# From results to the state of the import.


def _are_sound(results: list[Any]) -> bool:
    """Whether the pieces of a file are what a reading of the whole file gives. The first result is the digest's."""
    pieces: list[ReadResult] = results[1:]
    whole = [not (piece.error or piece.faults or piece.skipped or piece.ends_inside) for piece in pieces]
    return all(whole)


def _add_cut_file(run: ImportRun, cut: _CutFile, results: list[Any]) -> None:
    (size, sha256), *pieces = results
    source, label = cut.ref.source(run.unread), run.options.source
    report = FileReport(
        source.name, cut.format, size, sha256, source=printable(label) if label else source.label, below=source.below
    )
    number, line = run.state.add_file(report), 1
    for piece in pieces:
        [counted] = piece.part.files
        report.read += counted.read
        report.accepted += counted.accepted
        report.reasons += counted.reasons
        report.warnings = [*report.warnings, *counted.warnings]
        run.state.add_part(piece.part, [number], line)
        run.progress.rows(counted.read)
        line += piece.lines


def _add_inputs(run: ImportRun, refs: Sequence[InputRef], result: ReadResult) -> list[_Deferred]:
    """Add what a task read of whole inputs; gives those that were deferred."""
    part = result.checked()
    numbers = [run.state.add_file(file) for file in part.files]
    run.state.add_part(part, numbers)
    run.report.skipped += result.skipped
    run.report.faults += result.faults
    run.progress.rows(sum(file.read for file in part.files))
    return [_Deferred(numbers[at], refs, references) for at, references in part.deferred.items()]


# Inputs that need others.


def _deferred_tasks(run: ImportRun, deferred: Sequence[_Deferred]) -> list[_DeferredTask]:
    """The deferred inputs by tasks, in the order in which the local import reads them: format by format."""
    found: dict[str, list[_Deferred]] = {file.format: [] for file in run.state.files()}
    for one in deferred:
        found[run.state.file(one.number).format].append(one)
    tasks: list[_DeferredTask] = []
    for name, inputs in found.items():
        format = by_name(name)
        if format is not None and format.references is not None:
            tasks += _by_groups(run, inputs)
        elif inputs:
            tasks.append(_DeferredTask(inputs))
    return tasks


def _by_groups(run: ImportRun, inputs: Sequence[_Deferred]) -> Iterator[_DeferredTask]:
    """Whole groups of inputs that refer to each other, small ones together."""
    first, size = 0, 0
    targets: dict[tuple[str, str], str | None] = {}
    for group in groups([one.references for one in inputs], run.options.paths):
        is_full = size + group.size > PIECE_BLOCKS * BLOCK_BYTES or group.last - first > _MOST_INPUTS
        if group.first > first and is_full:
            yield _DeferredTask(inputs[first : group.first], targets)
            first, size, targets = group.first, 0, {}
        size += group.size
        targets |= group.targets
    if inputs:
        yield _DeferredTask(inputs[first:], targets)


def _add_deferred(run: ImportRun, tasks: Sequence[_DeferredTask], run_tasks: RunTasks) -> None:
    """Read the deferred inputs, and put their reports where they were met."""
    results: list[ReadResult] = run_tasks("read-together", [_read_inputs(run, task) for task in tasks])
    for task, result in zip(tasks, results, strict=True):
        part = result.checked()
        numbers = [one.number for one in task.inputs]
        if len(part.files) != len(numbers):
            raise BadInput(run.state.file(numbers[0]).path, "it or another input was changed while it was read")
        for number, file in zip(numbers, part.files, strict=True):
            run.state.replace_file(number, file)
        run.state.add_part(part, numbers)
        names = _names(run, task)
        run.report.faults += [fault for fault in result.faults if fault.path in names]
        run.progress.rows(sum(file.read for file in part.files))


def _names(run: ImportRun, task: _DeferredTask) -> frozenset[str]:
    return frozenset(run.state.file(one.number).path for one in task.inputs)


def _read_inputs(run: ImportRun, task: _DeferredTask) -> ReadInputs:
    """Names the inputs and the archives that hold them, each as often and in the order as it was met."""
    names = _names(run, task)
    holders = {name[:at] for name in names for at, mark in enumerate(name) if mark in ":/"}
    items = {id(one.found_in): one.found_in for one in task.inputs}
    refs = [ref for item in items.values() for ref in item if ref.name in names | holders]
    return ReadInputs(tuple(refs), _options(run), Scope.TOGETHER, names, task.targets)
