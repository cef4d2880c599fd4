"""The command `sigdir compact`."""

from __future__ import annotations

from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import json_option, no_wait_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.jobs import compact as compaction
from sigdir.warehouse.table.paths import existing


@command(state="no row was changed")
@click.option("--all", "everything", is_flag=True, help="Merge large files too, up to 20 million rows per file.")
@no_wait_option
@json_option()
@warehouse_option
def compact(everything: bool, no_wait: bool, as_json: bool, folder: Path) -> None:
    """Merge small data files into fewer, in one new version that holds the same rows.

    Each fold and each small import adds files, and reading slows down with their number. A server
    merges files by itself, a few at a time. Ids and times stay the same. The old files stay until
    `sigdir vacuum`.

    Exit status: 0 done (also if there is nothing to merge), 2 the warehouse cannot be used,
    3 another process is publishing (with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir compact
      sigdir compact --all --json
    """
    choose = compaction.everything if everything else compaction.small
    done = compaction.compact(existing(folder), choose, wait=not no_wait, on_wait=write_line)
    if as_json:
        write_json(
            {"version": done.snapshot.version if done else None, "collections": done.collections if done else {}}
        )
    elif done is None:
        click.echo("nothing to compact")
    else:
        click.echo(f"version {done.snapshot.version} published")
        for collection in COLLECTIONS:
            counts = done.collections[collection]
            click.echo(
                f"{collection:<18}{counts['files_before']:>7,} files -> {counts['files_after']:,},"
                f" {counts['rows']:,} rows written again"
            )
