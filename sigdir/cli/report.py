"""The command that draws a warehouse: report."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click
import orjson

from sigdir.cli.options import Failure, as_of_option, warehouse_option
from sigdir.serve.statistics.report import page
from sigdir.warehouse import Warehouse
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.files import write_file
from sigdir.warehouse.sql.statistics import Statistics, statistics


@click.command()
@click.argument("out", required=False, type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@warehouse_option
@as_of_option
@click.option("--json", "as_json", is_flag=True, help="The numbers on standard output; without OUT no page is made.")
@click.option("--quiet", is_flag=True, help="No line at the end.")
def report(out: Path | None, folder: Path, version: int | None, as_json: bool, quiet: bool) -> None:
    """Make a page about the warehouse: totals, and plots of what is in it.

    OUT is one HTML file, written whole or not at all: growth, sources, types and numbers of parameters,
    styles of names, collisions and leading zeros beside chance, reasons of rejects, each with its
    numbers as a table. It asks for nothing from anywhere and needs no script; - is standard output.
    Exit status: 0 made, 2 cannot.

    \b
    Examples:
      sigdir report signatures.html
      sigdir report --as-of 3 then.html
      sigdir report --json | jq .styles
    """
    if out is None and not as_json:
        raise click.UsageError("name the page to write, OUT, or ask for the numbers with --json")
    if as_json and str(out) == "-":
        raise click.UsageError("the page and the numbers cannot both go to standard output")
    began = time.monotonic()
    try:
        found = statistics(Warehouse(folder, version))
        if out is not None:
            _put(out, page(found))
    except WarehouseError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{out}: {error.strerror or error}") from error
    if as_json:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    if not quiet:
        _tell(folder, out, found, time.monotonic() - began)


def _put(out: Path, made: bytes) -> None:
    if str(out) == "-":
        sys.stdout.buffer.write(made)
        sys.stdout.flush()
    else:
        write_file(out.absolute(), made)


def _tell(folder: Path, out: Path | None, found: Statistics, seconds: float) -> None:
    state = f"version {found.version}, {found.total:,} rows" if found.version >= 0 else "nothing imported yet"
    made = f": {out}, {out.stat().st_size / 1e3:,.0f} kB" if out and str(out) != "-" else ""
    click.echo(f"{folder}: {state}, {seconds:.1f} s{made}", err=True)
