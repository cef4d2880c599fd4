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
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.table.paths import Paths, existing
from sigdir.warehouse.verify.data_files import check_data_files
from sigdir.warehouse.verify.evidence import check_evidence
from sigdir.warehouse.verify.files import Verification
from sigdir.warehouse.verify.history import check_log, check_rejects
from sigdir.warehouse.verify.leftovers import note_leftovers
from sigdir.warehouse.verify.report import Finding, VerifyReport
from sigdir.warehouse.verify.staged import check_staged, read_staged

__all__ = ["Finding", "VerifyReport", "verify"]

CHECKS: tuple[Callable[[Verification], None], ...] = (
    check_staged,  # staging and the table's watermarks: staging, sequence, order, log
    check_log,  # the log's entries: log, import, watermark
    check_data_files,  # data files and indexes: file, sha256, index, order, text, hash, twice, fold, import
    check_rejects,  # rejects files: rejects
    check_evidence,  # the manifest and the files of sightings: evidence, sighting
    note_leftovers,  # all folders: what no version names
)
"""What each reads, and what its findings are called. Later ones use what earlier ones have read."""


def verify(
    paths: Paths,
    threads: int,
    memory_limit: str,
    begin_stage: Callable[[str, int], None],
    progress: Callable[[int], None],
) -> VerifyReport:
    """Check everything; raises UnreadableWarehouse where nothing can be checked.

    ``begin_stage`` is called with the name of each stage and its number of rows, ``progress`` with rows checked.
    """
    existing(paths.root)
    began = time.monotonic()
    report = VerifyReport(paths.root)
    staged = read_staged(report, paths)
    snapshot = read_snapshot(paths)
    with connect(paths, memory_limit, threads) as engine:
        work = Verification(paths, report, snapshot, staged, engine, threads, begin_stage, progress)
        report.version, report.files = snapshot.version, len(snapshot.all_files())
        for collection in COLLECTIONS:
            report.rows[collection] = snapshot.count(collection)
            report.staged[collection] = len(work.waiting(collection))
        for check in CHECKS:
            check(work)
    report.seconds = time.monotonic() - began
    return report
