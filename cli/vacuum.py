"""The command `sigdir vacuum`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import duration, json_option, no_wait_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.warehouse import vacuum as vacuuming
from sigdir.warehouse.table.paths import existing

_TITLES = {
    "data": "data files of older versions or dead runs",
    "evidence": "files of evidence of older versions or dead runs",
    "log": "left-overs of killed commits",
    "run": "folders of dead imports",
    "index": "indexes of files that are not in the newest version",
    "mirror": "left-overs of killed mirrors",
}


@command(state="no row was changed")
@click.option(
    "--keep", type=duration, default="7d", metavar="DURATION",
    help="Keep every version that was the newest at some time in this window: 36h, 7d, 2w.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@no_wait_option
@json_option()
@warehouse_option
def vacuum(keep: timedelta, dry_run: bool, no_wait: bool, as_json: bool, folder: Path) -> None:
    """Remove data files that no version within a time window needs, and what dead processes left.

    The newest version, the history of imports and their rejects always stay. Older versions whose
    files were merged since can no longer be read with --as-of. A server runs this by itself, with a
    window of one week. If the window is shorter than a running query, that query loses its files.

    Exit status: 0 done, 2 the warehouse cannot be used, 3 another process is publishing (with
    --no-wait), 130 interrupted.

    \b
    Examples:
      sigdir vacuum --dry-run
      sigdir vacuum --keep 36h
    """
    done = vacuuming.vacuum(existing(folder), keep, dry_run, not no_wait, write_line)
    if as_json:
        write_json({"dry_run": dry_run, "keep_seconds": keep.total_seconds(), **done.to_dict()})
    else:
        _print(done, dry_run)


def _print(done: vacuuming.Vacuumed, dry_run: bool) -> None:
    verb = "would be removed" if dry_run else "removed"
    for kind, title in _TITLES.items():
        waste = [waste for waste in done.waste if waste.kind == kind]
        if waste:
            click.echo(f"{len(waste):>7,} {title}, {sum(w.size for w in waste) / 1e6:,.1f} MB, {verb}")
    if not done.waste:
        click.echo("nothing to remove")
    if done.newest >= 0:
        click.echo(f"versions {done.oldest} to {done.newest} {'would be' if dry_run else 'are'} readable")
