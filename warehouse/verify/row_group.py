"""One row group of a data file: its bytes, texts, hashes, ids and times, and its part of the index.

Everything here runs in a thread of the pass and changes no state of others; ``rows.py`` puts the results together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import bytes_of, keys_of
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.parquet import naming, sha256_of
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.staging.rows import HighWaterMark, StagedRow
from sigdir.warehouse.verify.report import Finding, quoted, reason_of

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group to check: its number in the file, the number of its first row, what its file is compared with."""

    collection: Collection
    file: DataFile
    name: str
    metadata: pq.FileMetaData
    number: int
    first_row: int
    sha256: str | None
    index: Segment | None

    @property
    def rows(self) -> int:
        return int(self.metadata.row_group(self.number).num_rows)

    @property
    def is_last(self) -> bool:
        return bool(self.number == self.metadata.num_row_groups - 1)


@dataclass(frozen=True, slots=True)
class FoldedRows:
    """The staged rows that count as folded, by their ids, and the ids in order."""

    by_id: Mapping[int, StagedRow]
    ids: Array

    @classmethod
    def of(cls, rows: list[StagedRow]) -> FoldedRows:
        return cls({row.id: row for row in rows}, np.array(sorted(row.id for row in rows), np.int64))


@dataclass(slots=True)
class Checked:
    """A row group that was checked; ``first`` and ``last`` are None and ``high`` is empty if it cannot be read.

    ``imports`` counts rows by import, ``folded`` are ids of staged rows that are here as they were staged, ``high``
    the first halves of the texts' keys, ``stale`` the columns of the index that differ from the file's.
    """

    group: RowGroup
    findings: list[Finding] = field(default_factory=list)
    imports: dict[int, int] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    first: HighWaterMark | None = None
    last: HighWaterMark | None = None
    high: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    stale: list[str] = field(default_factory=list)


class DamagedColumn(Exception):
    """A column that cannot be read."""


def check_row_group(group: RowGroup, folded: FoldedRows) -> Checked:
    """Read a row group and check everything that it shows by itself."""
    checked = Checked(group)
    path = group.file.path
    try:
        with naming(path):
            if group.number == 0 and group.sha256 is not None and sha256_of(path) != group.sha256:
                checked.findings.append(Finding("sha256", group.name, "", "not the bytes that were written"))
            with pq.ParquetFile(path, metadata=group.metadata, page_checksum_verification=True) as file:
                columns = [read_column(file, group, name) for name in FILE_SCHEMA.names]
            _Rows(checked, pa.record_batch(columns, schema=FILE_SCHEMA)).check(folded)
    except (UnreadableWarehouse, DamagedColumn) as error:
        checked.findings.append(Finding("file", group.name, f"row group {group.number}", reason_of(error, path)))
        checked.first = None
    return checked


def read_column(file: pq.ParquetFile, group: RowGroup, name: str) -> pa.Array:
    """A column of a row group as one array of all its rows; raises DamagedColumn."""
    try:
        column = file.read_row_group(group.number, columns=[name]).column(0).combine_chunks()
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        raise DamagedColumn(f"{name} cannot be read: {str(error).partition(chr(10))[0]}") from error
    if len(column) != group.rows:
        raise DamagedColumn(f"{name} has {len(column)} rows, and the footer says {group.rows}")
    return column


class _Rows:
    """The columns of one row group under check."""

    def __init__(self, checked: Checked, rows: pa.RecordBatch) -> None:
        self.checked, self.group, self.rows = checked, checked.group, rows
        self.ids = rows["id"].to_numpy()
        self.created_at = rows["created_at"].view(pa.int64()).to_numpy()

    def check(self, folded: FoldedRows) -> None:
        checked = self.checked
        checked.first = HighWaterMark(int(self.ids[0]), int(self.created_at[0]))
        checked.last = HighWaterMark(int(self.ids[-1]), int(self.created_at[-1]))
        numbers, counts = np.unique(self.rows["import_id"].to_numpy(), return_counts=True)
        checked.imports = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.report(np.diff(self.ids, prepend=self.ids[0] - 1) <= 0, "order", "its id is not above the previous one")
        times = np.diff(self.created_at, prepend=self.created_at[0] - 1)
        self.report(times <= 0, "order", "its created_at is not above the previous one")
        digests, canonical = check_canonical(self.group.collection, self.rows["text_signature"])
        self.report(~canonical, "text", "not canonical")
        self.check_hashes(digests)
        self.check_statistics()
        self.find_folded(folded)
        checked.high = keys_of(digests).high

    def report(self, wrong: Array, what: str, why: str) -> None:
        """One finding for the rows whose flag in ``wrong`` is set."""
        rows = np.flatnonzero(wrong)
        if len(rows):
            first = int(rows[0])
            row = f"row {self.group.first_row + first}, id {self.ids[first]}"
            text = quoted(self.rows["text_signature"][first].as_py())
            self.checked.findings.append(Finding(what, self.group.name, row, f"{why}: {text}", len(rows) - 1))

    def check_hashes(self, digests: Array) -> None:
        width = self.group.collection.hash_bytes
        bounds, raw = bytes_of(self.rows["hash"])
        if (np.diff(bounds) != width).any():
            self.report(np.diff(bounds) != width, "hash", f"not of {width} bytes")
            return
        stored = raw[bounds[0] : bounds[-1]].reshape(-1, width)
        self.report((stored != digests[:, :width]).any(axis=1), "hash", "not the hash of its text")
        self.compare_index(stored)

    def check_statistics(self) -> None:
        """Compare the footer's statistics, by which readers skip row groups, with the rows."""
        metadata = self.group.metadata.row_group(self.group.number)
        for number in range(metadata.num_columns):
            chunk = metadata.column(number)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                continue
            bounds = pc.min_max(self.rows[chunk.path_in_schema]).as_py()
            if (statistics.min, statistics.max) != (bounds["min"], bounds["max"]):
                why = f"the smallest and largest {chunk.path_in_schema} are not those in the footer"
                row = f"row group {self.group.number}"
                self.checked.findings.append(Finding("file", self.group.name, row, why))

    def compare_index(self, stored: Array) -> None:
        index = self.group.index
        if index is None:
            return
        first, last = self.group.first_row, self.group.first_row + len(self.ids)
        bounds, data = bytes_of(self.rows["text_signature"])
        offsets = index.offsets[first : last + 1]
        same = {
            "ids": np.array_equal(index.ids[first:last], self.ids),
            "created_at": np.array_equal(index.created_at[first:last], self.created_at),
            "offsets": (first > 0 or int(offsets[0]) == 0) and np.array_equal(np.diff(offsets), np.diff(bounds)),
            "text": np.array_equal(index.text[offsets[0] : offsets[-1]], data[bounds[0] : bounds[-1]]),
            "hash": np.array_equal(index.hash[first:last], stored),
        }
        self.checked.stale += [name for name, is_same in same.items() if not is_same]

    def find_folded(self, folded: FoldedRows) -> None:
        """Find the folded staged rows whose ids lie in this group, and keep those that are as they were staged."""
        start, end = np.searchsorted(folded.ids, self.ids[0]), np.searchsorted(folded.ids, self.ids[-1], side="right")
        here = folded.ids[start:end]
        if not len(here):
            return
        at = np.searchsorted(self.ids, here).clip(max=len(self.ids) - 1)
        for row in at[self.ids[at] == here].tolist():
            staged = folded.by_id[int(self.ids[row])]
            if (staged.created_at, staged.text) == (self.created_at[row], self.rows["text_signature"][row].as_py()):
                self.checked.folded.add(staged.id)
