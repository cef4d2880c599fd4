"""The command `sigdir report`."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import as_of_option, json_option, quiet_option, shown, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.cli.progress import reporter
from sigdir.serve.statistics import page
from sigdir.signatures.errors import counted
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.statistics import Statistics, statistics
from sigdir.warehouse.table.files import write_file

_STDOUT = Path("-")


@command(state="no page was written")
@click.argument("out", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@warehouse_option
@as_of_option
@json_option("Write the numbers as JSON to standard output; without OUT no page is written.")
@quiet_option("Show no progress and no summary.")
def report(out: Path | None, folder: Path, version: int | datetime | None, as_json: bool, quiet: bool) -> None:
    """Write a page about the warehouse, with totals and plots.

    OUT is one HTML file, or - for standard output; it appears when it is complete. The page shows
    growth, sources, types and numbers of parameters, styles of names, collisions and leading zeros
    next to what chance predicts, and reasons of rejects. Each plot has its numbers as a table. The
    page has no scripts and loads nothing.

    Exit status: 0 done, 2 the page or the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir report signatures.html
      sigdir report --as-of 3 then.html
      sigdir report --json | jq .styles
    """
    if out is None and not as_json:
        raise click.UsageError("name the page to write, OUT, or ask for the numbers with --json")
    if as_json and out == _STDOUT:
        raise click.UsageError("the page and the numbers cannot both go to standard output")
    began = time.monotonic()
    with reporter(quiet) as progress:
        numbers = statistics(Warehouse(folder, version), lambda part: progress.stage(part, 0))
        if out is not None:
            progress.stage("draw", 0)
            _write_page(out, page(numbers))
    if as_json:
        write_json(numbers)
    if not quiet:
        _write_summary(shown(folder), out, numbers, time.monotonic() - began)


def _write_page(out: Path, html: bytes) -> None:
    if out == _STDOUT:
        sys.stdout.buffer.write(html)
        sys.stdout.flush()
    else:
        write_file(out.absolute(), html)


def _write_summary(folder: str, out: Path | None, numbers: Statistics, seconds: float) -> None:
    state = (
        f"version {numbers.version}, {counted(numbers.total, 'row')}"
        if numbers.version >= 0
        else "nothing imported yet"
    )
    file = f": {out}, {out.stat().st_size / 1e3:,.0f} kB" if out and out != _STDOUT else ""
    write_line(f"{folder}: {state}, {seconds:.1f} s{file}")
