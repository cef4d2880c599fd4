"""The commands `sigdir history` and `sigdir rejects`: what imports there were, and what they rejected."""

from __future__ import annotations

from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import warehouse_option
from sigdir.cli.rows import rows_options, write_rows
from sigdir.signatures.grammar import REASONS
from sigdir.warehouse import Warehouse

_IMPORTS = """
    SELECT * EXCLUDE (sources) REPLACE (coalesce(source,
        array_to_string(list_transform(sources[:3], lambda s: s.path), ', ')
        || CASE WHEN files > 3 THEN format(' and {:,} more', files - 3) ELSE '' END) AS source)
    FROM imports ORDER BY import_id"""
_IMPORTS_TABLE = f"SELECT * REPLACE (len(faults) AS faults) FROM ({_IMPORTS})"
_SOURCES = """
    WITH inputs AS (SELECT import_id, unnest(sources, max_depth := 2) FROM imports),
         faults AS (SELECT import_id, unnest(faults, max_depth := 2) FROM imports)
    SELECT import_id, path, format, bytes, sha256, read, imported, duplicate, rejected, fault FROM inputs
    UNION ALL
    SELECT import_id, path, NULL, 0, '', 0, 0, 0, 0, reason FROM faults ANTI JOIN inputs USING (import_id, path)
    ORDER BY import_id, path"""


@command()
@click.option("--sources", is_flag=True, help="One row per source file, with its sha256.")
@warehouse_option
@rows_options
def history(sources: bool, folder: Path, format: str) -> None:
    """List the imports with their times, sources and counts.

    The source is the label of --source, or the URL of a mirror, else the names of the first three files. Faults are
    the files that could not be read to their end: their number in the table, elsewhere their paths and reasons.

    Exit status: 0 done, 2 the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir history
      sigdir history --sources --format csv
    """
    imports = _IMPORTS_TABLE if format == "table" else _IMPORTS
    write_rows(Warehouse(folder).sql(_SOURCES if sources else imports), format)


_QUERY = """
    SELECT import_id, text, reason, file, line, position FROM rejects
    WHERE ($number IS NULL OR import_id = $number) AND ($reason IS NULL OR reason = $reason)
    ORDER BY import_id, file, line LIMIT $limit"""
_NO_LIMIT = 2**62


@command()
@click.option("--import", "number", type=click.IntRange(min=1), help="Only those of this import.")
@click.option(
    "--reason", type=click.Choice(REASONS[1:]), metavar="REASON",
    help="Only those with this reason, for example bad_width.",
)  # fmt: skip
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
