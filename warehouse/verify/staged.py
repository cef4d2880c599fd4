"""The staging file: its pages, its sequences, and the rows that are not folded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.columns import keys_of
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.identity import FORMAT
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.staging.rows import HighWaterMark, StagedRow
from sigdir.warehouse.staging.stamp import given_out
from sigdir.warehouse.staging.transaction import Transaction
from sigdir.warehouse.verify.report import Findings, quoted, reason_of
from sigdir.warehouse.verify.row_group import Array

_CURE = "put staging.sqlite and staging.sqlite-wal back from a backup, or run `sigdir repair` to go on without them"
_LOST = "lost or replaced; rows that were POSTed and not folded may be gone with it"


@dataclass
class StagedState:
    """All staged rows, the folded ones too, and the newest version that staging knows of (-1 for none)."""

    rows: dict[Collection, list[StagedRow]] = field(default_factory=lambda: {c: [] for c in COLLECTIONS})
    version: int = -1


def read_staged(findings: Findings, id: str) -> StagedState:
    """Read the staging file and check it by itself; ``id`` is the warehouse's."""
    path = findings.paths.staging
    state = StagedState()
    if not path.exists():
        return state
    given = given_out(findings.paths)  # read first: others may give out more
    try:
        with open_read_only(path) as staging:
            _check_file(findings, staging, id)
            state.version = staging.version()
            for collection in COLLECTIONS:
                state.rows[collection] = staging.rows(collection, 0)
                _check_sequence(findings, state.rows[collection], staging.sequence(collection))
            for collection, (first, last) in staging.lost(given).items():
                findings.add(
                    "staging", path, f"the rows of {collection} with the ids {first} to {last} are lost: {_CURE}"
                )
    except (UnreadableWarehouse, TypeError, LookupError) as error:  # a row or column that must be there is missing
        findings.add("staging", path, reason_of(error, path))
    return state


def check_against_snapshot(findings: Findings, staged: StagedState, snapshot: Snapshot) -> None:
    """Check that the log has the version that staging knows of, and that the sequences are not below the table."""
    paths = findings.paths
    if staged.version > snapshot.version:
        why = f"ends at version {snapshot.version}, and version {staged.version} was published"
        findings.add("log", paths.log, why)
    if snapshot.version < 0:
        return
    if not paths.staging.exists():
        findings.add("staging", paths.staging, f"missing: {_LOST}")
        return
    # Read again: the snapshot may be newer than the rows that were read.
    with suppress(UnreadableWarehouse), open_read_only(paths.staging) as staging:
        for collection, table in snapshot.high_water.items():
            sequence = staging.sequence(collection)
            if sequence.id < table.id or sequence.created_at < table.created_at:
                why = f"older than the table, or {_LOST}: {collection} at id {sequence.id}, the table at {table.id}"
                findings.add("sequence", paths.staging, why)


def check_waiting(findings: Findings, collection: Collection, rows: list[StagedRow], table: HighWaterMark) -> Array:
    """Check the texts, digests and times of the rows that are not folded; returns the first halves of their keys."""
    path = findings.paths.staging
    digests, canonical = check_canonical(collection, pa.array([row.text for row in rows], pa.string()))
    for row, digest, is_canonical in zip(rows, digests, canonical.tolist(), strict=True):
        if row.digest != digest.tobytes():
            findings.add("hash", path, f"not the hash of {quoted(row.text)}", f"id {row.id}")
        if row.created_at <= table.created_at:
            findings.add("order", path, "its created_at is not above the table's", f"id {row.id}")
        if not is_canonical:
            findings.add("text", path, f"not canonical: {quoted(row.text)}", f"id {row.id}")
    return keys_of(digests).high


def _check_file(findings: Findings, staging: Transaction, id: str) -> None:
    path = findings.paths.staging
    for problem in staging.integrity_problems():
        findings.add("staging", path, problem)
    if staging.format() != FORMAT:
        findings.add("staging", path, f"format {staging.format()}, not {FORMAT}")
    if id and staging.warehouse() != id:
        findings.add("staging", path, f"belongs to another warehouse, not to {id}")


def _check_sequence(findings: Findings, rows: Sequence[StagedRow], last: HighWaterMark) -> None:
    path = findings.paths.staging
    previous = 0
    for row in rows:
        if row.id > last.id or row.created_at > last.created_at:
            why = f"above the sequence: id {last.id}, time {last.created_at}"
            findings.add("sequence", path, why, f"id {row.id}")
        if row.created_at <= previous:
            findings.add("order", path, "created_at does not rise with id", f"id {row.id}")
        previous = row.created_at
