"""Files that belong to nothing: data files, rejects, evidence, indexes and run folders that a killed process left."""

from __future__ import annotations

import math
from contextlib import suppress

from sigdir.warehouse.index.view import unused_indexes
from sigdir.warehouse.log.history import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import dead_runs
from sigdir.warehouse.transfer.survey import survey_of
from sigdir.warehouse.verify.files import Verification


def note_leftovers(work: Verification) -> None:
    """Note the files that nothing names. Lists them first and reads the log afterwards: others may publish."""
    paths, report = work.paths, work.report
    listed = [*paths.data_files(), *paths.rejects.glob("*"), *paths.evidence_files()]
    indexes = {path for path in paths.cache.glob("*") if path.is_dir()}
    unfinished: list[str] = []
    with suppress(UnreadableWarehouse), open_read_only(paths.staging) as staging:
        unfinished = staging.unfinished()
    newest = read_snapshot(paths)
    try:
        named = survey_of(paths, newest, math.inf).kept
        named |= {paths.rejects_file(summary["run"]) for summary in history(paths)}
    except UnreadableWarehouse:
        return  # a finding already
    for path in sorted(listed):
        if path not in named and not path.name.startswith(tuple(unfinished)) and path.exists():
            report.note(path, "no version names it")
    for path in sorted(indexes & set(unused_indexes(paths, newest))):
        if path.exists():
            report.note(path, "an index of no data file of the newest version")
    for path in dead_runs(paths.tmp):
        report.note(path, "left by an import that was killed")
