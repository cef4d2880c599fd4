"""How an import's inputs become tasks, and how what the tasks read becomes the state of one import.

A large file whose lines or rows each stand for themselves is cut into pieces. Everything else is read as a whole, small
inputs many in a task. What needs the other inputs (Solidity, Vyper, Sourcify's tables) is noted by the first tasks and
read by one last task, as the local import reads it after all others.

A piece begins where the one before it ends, and is read as if nothing in front of it could change its meaning. If a
piece ends inside a comment or a quoted field, or has a fault, this assumption is wrong, and the whole file is read again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sigdir.pipeline.engines.tasks import DigestFile, InputRef, ReadInputs, ReadResult, Task
from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.registry import by_name, detect
from sigdir.pipeline.report import FileReport
from sigdir.pipeline.run import ImportRun, Scope
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
    deferred: list[tuple[InputRef, list[int]]] = []
    for item, found in taken:
        if isinstance(item, _CutFile) and _are_sound(found):
            _add_cut_file(run, item, found)
        else:
            refs = item.refs if isinstance(item, _Inputs) else [item.ref]
            numbers = _add_inputs(run, next(reread) if isinstance(item, _CutFile) else found[0])
            if numbers:
                deferred += [(ref, []) for ref in refs]
                deferred[-1][1].extend(numbers)
    if deferred:
        _add_deferred(run, deferred, run_tasks)


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
    pieces: list[Task] = [ReadInputs((item.ref,), run.options, piece=piece, units=size) for piece in item.pieces]
    return [DigestFile(item.ref), *pieces]


def _whole(run: ImportRun, refs: Sequence[InputRef]) -> ReadInputs:
    return ReadInputs(tuple(refs), run.options, units=sum(ref.size for ref in refs))


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


def _add_inputs(run: ImportRun, result: ReadResult) -> list[int]:
    """Add what a task read of whole inputs; gives the numbers of the inputs that were deferred."""
    part = result.checked()
    numbers = [run.state.add_file(file) for file in part.files]
    run.state.add_part(part, numbers)
    run.report.skipped += result.skipped
    run.report.faults += result.faults
    run.progress.rows(sum(file.read for file in part.files))
    return [numbers[at] for at in part.deferred]


def _add_deferred(run: ImportRun, deferred: list[tuple[InputRef, list[int]]], run_tasks: RunTasks) -> None:
    """Read the deferred inputs together, and put their reports where they were met."""
    numbers = [number for _, found in deferred for number in found]
    names = frozenset(run.state.file(number).path for number in numbers)
    refs = tuple(dict.fromkeys(ref for ref, _ in deferred))
    task = ReadInputs(refs, run.options, Scope.TOGETHER, names)
    [result] = run_tasks("read-together", [task])
    part = result.checked()
    for number, file in zip(numbers, part.files, strict=True):
        run.state.replace_file(number, file)
    run.state.add_part(part, numbers)
    run.report.faults += [fault for fault in result.faults if fault.path in names]
    run.progress.rows(sum(file.read for file in part.files))
