"""The log: its entries, the counts of each import, and the rejects that they name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.log.entry import LogEntry, read_entries
from sigdir.warehouse.rejects import rows_and_digest
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.verify.report import Findings, reason_of

_COUNTS = ("read", "imported", "duplicate", "rejected")


@dataclass
class History:
    """The entries up to the snapshot, none where one cannot be read, and the digests of data files by their names."""

    entries: list[LogEntry] = field(default_factory=list)
    sha256: dict[str, str] = field(default_factory=dict)


def check_log(findings: Findings, snapshot: Snapshot) -> History:
    """Check every entry of the log, and the watermarks of the snapshot."""
    paths = findings.paths
    history = History()
    try:
        history.entries = list(read_entries(paths, snapshot.version))
    except UnreadableWarehouse as error:
        findings.add("log", paths.log, str(error))
        return history
    last_import = 0
    for entry in history.entries:
        try:
            history.sha256.update((entry.summary or {}).get("sha256", {}))
            last_import = _check_entry(findings, entry, last_import)
        except (KeyError, TypeError) as error:
            findings.add("log", paths.log_entry(entry.version), f"{type(error).__name__} in its summary: {error}")
    for collection, files in snapshot.files.items():
        watermark = snapshot.high_water[collection].id
        if files and files[-1].last_id > watermark:
            why = f"{collection} has id {files[-1].last_id}, above its watermark {watermark}"
            findings.add("watermark", paths.log_entry(snapshot.version), why)
    return history


def check_import_counts(findings: Findings, history: History, collection: Collection, rows: Counter[int]) -> None:
    """Check that the table has as many rows of each import as the log says; ``rows`` by import, POSTed ones as 0."""
    if not history.entries:
        return
    logged: Counter[int] = Counter()
    for entry in history.entries:
        summary = entry.summary or {}
        logged[0] += summary.get("folded", {}).get(collection, 0)
        if "import" in summary:
            logged[summary["import"]] += summary["rows"][collection]
        for number, removed in summary.get("removed", {}).get(collection, {}).items():  # by `sigdir repair`
            logged[int(number)] -= removed
    for number in sorted(logged.keys() | rows.keys()):
        if logged[number] != rows[number]:
            source = f"import {number}" if number else "POSTs"
            why = f"{rows[number]} rows of {source}; the log says {logged[number]}"
            findings.add("import", findings.paths.partition(collection), why)


def check_rejects(findings: Findings, history: History) -> None:
    """Check that each import's rejects file holds the rows that the import rejected."""
    for entry in history.entries:
        summary = entry.summary or {}
        rejected = summary.get("totals", {}).get("rejected", 0)
        if not rejected:
            continue
        path = findings.paths.rejects_file(summary["run"])
        number = summary["import"]
        try:
            rows, digest = rows_and_digest(path)
        except UnreadableWarehouse as error:
            why = reason_of(error, path) if path.exists() else "missing"
            findings.add("rejects", path, f"{why}; import {number} rejected {rejected}")
            continue
        if rows != rejected:
            findings.add("rejects", path, f"{rows} rows; import {number} rejected {rejected}")
        elif summary.get("rejects_sha256") != digest:
            findings.add("rejects", path, f"not the rows that import {number} rejected")


def _check_entry(findings: Findings, entry: LogEntry, last_import: int) -> int:
    """Check one entry's counts; returns the number of the newest import up to it."""
    summary = entry.summary
    if summary is None:
        return last_import
    path = findings.paths.log_entry(entry.version)
    rows = sum(file.rows for file in entry.added)
    logged = sum(summary.get("rows", {}).values()) + sum(summary.get("folded", {}).values())
    if "rows" in summary and not entry.removed and logged != rows:
        findings.add("log", path, f"its files have {rows} rows, its summary says {logged}")
    if "import" not in summary:
        return last_import
    number: int = summary["import"]
    if number <= last_import:
        findings.add("log", path, f"import {number} comes after import {last_import}")
    _check_counts(findings, path, summary)
    return number


def _check_counts(findings: Findings, path: Path, summary: Mapping[str, Any]) -> None:
    """Check that everything an import read is accounted for."""
    totals, sources = summary["totals"], summary["sources"]
    for name, counts in [("in total", totals), *((source["path"], source) for source in sources)]:
        read, imported, duplicate, rejected = (counts[count] for count in _COUNTS)
        if read != imported + duplicate + rejected:
            why = f"{name}: {read} read are not {imported} imported, {duplicate} duplicate, {rejected} rejected"
            findings.add("import", path, why)
    for count in _COUNTS:
        if totals[count] != sum(source[count] for source in sources):
            findings.add("import", path, f"the {count} of its sources are not {totals[count]}, which is the total")
    if totals["imported"] != sum(summary["rows"].values()):
        findings.add("import", path, f"{totals['imported']} imported, and {sum(summary['rows'].values())} rows")
