"""The staging file: its pages, its sequences, and its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sigdir.signatures.collections import Collection
from sigdir.warehouse.staging.reader import given_out, open_read_only
from sigdir.warehouse.staging.rows import StagedRow
from sigdir.warehouse.staging.transaction import ACCEPT, Transaction
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.identity import FORMAT, usable_identity
from sigdir.warehouse.verify.data_files import CheckedRows
from sigdir.warehouse.verify.files import STAGING, Verification, reason_of

_LOST = "lost or replaced; rows that were POSTed and not folded may be gone with it"


def check_staged(work: Verification) -> None:
    """Read the staging file, and check it by itself and beside the table's highest ids and times."""
    path = work.paths.staging
    if not path.exists():
        if work.snapshot.version >= 0:
            work.report.add("staging", path, f"missing: {_LOST}")
        work.complete.add(STAGING)
        return
    given = given_out(work.paths)  # read first: others may give out more
    try:
        with open_read_only(path) as staging:
            for problem in (*_problems(work, staging), *(f"{loss}; {ACCEPT}" for loss in staging.losses(given))):
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
