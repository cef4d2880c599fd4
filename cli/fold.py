"""The commands `sigdir fold` and `sigdir compact`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import SHORTEST_PAUSE, Seconds, json_option, no_wait_option, warehouse_option
from sigdir.cli.output import write_json, write_line
from sigdir.serve.servers.upkeep import repeat
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.errors import counted
from sigdir.warehouse import compact as compaction
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish import publish
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths, existing


@command(state="staged rows stay in staging until the next fold")
@click.option(
    "--every", type=Seconds(SHORTEST_PAUSE), metavar="SECONDS", help="Repeat after a pause of this many seconds."
)
@click.option(
    "--accept-losses", is_flag=True, help="Go on without POSTed rows that a damaged or removed staging file has lost."
)
@warehouse_option
def fold(every: float | None, accept_losses: bool, folder: Path) -> None:
    """Move POSTed rows from staging into the table, where SQL sees them.

    A server does this by itself; see `sigdir serve --fold-every`. With --every the command also
    merges small files and removes old ones, like `sigdir compact` and `sigdir vacuum`.

    Where the staging file or its write-ahead log is damaged or gone, rows can be lost. Then servers do
    not start and nothing is published, until the files are put back from a backup. --accept-losses says
    how many rows are lost and goes on without them; their ids stay unused.

    Exit status: 0 done (with --every also when stopped by SIGTERM), 2 the warehouse cannot be
    used, 130 interrupted.

    \b
    Examples:
      sigdir fold
      sigdir fold --every 60
    """
    paths = existing(folder)
    if accept_losses:
        _accept_losses(paths)
    if every is not None:
        repeat(paths, every)
    done = publish.fold(paths)
    click.echo(f"version {done.snapshot.version} published" if done else "nothing to fold")


def _accept_losses(paths: Paths) -> None:
    """Warn of each loss, and go on without the rows."""
    with closing(Staging(paths.staging)) as staging:
        high_water = read_snapshot(paths).high_water
        for loss in staging.losses(high_water):
            write_line(f"warning: {loss}; their ids stay unused")
        staging.accept_losses(high_water)


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
            if counts["rows"]:
                files, rows = counted(counts["files_before"], "file"), counted(counts["rows"], "row")
                click.echo(f"{collection:<18}{files:>13} -> {counts['files_after']:,}, {rows} written again")
