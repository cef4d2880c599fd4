"""Checks everything that is stored, and changes nothing: checksums, hashes, invariants, indexes.

Servers and importers may work meanwhile. The version is read first: what is folded or published after that is of a
later one. Files are listed before the log is read for the last time: a file that a version names by then was no orphan.

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
from sigdir.warehouse.verify.data_files import check_data_files, check_evidence, check_older_files, check_staged
from sigdir.warehouse.verify.files import Finding, Verification, VerifyReport
from sigdir.warehouse.verify.history import (
    check_log,
    check_rejects,
    check_relations,
    check_suppressed,
    note_leftovers,
)

__all__ = ["Finding", "VerifyReport", "verify"]


CHECKS: tuple[Callable[[Verification], None], ...] = (
    check_staged,  # the staging file: staging, sequence, order, text, hash
    check_log,  # the log's entries: log, import, watermark
    check_data_files,  # data files and their indexes: file, sha256, order, text, hash, log, index
    check_rejects,  # rejects files: rejects
    check_evidence,  # the manifest and the files of the evidence: evidence
    check_older_files,  # files that only older versions name: older
    check_suppressed,  # the suppress list and the files that servers show by it: suppressed, visible
    check_relations,  # all rows together: twice, fold, import, evidence, sighting
    note_leftovers,  # all folders: notes of what no version names
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
    snapshot = read_snapshot(paths)
    with connect(memory_limit, threads) as engine:
        work = Verification(paths, report, snapshot, engine, threads, begin_stage, progress)
        report.version, report.files = snapshot.version, len(snapshot.all_files())
        for collection in COLLECTIONS:
            report.rows[collection] = snapshot.count(collection)
        for check in CHECKS:
            check(work)
    report.seconds = time.monotonic() - began
    return report
