"""The staging file: its pages, its sequences, and its rows."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.staging.rows import HighWaterMark, StagedRow
from sigdir.warehouse.staging.stamp import given_out
from sigdir.warehouse.staging.transaction import ACCEPT, Transaction
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.identity import FORMAT, usable_identity
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.verify.files import StagedState, Verification
from sigdir.warehouse.verify.report import VerifyReport, reason_of
from sigdir.warehouse.verify.rows import CheckedRows

_LOST = "lost or replaced; rows that were POSTed and not folded may be gone with it"


def read_staged(report: VerifyReport, paths: Paths) -> StagedState:
    """Read the staging file and check it by itself."""
    path, id, state = paths.staging, usable_identity(paths).id, StagedState()
    if not path.exists():
        return state
    given = given_out(paths)  # read first: others may give out more
    try:
        with open_read_only(path) as staging:
            problems = staging.integrity_problems()
            if staging.format() != FORMAT:
                problems.append(f"format {staging.format()}, not {FORMAT}")
            if id and staging.warehouse() != id:
                problems.append(f"belongs to another warehouse, not to {id}")
            problems += [f"{loss}; {ACCEPT}" for loss in staging.losses(given)]
            for problem in problems:
                report.add("staging", path, problem)
            state.version = staging.version()
            for collection in COLLECTIONS:
                state.rows[collection] = staging.rows(collection, 0)
                _check_rows(report, paths, collection, state.rows[collection], staging.sequence(collection))
    except (UnreadableWarehouse, TypeError, LookupError) as error:  # a row or column that must be there is missing
        report.add("staging", path, reason_of(error, path))
    return state


def check_staged(work: Verification) -> None:
    """Compare staging with the snapshot: version, sequences, times."""
    paths, snapshot = work.paths, work.snapshot
    if work.staged.version > snapshot.version:
        why = f"ends at version {snapshot.version}, and version {work.staged.version} was published"
        work.report.add("log", paths.log, why)
    for collection, table in snapshot.high_water.items():
        for row in work.waiting(collection):
            if row.created_at <= table.created_at:
                why = "its created_at is not above the table's"
                work.report.add("order", paths.staging, why, f"id {row.id}")
    if snapshot.version >= 0 and not paths.staging.exists():
        work.report.add("staging", paths.staging, f"missing: {_LOST}")
    elif snapshot.version >= 0:
        # Read again: the snapshot may be newer than the rows that were read.
        with suppress(UnreadableWarehouse), open_read_only(paths.staging) as staging:
            _check_sequences(work, staging)


def _check_sequences(work: Verification, staging: Transaction) -> None:
    for collection, table in work.snapshot.high_water.items():
        last = staging.sequence(collection)
        if last.id < table.id or last.created_at < table.created_at:
            why = f"older than the table, or {_LOST}: {collection} at id {last.id}, the table at {table.id}"
            work.report.add("sequence", work.paths.staging, why)


def _check_rows(
    report: VerifyReport, paths: Paths, collection: Collection, rows: list[StagedRow], last: HighWaterMark
) -> None:
    for row in rows:
        if row.id > last.id or row.created_at > last.created_at:
            why = f"above the sequence: id {last.id}, time {last.created_at}"
            report.add("sequence", paths.staging, why, f"id {row.id}")
    if rows:
        columns = {
            "id": pa.array([row.id for row in rows], pa.int64()),
            "created_at": pa.array([row.created_at for row in rows], pa.int64()),
            "text_signature": pa.array([row.text for row in rows], pa.string()),
            "hash": pa.array([row.digest for row in rows], pa.binary()),
        }
        checked = CheckedRows(report.name(paths.staging), collection, pa.record_batch(columns), hash_bytes=32)
        report.extend(checked.findings())
