"""Checks everything that is stored, and changes nothing: checksums, hashes, invariants, indexes.

Servers and importers may work meanwhile. Staging is read before the log, so rows folded in between are in both:
they count as folded and must be in the table as they were staged. Files are listed before the log is read for
the last time: a file that a version names by then was no orphan.

A finding breaks an invariant or says that bytes are damaged. A note is what a killed process left; the next
publish or server start removes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.identity import usable_identity
from sigdir.warehouse.paths import Paths, existing
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.verify.evidence import check_evidence
from sigdir.warehouse.verify.history import check_import_counts, check_log, check_rejects
from sigdir.warehouse.verify.leftovers import note_leftovers
from sigdir.warehouse.verify.report import Finding, Findings, Report
from sigdir.warehouse.verify.rows import Pass, check_rows
from sigdir.warehouse.verify.staged import check_against_snapshot, read_staged

__all__ = ["Finding", "Report", "verify"]


def verify(
    paths: Paths,
    threads: int,
    memory_limit: str,
    begin_stage: Callable[[str, int], None],
    progress: Callable[[int], None],
) -> Report:
    """Check everything; raises UnreadableWarehouse where nothing can be checked.

    ``begin_stage`` is called with the name of each stage and its number of rows, ``progress`` with rows checked.
    """
    existing(paths.root)
    began = time.monotonic()
    findings = Findings(paths)
    report = findings.report
    staged = read_staged(findings, usable_identity(paths).id)
    snapshot = read_snapshot(paths)
    report.version = snapshot.version
    check_against_snapshot(findings, staged, snapshot)
    begin_stage("log", 0)
    history = check_log(findings, snapshot)
    imports = {}
    with connect(paths, memory_limit, threads) as engine:
        work = Pass(findings, snapshot, history, engine, threads, progress)
        for collection in COLLECTIONS:
            report.files += len(snapshot.files[collection])
            report.rows[collection] = snapshot.count(collection)
            report.staged[collection] = sum(
                row.id > snapshot.high_water[collection].id for row in staged.rows[collection]
            )
            begin_stage(collection, report.rows[collection] + report.staged[collection])
            imports[collection] = check_rows(work, collection, staged.rows[collection])
    for collection, rows in imports.items():
        if rows is not None:
            check_import_counts(findings, history, collection, rows)
    begin_stage("rejects", 0)
    check_rejects(findings, history)
    begin_stage("evidence", 0)
    check_evidence(findings, snapshot)
    note_leftovers(findings)
    report.seconds = time.monotonic() - began
    return report
