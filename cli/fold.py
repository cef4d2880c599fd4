"""The command `sigdir fold`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from sigdir.cli.errors import command
from sigdir.cli.options import SHORTEST_PAUSE, Seconds, warehouse_option
from sigdir.serve.core.process import write_line
from sigdir.serve.servers.upkeep import repeat
from sigdir.warehouse.publish import publish
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths, existing


@command(state="staged rows stay in staging until the next fold")
@click.option(
    "--every", type=Seconds(SHORTEST_PAUSE), metavar="SECONDS", help="Repeat after a pause of this many seconds."
)
@click.option("--accept-losses", is_flag=True, help="Go on without POSTed rows that a damaged staging file has lost.")
@warehouse_option
def fold(every: float | None, accept_losses: bool, folder: Path) -> None:
    """Move POSTed rows from staging into the table, where SQL sees them.

    A server does this by itself; see `sigdir serve --fold-every`. With --every the command also
    merges small files and removes old ones, like `sigdir compact` and `sigdir vacuum`.

    Where the staging file or its write-ahead log is damaged, rows can be lost. Then servers do not
    start and nothing is published, until the files are put back from a backup. --accept-losses says
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
        for loss in staging.losses():
            write_line(f"warning: {loss}; their ids stay unused")
        staging.accept_losses()
