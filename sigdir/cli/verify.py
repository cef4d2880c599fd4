"""The command that looks at a warehouse with the grammar and the hash at hand: verify."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import orjson

from sigdir.cli.options import Failure, warehouse_option
from sigdir.pipeline.mirror import faults_of_states
from sigdir.pipeline.progress import Reporter, reporter
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.verify import Finding, Report
from sigdir.warehouse.verify import verify as look_at


@click.command()
@warehouse_option
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.option("--threads", type=click.IntRange(1, 256), default=None, help="[default: one a core]")
@click.option(
    "--memory-limit", default="512MB", show_default=True, help="What looking for doubles takes before it spills."
)
def verify(folder: Path, as_json: bool, quiet: bool, threads: int | None, memory_limit: str) -> None:
    """Check everything that is stored, and change nothing.

    Recomputes every hash, normalises every text again, and looks at checksums, ids, times,
    doubles, the log, staging, the accounts of the imports, the servers' indexes, and how far
    mirrors are. Servers
    and importers may go on meanwhile. A finding is one line: what, where, why. A note is
    what a killed process left behind; the next publish clears it up.
    Exit status: 0 clean, 1 findings, 2 the warehouse cannot be checked.

    \b
    Examples:
      sigdir verify
      sigdir verify --warehouse /backups/signatures --json
    """
    paths = Paths(folder.absolute())
    try:
        with reporter(quiet) as progress:
            report = _looked(paths, threads or os.cpu_count() or 1, memory_limit, progress)
    except WarehouseError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename or folder}: {error.strerror or error}") from error
    if as_json:
        click.echo(orjson.dumps(report.as_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    else:
        _print(report, folder)
    sys.exit(1 if report.findings else 0)


def _looked(paths: Paths, threads: int, memory_limit: str, progress: Reporter) -> Report:
    report = look_at(paths, threads, memory_limit, progress.stage, progress.advance)
    for path, why in faults_of_states(paths):
        report.findings.append(Finding("mirror", path.relative_to(paths.root).as_posix(), "", why))
    return report


def _print(report: Report, folder: Path) -> None:
    for finding in report.findings:
        click.echo(str(finding))
    for note in report.notes:
        click.echo(f"note: {note}")
    for collection in COLLECTIONS:
        click.echo(f"{collection:<18}{report.rows[collection]:>12,} rows {report.staged[collection]:>8,} staged")
    verdict = f"{len(report.findings):,} findings" if report.findings else "clean"
    click.echo(f"{folder}: version {report.version}, {report.files:,} files, {report.seconds:.1f} s: {verdict}")
