"""The data files and their indexes: each row group by as many threads as are given, then the rows of all together.

Memory does not grow with the rows: what needs all of them is a query of the engine, under its memory limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.columns import bytes_of
from sigdir.warehouse.index.build import open_index
from sigdir.warehouse.index.hash_order import is_sorted_by_hash
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.staging.rows import HighWaterMark, StagedRow
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.schema import FILE_SCHEMA
from sigdir.warehouse.verify.files import StoredFile, Verification
from sigdir.warehouse.verify.report import SHOWN, Finding, quoted
from sigdir.warehouse.verify.rows import CheckedRows

_NOTHING = HighWaterMark()


def check_data_files(work: Verification) -> None:
    """Check every row, alone and beside the others of its collection."""
    for collection in COLLECTIONS:
        work.begin_stage(collection, work.snapshot.count(collection))
        _check_collection(work, collection)


def _check_collection(work: Verification, collection: Collection) -> None:
    last = _NOTHING
    with ThreadPoolExecutor(work.threads) as pool:
        checked = ordered_map(pool, _check, _row_groups(work, collection), ahead=2 * work.threads)
        for _, groups in groupby(checked, key=lambda one: one.group.stored.path):
            last = _take_file(work, groups, last)
    work.create_view("stored", [file.path for file in work.readable[collection]], FILE_SCHEMA)
    _check_duplicates(work, collection)
    if work.is_complete(collection):
        _check_folded(work, collection)
        _check_imports(work, collection)


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group to check: its number in the file, the number of its first row, the index of its file."""

    collection: Collection
    file: DataFile
    stored: StoredFile
    where: str
    metadata: pq.FileMetaData
    number: int
    first_row: int
    index: Segment | None

    @property
    def rows(self) -> int:
        return int(self.metadata.row_group(self.number).num_rows)

    @property
    def is_last(self) -> bool:
        return bool(self.number == self.metadata.num_row_groups - 1)


@dataclass(slots=True)
class _Checked:
    """A row group that was checked; ``stale`` are the columns of the index that differ from the file's."""

    group: _RowGroup
    findings: list[Finding] = field(default_factory=list)
    first: HighWaterMark = _NOTHING
    last: HighWaterMark = _NOTHING
    stale: set[str] = field(default_factory=set)
    error: UnreadableWarehouse | None = None


def _row_groups(work: Verification, collection: Collection) -> Iterator[_RowGroup]:
    """The row groups that can be checked; problems of a file as a whole are found here."""
    for file in work.snapshot.files[collection]:
        stored = StoredFile("file", file.path, FILE_SCHEMA, file.rows, file.size, file.sha256)
        metadata = work.metadata_of(stored)
        if metadata is None:
            continue
        index, first = _index_of(work, collection, file), 0
        for number in range(metadata.num_row_groups):
            yield _RowGroup(collection, file, stored, work.report.name(file.path), metadata, number, first, index)
            first += metadata.row_group(number).num_rows


def _check(group: _RowGroup) -> _Checked:
    """Read a row group and check everything that it shows by itself. In a thread of the pool."""
    checked = _Checked(group)
    try:
        rows = CheckedRows(
            group.where, group.collection, _read(group), group.collection.hash_bytes, group.first_row
        )  # fmt: skip
    except UnreadableWarehouse as error:
        checked.error = error
        return checked
    checked.findings += [*rows.findings(), *_wrong_statistics(group, rows.rows)]
    checked.first, checked.last = (HighWaterMark(int(rows.ids[n]), int(rows.created_at[n])) for n in (0, -1))
    if group.index is not None:
        checked.stale = _stale_columns(group.index, group.first_row, rows)
    return checked


def _read(group: _RowGroup) -> pa.RecordBatch:
    """The rows of a row group; raises UnreadableWarehouse, naming the column."""
    path, columns = group.stored.path, []
    with naming(path), pq.ParquetFile(path, metadata=group.metadata, page_checksum_verification=True) as file:
        for name in FILE_SCHEMA.names:
            try:
                column = file.read_row_group(group.number, columns=[name]).column(0).combine_chunks()
            except (pa.ArrowException, OSError, LookupError, ValueError) as error:
                raise ValueError(f"{name} cannot be read: {error}") from error
            if not 0 < len(column) == group.rows:
                raise ValueError(f"{name} has {len(column)} rows, and the footer says {group.rows}")
            columns.append(column)
    return pa.record_batch(columns, schema=FILE_SCHEMA)


def _wrong_statistics(group: _RowGroup, rows: pa.RecordBatch) -> Iterator[Finding]:
    """Compare the footer's statistics, by which readers skip row groups, with the rows."""
    metadata = group.metadata.row_group(group.number)
    for chunk in map(metadata.column, range(metadata.num_columns)):
        statistics = chunk.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        bounds = pc.min_max(rows[chunk.path_in_schema]).as_py()
        if (statistics.min, statistics.max) != (bounds["min"], bounds["max"]):
            why = f"the smallest and largest {chunk.path_in_schema} are not those in the footer"
            yield Finding("file", group.where, f"row group {group.number}", why)


def _take_file(work: Verification, groups: Iterable[_Checked], last: HighWaterMark) -> HighWaterMark:
    """Take the results of a file, which lies above ``last``; returns its own last id and time."""
    stale: set[str] = set()
    is_readable = True
    for checked in groups:
        group = checked.group
        work.progress(group.rows)
        if checked.error is not None:
            work.add_unreadable(group.stored, checked.error, f"row group {group.number}")
            is_readable = False
            continue
        work.report.extend(checked.findings)
        if checked.first.id <= last.id or checked.first.created_at <= last.created_at:
            why = f"id or time does not rise above the previous one: id {last.id}, time {last.created_at}"
            work.report.add("order", group.file.path, why, f"row {group.first_row}, id {checked.first.id}")
        _compare_with_log(work, checked)
        stale |= checked.stale
        last = checked.last
    if is_readable:
        work.readable[group.collection].append(group.file)
    if group.index is not None and not _is_ordered(group.index):
        stale.add("hashes")
    if stale:
        folder = work.paths.index(group.collection, group.file.path)
        _add_index(work, folder, f"{', '.join(sorted(stale))} not as in its data file")
    return last


def _compare_with_log(work: Verification, checked: _Checked) -> None:
    file, first, last = checked.group.file, checked.first, checked.last
    if checked.group.number == 0 and first.id != file.first_id:
        work.report.add("log", file.path, f"begins with id {first.id}, and the log says {file.first_id}")
    if checked.group.is_last and last != HighWaterMark(file.last_id, file.last_created_at):
        why = f"ends with id {last.id}, time {last.created_at}; the log says {file.last_id}, {file.last_created_at}"
        work.report.add("log", file.path, why)


# Indexes.


def _index_of(work: Verification, collection: Collection, file: DataFile) -> Segment | None:
    """The index of a data file, where there is one that can be compared."""
    folder = work.paths.index(collection, file.path)
    try:
        index = open_index(folder, file.rows)
        if index.hash.shape[1:] == (collection.hash_bytes,):
            return index
    except (OSError, ValueError):
        if not folder.exists():  # a server builds it when it needs it
            return None
    if work.is_current(file.path):
        _add_index(work, folder, "does not fit its data file, or is not as it was written")
    return None


def _stale_columns(index: Segment, first_row: int, rows: CheckedRows) -> set[str]:
    """The columns of an index that are not as the rows of a row group."""
    last_row = first_row + len(rows.ids)
    offsets = index.offsets[first_row : last_row + 1]
    bounds, text = bytes_of(rows.rows["text_signature"])
    hash_bounds, hash = bytes_of(rows.rows["hash"])
    columns = {
        "ids": (index.ids[first_row:last_row], rows.ids),
        "created_at": (index.created_at[first_row:last_row], rows.created_at),
        "offsets": (np.diff(offsets), np.diff(bounds)),
        "text": (index.text[offsets[0] : offsets[-1]], text[bounds[0] : bounds[-1]]),
        "hash": (index.hash[first_row:last_row].ravel(), hash[hash_bounds[0] : hash_bounds[-1]]),
    }
    return {name for name, (found, expected) in columns.items() if not np.array_equal(found, expected)}


def _is_ordered(index: Segment) -> bool:
    return isinstance(index.hashes, np.ndarray) and is_sorted_by_hash(index.hashes, index.hash)


def _add_index(work: Verification, folder: Path, why: str) -> None:
    work.report.add("index", folder, f"{why}: `rm -r {folder}` and restart the server, which builds it again")


# All rows together.


def _check_duplicates(work: Verification, collection: Collection) -> None:
    """Find the texts that occur twice, in the table or in the table and in staging."""
    work.engine.register("waiting", _table_of(work.waiting(collection)))
    hashes = "SELECT hash(text_signature) AS hash FROM stored UNION ALL SELECT hash(text) FROM waiting"
    shared = work.select(f"SELECT hash FROM ({hashes}) GROUP BY hash HAVING count(*) > 1 LIMIT {SHOWN}")
    if not shared:
        return
    found = work.select(
        """SELECT text_signature AS text, filename, file_row_number AS row, id FROM stored
           WHERE hash(text_signature) IN (SELECT unnest($shared::UBIGINT[]))
           UNION ALL SELECT text, $staging, NULL, id FROM waiting WHERE hash(text) IN (SELECT unnest($shared::UBIGINT[]))
           ORDER BY text, id, filename LIMIT $most""",
        shared=[row["hash"] for row in shared], staging=str(work.paths.staging), most=100 * SHOWN,
    )  # fmt: skip
    for text, rows in groupby(found, key=lambda row: row["text"]):
        first, *others = rows
        where = f"{work.report.name(Path(first['filename']))}, {_name_of(first['row'], first['id'])}"
        for row in others:
            why = f"{quoted(text)} is also in {where}: restore a backup, or export, and import into a new folder"
            work.report.add("twice", Path(row["filename"]), why, _name_of(row["row"], row["id"]))


def _name_of(row: int | None, id: int) -> str:
    return f"id {id}" if row is None else f"row {row}, id {id}"


def _table_of(rows: list[StagedRow]) -> pa.Table:
    columns = {
        "id": pa.array([row.id for row in rows], pa.int64()),
        "created_at": pa.array([row.created_at for row in rows], pa.int64()),
        "text": pa.array([row.text for row in rows], pa.string()),
    }
    return pa.table(columns)


def _check_folded(work: Verification, collection: Collection) -> None:
    """Check that staged rows which count as folded are in the table as they were staged."""
    last = work.snapshot.high_water[collection].id
    work.engine.register("folded", _table_of([row for row in work.staged.rows[collection] if row.id <= last]))
    missing = """SELECT folded.id FROM folded ANTI JOIN stored
                 ON folded.id = stored.id AND text = text_signature AND folded.created_at = epoch_us(stored.created_at)
                 ORDER BY id"""
    for row in work.select(missing):
        why = "counts as folded and is not in the table as it was staged"
        work.report.add("fold", work.paths.staging, why, f"id {row['id']}")


def _check_imports(work: Verification, collection: Collection) -> None:
    """Check that the table has as many rows of each import as the log says; POSTed ones are those of import 0."""
    if not work.entries:
        return
    logged: Counter[int] = Counter()
    for entry in work.entries:
        summary = entry.summary or {}
        logged[0] += summary.get("folded", {}).get(collection, 0)
        if "import" in summary:
            logged[summary["import"]] += summary["rows"][collection]
    counted = work.select("SELECT import_id, count(*) AS rows FROM stored GROUP BY import_id")
    found = Counter({row["import_id"]: row["rows"] for row in counted})
    for number in sorted(logged.keys() | found.keys()):
        if logged[number] != found[number]:
            source = f"import {number}" if number else "POSTs"
            why = f"{found[number]} rows of {source}; the log says {logged[number]}"
            work.report.add("import", work.paths.partition(collection), why)
