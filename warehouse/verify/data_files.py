"""Rows, of a data file or of staging; data files and their indexes, and files of evidence, each by itself.

Of the files that only older versions name the bytes are compared, those of a vacuumed version as far as they are there.

The staging file is checked first. Data files are checked in as many threads as are given. Memory does not grow with the
rows. Readers trust the bytes of a mapped file that are those that were written, so nothing more is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import binary_column
from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.build import open_index
from sigdir.warehouse.log.manifest import (
    EvidenceFile,
    MappedFile,
    manifest_of,
    manifest_of_entry,
    sources_of,
    sources_paths,
)
from sigdir.warehouse.staging.reader import given_out, open_read_only
from sigdir.warehouse.staging.transaction import ACCEPT, HighWaterMark, StagedRow, Transaction
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.identity import FORMAT, usable_identity
from sigdir.warehouse.table.parallel import for_each, ordered_map
from sigdir.warehouse.table.parquet import FILE_SCHEMA, SIGHTING_SCHEMA, batches_in, naming
from sigdir.warehouse.verify.files import STAGING, Finding, StoredFile, Verification, reason_of, shortened

NOTHING = HighWaterMark()
"""In front of the first row of a file."""


class CheckedRows:
    """Rows as they are stored: columns ``id``, ``created_at``, ``text_signature`` and ``hash``, at least one row.

    ``first_row`` is the number of the first one in its file, None in staging; ``before`` is the row in front of it. A
    hash is the first ``hash_bytes`` of the digest.
    """

    def __init__(
        self, where: str, collection: Collection, rows: pa.RecordBatch, hash_bytes: int, first_row: int | None = None,
        before: HighWaterMark = NOTHING,
    ) -> None:  # fmt: skip
        self.rows = rows
        self.ids: Array = rows["id"].to_numpy()
        self.created_at: Array = rows["created_at"].view(pa.int64()).to_numpy()
        self.before = before
        digests, self.is_canonical = check_canonical(collection, rows["text_signature"])
        self.hash = np.ascontiguousarray(digests[:, :hash_bytes])
        self._where, self._first_row = where, first_row

    def findings(self) -> Iterator[Finding]:
        """One for each check that fails."""
        for what, why, is_wrong in ROW_CHECKS:
            wrong = np.flatnonzero(is_wrong(self))
            if len(wrong):
                text = shortened(self.rows["text_signature"][int(wrong[0])].as_py())
                yield Finding(what, self._where, self._name(int(wrong[0])), f"{why}: {text}", len(wrong) - 1)

    def _name(self, row: int) -> str:
        name = f"id {self.ids[row]}"
        return name if self._first_row is None else f"row {self._first_row + row}, {name}"


def _is_not_rising(numbers: Array, before: int) -> Array:
    wrong: Array = np.diff(numbers, prepend=before) <= 0
    return wrong


def _is_other_hash(rows: CheckedRows) -> Array:
    wrong: Array = pc.not_equal(rows.rows["hash"], binary_column(rows.hash)).to_numpy(zero_copy_only=False)
    return wrong


ROW_CHECKS: tuple[tuple[str, str, Callable[[CheckedRows], Array]], ...] = (
    ("order", "its id is not above the previous one", lambda rows: _is_not_rising(rows.ids, rows.before.id)),
    (
        "order",
        "its created_at is not above the previous one",
        lambda rows: _is_not_rising(rows.created_at, rows.before.created_at),
    ),
    ("text", "not canonical", lambda rows: ~rows.is_canonical),
    ("hash", "not the hash of its text", _is_other_hash),
)
"""What a finding is called, what it says, and the rows that it is of, as a flag a row."""


Ends = tuple[HighWaterMark, HighWaterMark]
"""The first and the last row of a file."""


def check_data_files(work: Verification) -> None:
    """Check every row by itself, and that the files of a collection follow each other."""
    for collection in COLLECTIONS:
        files = work.snapshot.files[collection]
        work.begin_stage(collection, work.snapshot.count(collection))
        with ThreadPoolExecutor(work.threads) as pool:
            ends = ordered_map(pool, partial(_check_file, work), files, ahead=2 * work.threads)
            found = [(file, end) for file, end in zip(files, ends, strict=True) if end is not None]
        for (_, (_, last)), (file, (first, _)) in pairwise(found):
            if first.id <= last.id or first.created_at <= last.created_at:
                why = f"id or time does not rise above the previous one: id {last.id}, time {last.created_at}"
                work.report.add("order", file.path, why, f"row 0, id {first.id}")


def _check_file(work: Verification, file: DataFile) -> Ends | None:
    """Check a file's rows and its index; its first and last row, None where it has none that can be read."""
    stored = StoredFile("file", file.path, FILE_SCHEMA, file.rows, file.size, file.sha256)
    metadata = work.metadata_of(stored)
    if metadata is None:
        return None
    _check_index(work, file)
    ends, at, is_readable = list[HighWaterMark](), 0, True
    for number in range(metadata.num_row_groups):
        try:
            rows = CheckedRows(
                work.report.name(file.path), file.collection, _read(file, metadata, number),
                file.collection.hash_bytes, at, ends[-1] if ends else NOTHING,
            )  # fmt: skip
        except UnreadableWarehouse as error:
            work.add_unreadable(stored, error, f"row group {number}")
            is_readable = False
        else:
            work.report.extend(rows.findings())
            ends += [HighWaterMark(int(rows.ids[n]), int(rows.created_at[n])) for n in (0, -1)]
        at += metadata.row_group(number).num_rows
        work.progress(metadata.row_group(number).num_rows)
    if is_readable:
        work.readable.add(file.path)
        _compare_with_log(work, file, ends)
    return (ends[0], ends[-1]) if ends else None


def _read(file: DataFile, metadata: pq.FileMetaData, number: int) -> pa.RecordBatch:
    """The rows of a row group; raises UnreadableWarehouse, naming the column."""
    rows, columns = metadata.row_group(number).num_rows, []
    with naming(file.path), pq.ParquetFile(file.path, metadata=metadata, page_checksum_verification=True) as parquet:
        for name in FILE_SCHEMA.names:
            try:
                column = parquet.read_row_group(number, columns=[name]).column(0).combine_chunks()
            except (pa.ArrowException, OSError, LookupError, ValueError) as error:
                raise ValueError(f"{name} cannot be read: {error}") from error
            if not 0 < len(column) == rows:
                raise ValueError(f"{name} has {len(column)} rows, and the footer says {rows}")
            columns.append(column)
    return pa.record_batch(columns, schema=FILE_SCHEMA)


def _compare_with_log(work: Verification, file: DataFile, ends: list[HighWaterMark]) -> None:
    first, last = ends[0], ends[-1]
    if first.id != file.first_id:
        work.report.add("log", file.path, f"begins with id {first.id}, and the log says {file.first_id}")
    if last != HighWaterMark(file.last_id, file.last_created_at):
        why = f"ends with id {last.id}, time {last.created_at}; the log says {file.last_id}, {file.last_created_at}"
        work.report.add("log", file.path, why)


def _check_index(work: Verification, file: DataFile) -> None:
    """Check that the index of a data file, where there is one, is as it was written: servers answer from it."""
    folder = work.paths.index(file.collection, file.path)
    try:
        index = open_index(folder, file.rows)
        fits = index.hash.shape[1:] == (file.collection.hash_bytes,)
    except (OSError, ValueError):
        fits = not folder.exists()  # a server builds it when it needs it
    if not fits and work.is_current(file.path):
        why = f"does not fit its data file, or is not as it was written: `rm -r {folder}` and restart the server"
        work.report.add("index", folder, f"{why}, which builds it again")


_READ = ["id", "source", "import_id"]
"""The columns that are compared with anything."""


def check_evidence(work: Verification) -> None:
    """Read all that the version's manifest names."""
    work.begin_stage("evidence", 0)
    try:
        work.manifest = work.snapshot.evidence
    except UnreadableWarehouse as error:
        path = work.snapshot.manifest.path if work.snapshot.manifest is not None else work.paths.evidence
        work.report.add("evidence", path, reason_of(error, path))
    for file in work.manifest.sighting_files():
        _check_evidence_file(work, file)
    for mapped in work.manifest.mapped:
        work.has_bytes(StoredFile("evidence", mapped.path, pa.schema([]), mapped.rows, mapped.size, mapped.sha256))
        if any(said is not None and said[0] not in work.manifest.sources for said in mapped.statements):
            work.report.add("evidence", mapped.path, "a statement of a source that is not in the manifest")


def _check_evidence_file(work: Verification, file: EvidenceFile) -> None:
    stored = StoredFile("evidence", file.path, SIGHTING_SCHEMA, file.rows, file.size, file.sha256)
    if work.metadata_of(stored) is None:
        return
    try:
        for _ in batches_in(file.path, _READ):
            pass
    except UnreadableWarehouse as error:
        work.add_unreadable(stored, error)
    else:
        work.readable.add(file.path)


# Files that only older versions name.


def check_older_files(work: Verification) -> None:
    """Compare the bytes of what `--as-of` reads and a backup copies. What is not there was vacuumed."""
    work.begin_stage("older versions", 0)
    newest = {file.path for file in (*work.snapshot.all_files(), *work.manifest.all_files())}
    newest |= {*sources_paths(work.paths, work.manifest)}
    data = (_older_file(file) for entry in work.entries for file in entry.added)
    older = {file.path: file for file in (*data, *_older_evidence(work)) if file.path not in newest}
    for_each(work.has_bytes, (file for file in older.values() if file.path.exists()), work.threads)


def _older_file(file: DataFile | EvidenceFile | MappedFile) -> StoredFile:
    return StoredFile("older", file.path, pa.schema([]), file.rows, file.size, file.sha256)


def _older_evidence(work: Verification) -> Iterator[StoredFile]:
    """The manifests before the newest one, with their sources and files as far as they can be read."""
    read = {work.snapshot.manifest}
    for entry in work.entries:
        try:
            manifest = manifest_of_entry(work.paths, entry)
        except UnreadableWarehouse as error:
            path = work.paths.log_entry(entry.version)
            work.report.add("log", path, reason_of(error, path))
            continue
        if manifest is None or manifest in read:
            continue
        read.add(manifest)
        yield StoredFile("older", manifest.path, pa.schema([]), 0, sha256=manifest.sha256)
        with suppress(UnreadableWarehouse):  # vacuumed, or a finding by its digest
            name, sha256 = sources_of(manifest)
            yield StoredFile("older", work.paths.evidence / name, pa.schema([]), 0, sha256=sha256)
            yield from map(_older_file, manifest_of(manifest).all_files())


# The staging file: its pages, its sequences, and its rows.

_LOST = "lost or replaced; rows that were POSTed and not folded may be gone with it"


def check_staged(work: Verification) -> None:
    """Read the staging file, and check it by itself and beside the table's highest ids and times."""
    path = work.paths.staging
    given = given_out(work.paths)  # read first: others may give out more
    if not path.exists():
        if work.snapshot.version >= 0 or any(given.values()):
            work.report.add("staging", path, f"missing: {_LOST}")
        work.complete.add(STAGING)
        return
    try:
        with open_read_only(path) as staging:
            losses = [f"{loss}; {ACCEPT}" for loss in staging.losses(given, work.snapshot.high_water)]
            for problem in (*_problems(work, staging), *losses):
                work.report.add("staging", path, problem)
            for collection in work.staged:
                _check_rows(work, collection, staging)
        work.complete.add(STAGING)
    except (UnreadableWarehouse, TypeError, LookupError) as error:  # a row or column that must be there is missing
        work.report.add("staging", path, reason_of(error, path))


def _problems(work: Verification, staging: Transaction) -> Iterator[str]:
    """What is wrong with the file as a whole."""
    yield from staging.integrity_problems()
    if staging.format() != FORMAT:
        yield f"format {staging.format()}, not {FORMAT}"
    id = usable_identity(work.paths).id
    if id and staging.warehouse() != id:
        yield f"belongs to another warehouse, not to {id}"


def _check_rows(work: Verification, collection: Collection, staging: Transaction) -> None:
    path, report, table = work.paths.staging, work.report, work.snapshot.high_water[collection]
    rows = work.staged[collection] = staging.rows(collection, 0)
    report.staged[collection] = sum(row.id > table.id for row in rows)
    last = staging.sequence(collection)
    if last.id < table.id or last.created_at < table.created_at:
        why = f"older than the table, or {_LOST}: {collection} at id {last.id}, the table at {table.id}"
        report.add("sequence", path, why)
    for row in rows:
        if row.id > last.id or row.created_at > last.created_at:
            why = f"above the sequence: id {last.id}, time {last.created_at}"
            report.add("sequence", path, why, f"id {row.id}")
        if row.id > table.id and row.created_at <= table.created_at:
            report.add("order", path, "its created_at is not above the table's", f"id {row.id}")
    if rows:
        report.extend(CheckedRows(report.name(path), collection, _batch(rows), hash_bytes=32).findings())


def _batch(rows: list[StagedRow]) -> pa.RecordBatch:
    columns = {
        "id": pa.array([row.id for row in rows], pa.int64()),
        "created_at": pa.array([row.created_at for row in rows], pa.int64()),
        "text_signature": pa.array([row.text for row in rows], pa.string()),
        "hash": pa.array([row.digest for row in rows], pa.binary()),
    }
    return pa.record_batch(columns)
