"""The report of an import for people: a table of the inputs, the totals, what was rejected and why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from sigdir.pipeline.errors import one_line
from sigdir.pipeline.report import COUNTS, SKIP_REASONS, ImportReport
from sigdir.pipeline.source import BytecodeCounts
from sigdir.signatures.canonicalise import MAX_VARIANTS
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.plural import counted

if TYPE_CHECKING:
    from rich.table import Table

_FILE_COLUMNS = 10_000  # of a pipe or a file: no line is wrapped
_SHOWN_FILES = 25
_SHOWN_NAMES = 3
_SHOWN_FAULTS = 10


def print_report(report: ImportReport) -> None:
    """Write the report on standard output. A terminal shows the begin of an example, a file all of it."""
    from rich.console import Console  # 75 ms, which --json and --quiet do without

    width = None if sys.stdout.isatty() else _FILE_COLUMNS
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    console.print(_files_table(report))
    for line in unread_lines(report):
        console.print(line, soft_wrap=True)
    for collection, counts in report.collections().items():
        console.print(f"{collection}: {counts['imported']:,} imported, {counts['duplicate']:,} duplicate")
    for reason, count in report.reasons().items():
        line = f"rejected {count:>9,} {reason:<16} e.g. {_printable(_example(report, reason))}"
        console.print(line, overflow="ellipsis", no_wrap=True)
    for line in (*_bytecode_lines(report.bytecode()), *_evidence_lines(report), _last_line(report)):
        console.print(line)


def unread_lines(report: ImportReport) -> Iterator[str]:
    """What was skipped, by reason; then what has no candidates, is rejected as a whole, or is broken."""
    for reason, count in report.skip_reasons().items():
        names = (unread.path for unread in report.skipped if unread.reason == reason)
        yield f"Skipped {count:,} {SKIP_REASONS[reason]}: {_first(names)}"
    empty = [
        file.path
        for file in report.files
        if not file.read and file.fault is None and file.format not in ("deployments", "usage")
    ]
    if empty:
        yield f"No candidates in {len(empty):,} of {len(report.files):,} files: {_first(empty)}"
    for file in report.files:
        for warning in file.warnings:
            yield f"Warning: {one_line(file.path)}: {one_line(warning)}"
    if report.all_rejected:
        yield f"Everything was rejected of {counted(len(report.all_rejected), 'file')}: {_first(report.all_rejected)}"
    if report.faults:
        yield f"{counted(len(report.faults), 'file')} cannot be read to the end:"
        for fault in report.faults[:_SHOWN_FAULTS]:
            yield f"  {fault.path}: {fault.reason}"
        if len(report.faults) > _SHOWN_FAULTS:
            yield f"  ... and {len(report.faults) - _SHOWN_FAULTS:,} more; --json lists all"


def _bytecode_lines(counts: BytecodeCounts) -> Iterator[str]:
    """What the bytecode of contracts proves, and which bytecode was not read."""
    if counts.contracts:
        yield (
            f"bytecode of {counted(counts.contracts, 'contract')}: {counts.compiled:,} candidates compiled, "
            f"{counts.declared:,} only declared; {counts.misfits:,} ABIs do not fit their bytecode"
        )
    if counts.unread:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.unread.most_common())
        yield f"bytecode not read: {reasons}"


def _evidence_lines(report: ImportReport) -> Iterator[str]:
    """What is said of contracts, what is no longer said of texts, or was said too often."""
    if report.deployments or report.interfaces:
        yield f"contracts: {counted(report.deployments, 'address')}, {counted(report.interfaces, 'interface')}"
    for file in report.files:
        if file.usage:
            selectors, topics = (file.usage["hashes"][collection] for collection in COLLECTIONS)
            days = f", {' to '.join(file.usage['days'])}" if file.usage["days"] else ""
            yield (
                f"{one_line(file.path)}: {file.usage['uses']:,} uses of {counted(selectors, 'selector')} and"
                f" {counted(topics, 'topic')}{days}; earlier counts of {file.source} no longer hold"
            )
    if left_out := report.total("variants_left_out"):
        yield f"declarations left out: {left_out:,}, of texts with over {MAX_VARIANTS} in a batch; the texts are kept"
    if report.withdrawn.sightings:
        sightings, texts = counted(report.withdrawn.sightings, "sighting"), counted(report.withdrawn.texts, "text")
        yield f"withdrawn: {sightings}; {texts} no longer named by their source"


def _first(names: Iterable[str]) -> str:
    """The first names, each in one line, and an ellipsis if there are more."""
    shown = [one_line(name) for name in islice(names, _SHOWN_NAMES + 1)]
    return ", ".join(shown[:_SHOWN_NAMES]) + (", ..." if len(shown) > _SHOWN_NAMES else "")


def _example(report: ImportReport, reason: str) -> str:
    example = next((example for example in report.examples if example.reason == reason), None)
    return f"{os.path.basename(example.file)}:{example.line} {example.text}" if example else ""


def _files_table(report: ImportReport) -> Table:
    from rich.table import Table

    table = Table(title="Import" + (" (dry run)" if report.dry_run else ""))
    table.add_column("file", min_width=20, overflow="fold")
    table.add_column("format")
    for name in COUNTS:
        table.add_column(name, justify="right")
    by_size = sorted(report.files, key=lambda file: -file.read)
    shown = by_size if len(by_size) <= _SHOWN_FILES else by_size[: _SHOWN_FILES - 1]
    for file in shown:
        counts = (f"{getattr(file, name):,}" for name in COUNTS)
        table.add_row(_shortened(one_line(file.path)), file.format, *counts)
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
    return f"{speed}; {counted(report.sightings, 'sighting')}; version {report.version} published{rejects}"


def _shortened(path: str) -> str:
    return path if len(path) <= 48 else "..." + path[-45:]


def _printable(text: str) -> str:
    """Text without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text[:160])
