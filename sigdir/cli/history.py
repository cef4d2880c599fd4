"""The command `sigdir history`."""

from __future__ import annotations

from pathlib import Path

import click

from sigdir.cli.errors import Command
from sigdir.cli.options import warehouse_option
from sigdir.cli.rows import rows_options, write_rows
from sigdir.warehouse import Warehouse

_IMPORTS = """
    SELECT * EXCLUDE (sources) REPLACE (coalesce(source,
        array_to_string(list_transform(sources[:3], lambda s: s.path), ', ')
        || CASE WHEN files > 3 THEN format(' and {:,} more', files - 3) ELSE '' END) AS source)
    FROM imports ORDER BY import_id"""
_SOURCES = """
    SELECT import_id, s.path, s.format, s.bytes, s.sha256, s.read, s.imported, s.duplicate, s.rejected
    FROM (SELECT import_id, unnest(sources) AS s FROM imports) ORDER BY import_id, s.path"""


@click.command(cls=Command)
@click.option("--sources", is_flag=True, help="One row per source file, with its sha256.")
@warehouse_option
@rows_options
def history(sources: bool, folder: Path, format: str) -> None:
    """List the imports with their times, sources and counts.

    The source is the label of --source, or the URL of a mirror, else the names of the first three files.

    Exit status: 0 done, 2 the warehouse cannot be used, 130 interrupted.

    \b
    Examples:
      sigdir history
      sigdir history --sources --format csv
    """
    write_rows(Warehouse(folder).sql(_SOURCES if sources else _IMPORTS), format)
