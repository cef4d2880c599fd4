"""What an import has read so far: accepted rows in spill files, rejects in their file, counts per input."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, ExitStack, closing
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.contract_rows import ContractRows
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.report import Example, FileReport, ImportReport
from sigdir.pipeline.source import Source
from sigdir.pipeline.usage_counts import SourceUsage, usage_of
from sigdir.signatures.arrow import numbers, strings, text
from sigdir.signatures.canonicalise import BatchResult, Rejected
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.grammar import REASONS
from sigdir.warehouse.log.manifest import USAGE
from sigdir.warehouse.publish.batch import Batch
from sigdir.warehouse.publish.renewal import MappedDraft
from sigdir.warehouse.publish.spill import Ids, ImportSightings, SightedInput, Spill, text_ids_in
from sigdir.warehouse.table.parquet import REJECT_SCHEMA, RejectsWriter

_EXAMPLES_PER_REASON = 3


class ImportState(AbstractContextManager["ImportState"]):
    """Fill it with ``add_input`` and ``add_result``, then call ``finish_reading``, then ``set_new_rows``."""

    def __init__(self, folder: Path, report: ImportReport, contracts: ContractRows | None = None) -> None:
        self.folder = folder
        """Holds the spill files and the rejects file."""
        self.report = report
        self.contracts = contracts
        """What the inputs say of contracts; None where nobody gathers it."""
        self.rejects_digest: str | None = None
        """Equal for two imports that rejected the same rows of the same inputs; None without rejects."""
        self.spills: dict[Collection, Spill] = {}
        """The accepted rows."""
        self.input_of_batch: dict[Collection, list[int]] = {c: [] for c in COLLECTIONS}
        """For each batch of the accepted rows the number of its input."""
        self._rejects = RejectsWriter(folder / "rejects.parquet")  # creates the file with the first reject
        self._open_files = ExitStack()
        self._inputs: dict[int, FileReport] = {}
        self._text_ids: dict[Collection, Ids] = {}
        self._compared = 0
        self._drafts: list[MappedDraft] = []
        self._usage: dict[str, SourceUsage] = {}
        self._is_new: dict[Collection, npt.NDArray[np.bool_]] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:  # closes what is open if opening another file fails
            stack.callback(self._rejects.close)
            if self.contracts is not None:
                stack.enter_context(self.contracts)
            for collection in COLLECTIONS:
                self.spills[collection] = stack.enter_context(closing(Spill(self.folder, collection)))
            self._open_files = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open_files.close()

    def add_input(self, source: Source, format: str, label: str | None = None) -> FileReport:
        """Number an input. Its candidates carry the number. Without a ``label`` its source is the file itself."""
        source.number = len(self._inputs)
        source.contracts, source.statement = self.contracts, label or source.label
        report = FileReport(
            source.name, format, warnings=source.warnings, file_names=source.file_names, sections=source.sections,
            source=label or source.label, below=source.below,
            bytecode=source.bytecode,
        )  # fmt: skip
        self._inputs[source.number] = report
        return report

    def input(self, number: int) -> FileReport:
        """The report of an input."""
        return self._inputs[number]

    def add_file(self, report: FileReport) -> int:
        """Number an input that was read elsewhere. Its report has the counts already."""
        number = len(self._inputs)
        self._inputs[number] = report
        return number

    def add_rows(self, rows: Spill, input_of_batch: Iterable[int]) -> None:
        """Add what was spilled elsewhere: the accepted rows of inputs that ``add_file`` has numbered."""
        self.spills[rows.collection].extend(rows)
        self.input_of_batch[rows.collection] += input_of_batch

    def add_result(self, result: BatchResult) -> None:
        """Spill what was accepted, write what was rejected, count both."""
        file = self._inputs[result.file]
        file.read += result.read
        file.variants_left_out += result.variants_left_out
        for collection, accepted in result.accepted.items():
            rows = len(accepted.text)
            file.accepted[collection] += rows
            self.spills[collection].append(accepted)
            if self.contracts is not None:
                self.contracts.add_texts(file.source, collection, accepted)
            if rows:
                self.input_of_batch[collection].append(result.file)
        if len(result.rejected.text):
            self._count_reasons(file, result.rejected)
            self.add_rejects(_reject_table(file, result.rejected))

    def add_rejects(self, rejects: pa.Table) -> None:
        """Write rejected rows, and keep the first ones of each reason for the report."""
        self._rejects.append(rejects)
        reasons = rejects["reason"].cast(pa.string())
        for reason in pc.unique(reasons).to_pylist():
            kept = sum(example.reason == reason for example in self.report.examples)
            if kept < _EXAMPLES_PER_REASON:
                of_reason = rejects.filter(pc.equal(reasons, text(reason)))
                for row in of_reason.slice(0, _EXAMPLES_PER_REASON - kept).to_pylist():
                    example = Example(reason, row["text"][:200], row["position"], row["file"], row["line"])
                    self.report.examples.append(example)

    def finish_reading(self) -> None:
        """Complete the spill files and the rejects file; from here on they are read."""
        for spill in self.spills.values():
            spill.finish()
        self._make_text_ids()
        self.rejects_digest = self._rejects.finish()
        found = self.contracts.finish(self.folder) if self.contracts is not None else None
        if found is not None:
            draft, self.report.interfaces = found
            self.report.deployments = draft.rows
            self._drafts.append(draft)
        self.report.examples.sort(key=lambda example: REASONS.index(example.reason))
        self.report.files = list(self._inputs.values())

    def forget_ids(self) -> None:
        """Compare anew: the warehouse has another version than the one that the rows were compared with."""
        self._compared += 1
        self._make_text_ids()

    def _count_reasons(self, file: FileReport, rejected: Rejected) -> None:
        counts = np.bincount(rejected.reasons, minlength=len(REASONS))
        for code in np.flatnonzero(counts).tolist():
            file.reasons[REASONS[code]] += int(counts[code])

    def _make_text_ids(self) -> None:
        for collection, spill in self.spills.items():
            self._text_ids[collection] = text_ids_in(self.folder / f"{collection}.{self._compared}.ids", spill.rows)

    def set_new_rows(self, is_new: dict[Collection, npt.NDArray[np.bool_]]) -> None:
        """Take a flag for each spilled row: whether the warehouse lacks it. A publisher may clear flags later."""
        self._is_new = is_new
        self.count_imported()

    def count_imported(self) -> None:
        """Count the new rows of each input."""
        for file in self._inputs.values():
            file.new.clear()
        for collection, spill in self.spills.items():
            bounds = spill.first_rows().tolist()
            for number, (first, end) in zip(self.input_of_batch[collection], pairwise(bounds), strict=True):
                self._inputs[number].new[collection] += int(np.count_nonzero(self._is_new[collection][first:end]))

    def text_ids(self, collection: Collection) -> Ids:
        """Where the ids of the spilled rows' texts go."""
        return self._text_ids[collection]

    def batches(self, replaces: bool) -> dict[Collection, Batch]:
        """The new rows, to be published, and what their sources say. With ``replaces`` it takes the place of what they said
        before, unless all of it was rejected.
        """
        replaced = {file.source for file in self._inputs.values() if replaces and not file.is_all_rejected}
        inputs = [
            SightedInput(file.source, None if file.below == file.source else file.below)
            for file in self._inputs.values()
        ]
        return {
            collection: Batch(
                self.spills[collection],
                self._is_new[collection],
                ImportSightings(inputs, self.input_of_batch[collection], self._text_ids[collection], replaced),
            )
            for collection in COLLECTIONS
        }

    def add_usage(self, source: Source) -> None:
        """Add the counts of an open source to what its label says; raises BadInput."""
        usage = usage_of(source)
        source.warnings += usage.unread
        if not any(len(keys) for keys, _ in usage.tables.values()):
            why = "".join(f": {sentence}" for sentence in usage.unread[:1])
            raise BadInput(source.name, f"none of its {usage.rows:,} rows is a count of a selector or topic{why}")
        self._usage.setdefault(source.statement, SourceUsage()).add(usage)
        self._inputs[source.number].usage = usage.to_dict()

    def mapped(self) -> list[MappedDraft]:
        """The mapped files that the import brings. What a source counts takes the place of what it counted before."""
        found = list(self._drafts)
        for number, (label, usage) in enumerate(self._usage.items()):
            path = self.folder / f"usage.{number}.mapped"
            found.append(MappedDraft(path, USAGE, usage.write(path), (label,), replaces=True))
        return found

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
