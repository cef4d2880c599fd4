"""The log: its entries, the rejects that they name, and files that belong to nothing: what a killed process left."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

from sigdir.warehouse.index.view import unused_indexes
from sigdir.warehouse.log.entry import LogEntry, read_entries
from sigdir.warehouse.log.history import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import dead_runs
from sigdir.warehouse.table.parquet import REJECT_SCHEMA, rows_and_digest
from sigdir.warehouse.transfer.survey import survey_of
from sigdir.warehouse.verify.files import LOG, StoredFile, Verification

_COUNTS = ("read", "imported", "duplicate", "rejected")


def check_log(work: Verification) -> None:
    """Read every entry, and check what it counts, and the watermarks of the snapshot."""
    paths = work.paths
    work.begin_stage("log", 0)
    try:
        work.entries = list(read_entries(paths, work.snapshot.version))
        work.complete.add(LOG)
    except UnreadableWarehouse as error:
        work.report.add("log", paths.log, str(error))
    for entry in work.entries:
        try:
            problems = list(_problems_of(entry))
        except (KeyError, TypeError) as error:
            problems = [("log", f"{type(error).__name__} in its summary: {error}")]
        for what, why in problems:
            work.report.add(what, paths.log_entry(entry.version), why)
    _check_import_numbers(work)
    for collection, files in work.snapshot.files.items():
        watermark = work.snapshot.high_water[collection].id
        if files and files[-1].last_id > watermark:
            why = f"{collection} has id {files[-1].last_id}, above its watermark {watermark}"
            work.report.add("watermark", paths.log_entry(work.snapshot.version), why)


def check_rejects(work: Verification) -> None:
    """Check that each import's rejects file holds the rows that the import rejected."""
    work.begin_stage("rejects", 0)
    for entry in work.entries:
        summary = entry.summary or {}
        rejected = summary.get("totals", {}).get("rejected", 0)
        if not rejected:
            continue
        file = StoredFile("rejects", work.paths.rejects_file(summary["run"]), REJECT_SCHEMA, rejected)
        if work.metadata_of(file) is None:
            continue
        try:
            _, digest = rows_and_digest(file.path)
        except UnreadableWarehouse as error:
            work.add_unreadable(file, error)
            continue
        if summary.get("rejects_sha256") != digest:
            work.report.add("rejects", file.path, f"not the rows that import {summary['import']} rejected")


def _check_import_numbers(work: Verification) -> None:
    summaries = {entry.version: entry.summary or {} for entry in work.entries}
    imports = [(version, summary["import"]) for version, summary in summaries.items() if "import" in summary]
    for (_, before), (version, number) in pairwise([(0, 0), *imports]):
        if number <= before:
            work.report.add("log", work.paths.log_entry(version), f"import {number} comes after import {before}")


def _problems_of(entry: LogEntry) -> Iterator[tuple[str, str]]:
    """What does not add up in an entry's summary: what a finding is called, and why."""
    summary = entry.summary or {}
    rows = sum(file.rows for file in entry.added)
    logged = sum(summary.get("rows", {}).values()) + sum(summary.get("folded", {}).values())
    if "rows" in summary and not entry.removed and logged != rows:
        yield "log", f"its files have {rows} rows, its summary says {logged}"
    if "import" in summary:
        for why in _wrong_counts(summary):
            yield "import", why


def _wrong_counts(summary: Mapping[str, Any]) -> Iterator[str]:
    """Check that everything an import read is accounted for."""
    totals, sources = summary["totals"], summary["sources"]
    for name, counts in [("in total", totals), *((source["path"], source) for source in sources)]:
        read, imported, duplicate, rejected = (counts[count] for count in _COUNTS)
        if read != imported + duplicate + rejected:
            yield f"{name}: {read} read are not {imported} imported, {duplicate} duplicate, {rejected} rejected"
    for count in _COUNTS:
        if totals[count] != sum(source[count] for source in sources):
            yield f"the {count} of its sources are not {totals[count]}, which is the total"
    if totals["imported"] != sum(summary["rows"].values()):
        yield f"{totals['imported']} imported, and {sum(summary['rows'].values())} rows"


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
