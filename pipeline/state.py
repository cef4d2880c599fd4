"""What an import has read so far: accepted rows in spill files, rejects in their file, counts per input."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.report import Example, FileReport, ImportReport
from sigdir.pipeline.sections import Sections
from sigdir.pipeline.source import Source
from sigdir.signatures.arrow import numbers, strings
from sigdir.signatures.canonicalise import BatchResult, Rejected
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.grammar import REASONS
from sigdir.warehouse.batch import Batch
from sigdir.warehouse.evidence.spill import Input, Statement, TextIds
from sigdir.warehouse.rejects import RejectsWriter, rejects_in
from sigdir.warehouse.schema import REJECT_SCHEMA
from sigdir.warehouse.spill import JoinedSpills, Spill, SpilledRows

_EXAMPLES_PER_REASON = 3


@dataclass(frozen=True, slots=True)
class ReadPart:
    """What one task read: files in its folder, and the counts of the inputs, numbered from 0. It can be pickled."""

    files: list[FileReport]
    deferred: dict[int, object]
    """The inputs that are read together with others later, and what they refer to."""
    spills: dict[Collection, Spill]
    segments: dict[Collection, list[tuple[int, int]]]
    rejects: Path | None
    examples: list[Example]

    def read_by_driver(self) -> Iterator[Path]:
        """The files that ``ImportState`` and a publish read: all but texts and keys."""
        if self.rejects is not None:
            yield self.rejects
        for spill in self.spills.values():
            yield from spill.sightings.files()


class ImportState(AbstractContextManager["ImportState"]):
    """Fill it with ``add_input`` and ``add_result``, or with ``add_file`` and ``add_part``, then call ``finish_reading``,
    then ``set_new_rows``.
    """

    def __init__(self, folder: Path, report: ImportReport) -> None:
        self.folder = folder
        """Holds the spill files and the rejects file."""
        self.report = report
        self.rejects_digest: str | None = None
        """Equal for two imports that rejected the same rows of the same inputs; None without rejects."""
        self.spills: dict[Collection, SpilledRows] = {}
        """The accepted rows, once everything is read."""
        self.deferred: dict[int, object] = {}
        """The numbers of the inputs that are read together with others later, and what they refer to."""
        self._spills: dict[Collection, Spill] = {}
        self._parts: list[ReadPart] = []
        self._rejects = RejectsWriter(folder / "rejects.parquet")  # creates the file with the first reject
        self._open_files = ExitStack()
        self._inputs: dict[int, FileReport] = {}
        self._text_ids: dict[Collection, TextIds] = {}
        self._compared = 0
        self._segments: dict[Collection, list[tuple[int, int]]] = {c: [] for c in COLLECTIONS}
        """For each result the number of its input and its accepted rows."""
        self._of_batch: dict[Collection, list[int]] = {c: [] for c in COLLECTIONS}
        """For each batch of a spill the number of its input."""
        self._is_new: dict[Collection, npt.NDArray[np.bool_]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # closes what is open if opening another file fails
            stack.callback(self._rejects.close)
            for collection in COLLECTIONS:
                self._spills[collection] = stack.enter_context(closing(Spill(self.folder, collection)))
            self._open_files = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open_files.close()

    def add_input(self, source: Source, format: str, label: str | None = None) -> FileReport:
        """Number an input. Its candidates carry the number. Without a ``label`` its source is the file itself."""
        source.number = len(self._inputs)
        report = FileReport(
            source.name, format, warnings=source.warnings, file_names=source.file_names, sections=source.sections,
            source=label or source.label, below=source.below,
            bytecode=source.bytecode,
        )  # fmt: skip
        self._inputs[source.number] = report
        return report

    def add_file(self, report: FileReport) -> int:
        """Number an input that tasks read; its report has counts already, or gets them with ``add_part``."""
        number = len(self._inputs)
        self._inputs[number] = report
        return number

    def files(self) -> Iterable[FileReport]:
        """The reports of all inputs, in their order."""
        return self._inputs.values()

    def file(self, number: int) -> FileReport:
        """The report of an input."""
        return self._inputs[number]

    def replace_file(self, number: int, report: FileReport) -> None:
        """Take the report of an input that was deferred."""
        self._inputs[number] = report

    def add_part(self, part: ReadPart, numbers: Sequence[int], first_line: int = 1) -> None:
        """Add what a task read. ``numbers`` has the number here of each of its inputs, ``first_line`` the number of
        the line that the task counted as the first.
        """
        self._parts.append(part)
        for collection, segments in part.segments.items():
            for number, rows in segments:
                self._segments[collection].append((numbers[number], rows))
                if rows:
                    self._of_batch[collection].append(numbers[number])
        for table in rejects_in(part.rejects) if part.rejects is not None else ():
            line = table.schema.get_field_index("line")
            self._rejects.append(table.set_column(line, "line", pc.add(table["line"], first_line - 1)))
        for example in part.examples:
            if sum(kept.reason == example.reason for kept in self.report.examples) < _EXAMPLES_PER_REASON:
                self.report.examples.append(replace(example, line=example.line + first_line - 1))

    def as_part(self) -> ReadPart:
        """What was read, for the state of the whole import. Call it after ``finish_reading``."""
        for file in self._inputs.values():  # the places of rejects are resolved
            file.file_names, file.sections = None, Sections()
        return ReadPart(
            list(self._inputs.values()), self.deferred, self._spills, self._segments, self.rejects_path,
            self.report.examples,
        )  # fmt: skip

    def add_result(self, result: BatchResult) -> None:
        """Spill what was accepted, write what was rejected, count both."""
        file = self._inputs[result.file]
        file.read += result.read
        file.variants_left_out += result.variants_left_out
        for collection, accepted in result.accepted.items():
            rows = len(accepted.text)
            file.accepted[collection] += rows
            self._spills[collection].append(accepted)
            self._segments[collection].append((result.file, rows))
            if rows:
                self._of_batch[collection].append(result.file)
        if len(result.rejected.text):
            self._count_reasons(file, result.rejected)
            self._rejects.append(_reject_table(file, result.rejected))

    def _count_reasons(self, file: FileReport, rejected: Rejected) -> None:
        counts = np.bincount(rejected.reasons, minlength=len(REASONS))
        for code in np.flatnonzero(counts).tolist():
            file.reasons[REASONS[code]] += int(counts[code])
            self._add_examples(file, rejected, code)

    def _add_examples(self, file: FileReport, rejected: Rejected, code: int) -> None:
        """Keep the first rejects of a reason for the report."""
        reason = REASONS[code]
        kept = sum(example.reason == reason for example in self.report.examples)
        for row in np.flatnonzero(rejected.reasons == code)[: _EXAMPLES_PER_REASON - kept].tolist():
            text, position = rejected.text[row].as_py()[:200], int(rejected.columns[row])
            self.report.examples.append(Example(reason, text, position, *file.place(int(rejected.lines[row]))))

    def finish_reading(self) -> None:
        """Complete the spill files and the rejects file; from here on they are read."""
        for collection, spill in self._spills.items():
            spill.finish()
            self.spills[collection] = spill
            if self._parts:
                self.spills[collection] = JoinedSpills.of(collection, [part.spills[collection] for part in self._parts])
        self._make_text_ids()
        self.rejects_digest = self._rejects.finish()
        self.report.files = list(self._inputs.values())

    def forget_ids(self) -> None:
        """Compare anew: the warehouse has another version than the one that the rows were compared with."""
        self._compared += 1
        self._make_text_ids()

    def _make_text_ids(self) -> None:
        for collection, spill in self.spills.items():
            self._text_ids[collection] = TextIds(self.folder / f"{collection}.{self._compared}.ids", spill.rows)

    def set_new_rows(self, is_new: dict[Collection, npt.NDArray[np.bool_]]) -> None:
        """Take a flag for each spilled row: whether the warehouse lacks it. A publisher may clear flags later."""
        self._is_new = is_new
        self.count_imported()

    def count_imported(self) -> None:
        """Count the new rows of each input."""
        for file in self._inputs.values():
            file.new.clear()
        for collection, segments in self._segments.items():
            start = 0
            for number, rows in segments:
                new = np.count_nonzero(self._is_new[collection][start : start + rows])
                self._inputs[number].new[collection] += int(new)
                start += rows

    def text_ids(self, collection: Collection) -> TextIds:
        """Where the ids of the spilled rows' texts go."""
        return self._text_ids[collection]

    def batches(self, replaces: bool) -> dict[Collection, Batch]:
        """The new rows, to be published, and what their sources say; ``replaces`` is that of ``Statement``."""
        inputs = [
            Input(file.source, None if file.below == file.source else file.below, file.fault is None)
            for file in self._inputs.values()
        ]
        return {
            collection: Batch(
                self.spills[collection],
                self._is_new[collection],
                Statement(inputs, self._of_batch[collection], self._text_ids[collection], replaces),
            )
            for collection in COLLECTIONS
        }

    @property
    def rejects_path(self) -> Path | None:
        """The rejects file; None if nothing was rejected."""
        return self._rejects.path if self._rejects.rows else None


def _reject_table(file: FileReport, rejected: Rejected) -> pa.Table:
    """The rejected rows with the columns of REJECT_SCHEMA."""
    reasons = pa.DictionaryArray.from_arrays(numbers(rejected.reasons.astype(np.int8)), strings(REASONS))
    if file.file_names is None and not file.sections:
        same_name = numbers(np.zeros(len(rejected.text), np.int32))
        names, lines = pa.DictionaryArray.from_arrays(same_name, strings([file.path])), rejected.lines
    else:
        places = [file.place(line) for line in rejected.lines.tolist()]
        names = strings([name for name, _ in places]).dictionary_encode()
        lines = np.array([line for _, line in places], np.int64)
    places_in_text, lines = (numbers(column) for column in (rejected.columns, lines))
    columns = [rejected.collections, rejected.text, reasons, places_in_text, names, lines]
    return pa.table(columns, schema=REJECT_SCHEMA)
