"""The pass over a collection's rows: every row group by as many threads as are given, then texts that occur twice.

Memory does not grow with the rows: the keys of the texts stream into DuckDB, which finds those that occur twice
under its memory limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import keys_of
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.index.build import open_index
from sigdir.warehouse.index.hash_order import is_sorted_by_hash
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.parallel import ordered_map
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.rows import HighWaterMark, StagedRow
from sigdir.warehouse.verify.history import History
from sigdir.warehouse.verify.report import SHOWN, Findings, quoted, reason_of
from sigdir.warehouse.verify.row_group import (
    Array,
    Checked,
    DamagedColumn,
    FoldedRows,
    RowGroup,
    check_row_group,
    read_column,
)
from sigdir.warehouse.verify.staged import check_waiting

_KEY = pa.schema([("high", pa.uint64())])
_NAMED_TEXTS = 100 * SHOWN


@dataclass(frozen=True, slots=True)
class Pass:
    """What the pass over a collection needs; ``progress`` is called with the number of rows checked."""

    findings: Findings
    snapshot: Snapshot
    history: History
    engine: duckdb.DuckDBPyConnection
    threads: int
    progress: Callable[[int], None]


def check_rows(work: Pass, collection: Collection, staged: list[StagedRow]) -> Counter[int] | None:
    """Check every row of a collection, staged ones too; returns the rows by import, None if a file is unreadable."""
    check = _Collection(work, collection, staged)
    check.run()
    return check.imports if check.is_complete else None


class _Collection:
    """The pass over one collection. ``is_complete`` is cleared where rows could not be read."""

    def __init__(self, work: Pass, collection: Collection, staged: list[StagedRow]) -> None:
        self.work, self.findings, self.collection = work, work.findings, collection
        self.table = work.snapshot.high_water[collection]
        self.waiting = [row for row in staged if row.id > self.table.id]
        self.folded = FoldedRows.of([row for row in staged if row.id <= self.table.id])
        self.missing = set(self.folded.by_id)
        self.is_complete = True
        self.imports: Counter[int] = Counter()

    def run(self) -> None:
        shared = self.shared_keys()
        if len(shared):
            self.name_duplicates(shared)
        if self.is_complete:
            for id in sorted(self.missing):
                why = "counts as folded and is not in the table as it was staged"
                self.findings.add("fold", self.findings.paths.staging, why, f"id {id}")

    def shared_keys(self) -> Array:
        """Check all rows; returns the first halves of the keys that occur more than once."""
        engine = self.work.engine
        engine.register("highs", pa.RecordBatchReader.from_batches(_KEY, self.checked_keys()))
        try:
            with waiting(engine.interrupt):
                found = engine.sql(f"SELECT high FROM highs GROUP BY high HAVING count(*) > 1 LIMIT {SHOWN}")
                shared: Array = found.to_arrow_table()["high"].to_numpy()
            return shared
        except duckdb.Error as error:
            reason = str(error).partition("\n")[0]
            raise UnreadableWarehouse(f"searching for texts that occur twice: {reason}") from error

    def checked_keys(self) -> Iterator[pa.RecordBatch]:
        """The first halves of all keys, each row checked on the way."""
        if self.waiting:
            high = check_waiting(self.findings, self.collection, self.waiting, self.table)
            self.work.progress(len(self.waiting))
            yield pa.record_batch([high], schema=_KEY)
        with ThreadPoolExecutor(self.work.threads) as pool:
            last: HighWaterMark | None = None
            for checked in ordered_map(
                pool, lambda group: check_row_group(group, self.folded), self.row_groups(),
                ahead=2 * self.work.threads,
            ):  # fmt: skip
                last = self.take(checked, last)
                self.work.progress(checked.group.rows)
                yield pa.record_batch([checked.high], schema=_KEY)

    def take(self, checked: Checked, last: HighWaterMark | None) -> HighWaterMark | None:
        """Take over a row group's results, and check that it lies above ``last``; returns its own last id and time."""
        self.findings.extend(checked.findings)
        if checked.first is None or checked.last is None:
            self.is_complete = False
            return last
        self.imports.update(checked.imports)
        self.missing.difference_update(checked.folded)
        group, path = checked.group, checked.group.file.path
        if last is not None and (checked.first.id <= last.id or checked.first.created_at <= last.created_at):
            why = f"id or time does not rise above the previous one: id {last.id}, time {last.created_at}"
            self.findings.add("order", path, why, f"row {group.first_row}, id {checked.first.id}")
        self.compare_with_log(checked.group, checked.first, checked.last)
        if group.is_last and group.index is not None and not _is_ordered(group.index):
            checked.stale.append("hashes")
        if checked.stale:
            folder = self.findings.paths.index(self.collection, path)
            self.findings.add_index(folder, f"{', '.join(checked.stale)} not as in its data file")
        return checked.last

    def compare_with_log(self, group: RowGroup, first: HighWaterMark, last: HighWaterMark) -> None:
        file = group.file
        if group.number == 0 and first.id != file.first_id:
            self.findings.add("log", file.path, f"begins with id {first.id}, and the log says {file.first_id}")
        if group.is_last and last != HighWaterMark(file.last_id, file.last_created_at):
            why = f"ends with id {last.id}, time {last.created_at}; the log says {file.last_id}, {file.last_created_at}"
            self.findings.add("log", file.path, why)

    def row_groups(self) -> Iterator[RowGroup]:
        """The row groups that can be checked; problems of a file as a whole are found here."""
        for file in self.work.snapshot.files[self.collection]:
            metadata = self.readable_metadata(file)
            if metadata is None:
                self.is_complete = False
                continue
            index = self.index_of(file)
            sha256 = self.work.history.sha256.get(self.findings.paths.in_table(file.path))
            name, first = self.findings.name(file.path), 0
            for number in range(metadata.num_row_groups):
                yield RowGroup(self.collection, file, name, metadata, number, first, sha256, index)
                first += metadata.row_group(number).num_rows

    def readable_metadata(self, file: DataFile) -> pq.FileMetaData | None:
        """A data file's footer, compared with the log; None if the file cannot be read as ours."""
        try:
            size = file.path.stat().st_size
            with naming(file.path):
                metadata = pq.read_metadata(file.path)
                schema = pq.read_schema(file.path)
        except (UnreadableWarehouse, OSError) as error:
            if self.is_current(file):
                why = "missing" if not file.path.exists() else reason_of(error, file.path)
                self.findings.add("file", file.path, why)
            return None
        if size != file.size:
            self.findings.add("file", file.path, f"{size} bytes, and the log says {file.size}")
        rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        if not metadata.num_rows == rows == file.rows:
            self.findings.add("file", file.path, f"{metadata.num_rows} rows, and the log says {file.rows}")
        if not schema.equals(FILE_SCHEMA):
            self.findings.add("file", file.path, f"other columns than {', '.join(FILE_SCHEMA.names)}")
            return None
        return metadata

    def index_of(self, file: DataFile) -> Segment | None:
        """The index of a data file, where there is one that can be compared."""
        folder = self.findings.paths.index(self.collection, file.path)
        try:
            index = open_index(folder, file.rows)
            if index.hash.shape[1:] == (self.collection.hash_bytes,):
                return index
        except (OSError, ValueError):
            if not folder.exists():  # a server builds it when it needs it
                return None
        if self.is_current(file):
            self.findings.add_index(folder, "does not fit its data file, or is not as it was written")
        return None

    def is_current(self, file: DataFile) -> bool:
        """Whether the newest version has the file; if not, it and its index may be deleted during the pass."""
        newest = read_snapshot(self.findings.paths).files[self.collection]
        return any(file.path == other.path for other in newest)

    def name_duplicates(self, shared: Array) -> None:
        """Read the texts again and name those that occur twice, among the rows with a shared key."""
        seen: dict[str, str] = {}
        for text, path, row in self.texts_with(shared):
            if text in seen:
                self.findings.add("twice", path, f"{quoted(text)} is also {seen[text]}", row)
            elif len(seen) < _NAMED_TEXTS:
                seen[text] = f"in {self.findings.name(path)}, {row}"

    def texts_with(self, shared: Array) -> Iterator[tuple[str, Path, str]]:
        """The texts with these keys, all staged ones too: text, file and row."""
        for group in self.row_groups():
            try:
                with pq.ParquetFile(group.file.path, metadata=group.metadata) as file:
                    ids, text = (read_column(file, group, name) for name in ("id", "text_signature"))
            except DamagedColumn:
                continue
            digests, _ = check_canonical(self.collection, text)
            for row in np.flatnonzero(np.isin(keys_of(digests).high, shared)).tolist():
                yield text[row].as_py(), group.file.path, f"row {group.first_row + row}, id {ids[row]}"
        for staged in self.waiting:
            yield staged.text, self.findings.paths.staging, f"id {staged.id}"


def _is_ordered(index: Segment) -> bool:
    return isinstance(index.hashes, np.ndarray) and is_sorted_by_hash(index.hashes, index.hash)
