"""The report of an import for people: a table of the inputs, the totals, what was rejected and why."""

from __future__ import annotations

import os

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sigdir.pipeline.report import COUNTS, ImportReport

_SHOWN_FILES = 25
_SHOWN_SKIPPED = 3


def print_report(report: ImportReport, console: Console) -> None:
    console.print(_files_table(report))
    if report.skipped:
        more = ", ..." if len(report.skipped) > _SHOWN_SKIPPED else ""
        shown = ", ".join(report.skipped[:_SHOWN_SKIPPED]) + more
        line = f"Skipped {len(report.skipped):,} of no known format: {shown}"
        console.print(line, highlight=False, markup=False, emoji=False)
    for collection, counts in report.collections().items():
        line = f"{collection}: {counts['imported']:,} imported, {counts['duplicate']:,} duplicate"
        console.print(line, highlight=False)
    for reason, count in report.reasons().items():
        line = f"rejected {count:>9,} {reason:<16} e.g. {_printable(_example(report, reason))}"
        console.print(line, highlight=False, markup=False, emoji=False, overflow="ellipsis", no_wrap=True)
    console.print(_last_line(report), highlight=False)


def _example(report: ImportReport, reason: str) -> str:
    example = next((example for example in report.examples if example.reason == reason), None)
    return f"{os.path.basename(example.file)}:{example.line} {example.text}" if example else ""


def _files_table(report: ImportReport) -> Table:
    table = Table(title="Import" + (" (dry run)" if report.dry_run else ""))
    table.add_column("file", min_width=20, overflow="fold")
    table.add_column("format")
    for name in COUNTS:
        table.add_column(name, justify="right")
    by_size = sorted(report.files, key=lambda file: -file.read)
    shown = by_size if len(by_size) <= _SHOWN_FILES else by_size[: _SHOWN_FILES - 1]
    for file in shown:
        counts = (f"{getattr(file, name):,}" for name in COUNTS)
        table.add_row(Text(_shortened(file.path)), file.format, *counts)
    if len(shown) < len(by_size):
        rest = ImportReport(files=by_size[len(shown) :])
        table.add_row(f"{len(rest.files):,} more files", "", *(f"{count:,}" for count in rest.totals().values()))
    table.add_section()
    table.add_row("total", "", *(f"{count:,}" for count in report.totals().values()))
    return table


def _last_line(report: ImportReport) -> str:
    speed = f"{report.total('read'):,} read in {report.seconds:.1f} s ({report.rows_per_second:,.0f} a second)"
    if report.dry_run:
        return f"{speed}; dry run, nothing published"
    if not report.published:
        return f"{speed}; nothing new, version {max(report.version, 0)} stays"
    rejects = f"; rejects: sigdir rejects --import {report.rejects_in}" if report.rejects_in else ""
    return f"{speed}; version {report.version} published{rejects}"


def _shortened(path: str) -> str:
    return path if len(path) <= 48 else "..." + path[-45:]


def _printable(text: str) -> str:
    """Text without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:160])
