"""The command `sigdir rejects`."""

from __future__ import annotations

from pathlib import Path

import click

from sigdir.cli.errors import Command
from sigdir.cli.options import warehouse_option
from sigdir.cli.rows import rows_options, write_rows
from sigdir.warehouse import Warehouse

_QUERY = """
    SELECT import_id, text, reason, file, line, position FROM rejects
    WHERE ($number IS NULL OR import_id = $number) AND ($reason IS NULL OR reason = $reason)
    ORDER BY import_id, file, line LIMIT $limit"""
_NO_LIMIT = 2**62


@click.command(cls=Command)
@click.option("--import", "number", type=click.IntRange(min=1), help="Only those of this import.")
@click.option("--reason", help="Only those with this reason, for example bad_width.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_NO_LIMIT, show_default="all", help="At most this many rows."
)
@warehouse_option
@rows_options
def rejects(number: int | None, reason: str | None, limit: int, folder: Path, format: str) -> None:
    """Show the candidates that imports rejected: text, reason, file, line, position.

    Exit status: 0 done, 2 the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir rejects --import 1 --reason unknown_type
      sigdir rejects --format ndjson > rejects.ndjson
    """
    write_rows(Warehouse(folder).sql(_QUERY, {"number": number, "reason": reason, "limit": limit}), format)
