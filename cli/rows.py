"""The rows of a query, for people (table) and for programs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import click

from sigdir.pipeline.row_writers import WRITERS
from sigdir.warehouse.sql.engine import Result


def write_rows(result: Result, format: str, out: BinaryIO | None = None) -> None:
    """Write a result as table or in a format of WRITERS, to standard output by default.

    Raises QueryError if computing the result fails.
    """
    out = out or sys.stdout.buffer
    if format == "table":
        out.write(result.drawn(terminal_width()).encode() + b"\n")
    else:
        WRITERS[format](result.reader(), out)


def terminal_width() -> int | None:
    """The characters of a line, None where standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def rows_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format, and --json as a short form of --format json; the function gets ``format``."""
    json_flag = click.option("--json", "format", flag_value="json", help="The same as --format json.")
    format = click.option(
        "--format", "format", type=click.Choice(["table", *WRITERS]), default="table", show_default=True,
        help="How to write the rows.",
    )  # fmt: skip
    return format(json_flag(function))
