"""The command `sigdir repair`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from sigdir.cli.errors import Command
from sigdir.cli.options import (
    json_option,
    memory_limit_option,
    no_wait_option,
    threads_option,
    warehouse_option,
)
from sigdir.cli.output import write_json, write_line
from sigdir.warehouse import repair as repairing
from sigdir.warehouse.paths import existing


@click.command(cls=Command, state="no row was removed")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@threads_option
@memory_limit_option("512MB", "Memory for the search; above it, data is spilled to disk.")
@no_wait_option
@json_option()
@warehouse_option
def repair(dry_run: bool, threads: int, memory_limit: str, no_wait: bool, as_json: bool, folder: Path) -> None:
    """Remove rows whose text an older row has, in one new version.

    For what `sigdir verify` reports as "twice". The older id stays, and the younger one is never
    given out again. Where the staging file has lost POSTed rows, the warehouse goes on without them:
    servers start again, and the ids of these rows stay unused. Servers may run meanwhile and show the new version within a second. Older
    versions (--as-of) keep both rows, and so do copies and mirrors that have fetched them.

    Exit status: 0 done (also if there is nothing to repair), 2 the warehouse cannot be used,
    3 another process is publishing (with --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir repair --dry-run
      sigdir repair --json
    """
    done = repairing.repair(existing(folder), threads, memory_limit, dry_run, wait=not no_wait, on_wait=write_line)
    if as_json:
        write_json(done.to_dict())
        return
    verb = "would be removed" if dry_run else "removed"
    for collection, rows in done.removed.items():
        for row in rows:
            click.echo(f"{collection}: id {row.id} {verb}, id {row.kept} stays: {json.dumps(row.text)}")
    for collection, (first, last) in done.lost.items():
        click.echo(f"{collection}: the POSTed rows with the ids {first} to {last} are lost")
    if not any(done.removed.values()) and not done.lost:
        click.echo("nothing to repair")
    elif done.version is not None:
        click.echo(f"version {done.version} published")
