"""The command `sigdir fold`, and the upkeep that a server runs by it."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import NoReturn

import click

from sigdir.cli.errors import command
from sigdir.cli.options import SHORTEST_PAUSE, Seconds, warehouse_option
from sigdir.serve.core.process import write_line
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.index.view import tidy
from sigdir.warehouse.jobs.compact import compact, due
from sigdir.warehouse.jobs.vacuum import vacuum
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish import publish
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import Busy
from sigdir.warehouse.table.files import mark
from sigdir.warehouse.table.paths import Paths, existing

# Vacuum reads the log of its whole window: 0.6 s after a week of folds.
_VACUUM_SECONDS = 3600.0


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
        _repeat(Upkeep(paths).run_once, every)
    done = publish.fold(paths)
    click.echo(f"version {done.snapshot.version} published" if done else "nothing to fold")


def _accept_losses(paths: Paths) -> None:
    """Warn of each loss, and go on without the rows."""
    with closing(Staging(paths.staging)) as staging:
        for loss in staging.losses():
            write_line(f"warning: {loss}; their ids stay unused")
        staging.accept_losses()


class Upkeep:
    """What a server does besides answering: fold, merge the files that are due, remove what is old."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._next_vacuum = 0.0
        self._tidied_version = -1

    def run_once(self) -> None:
        """One round. It ends early if another process publishes; the next round continues."""
        with suppress(Busy):  # an import that is publishing folds the staged rows too
            publish.fold(self._paths, wait=False)
            mark(self._paths.last_fold)
            compact(self._paths, due, threads=1, wait=False)
            self._tidy()
            if time.monotonic() >= self._next_vacuum:
                vacuum(self._paths, wait=False)
                self._next_vacuum = time.monotonic() + _VACUUM_SECONDS

    def _tidy(self) -> None:
        """Remove unused indexes once for each version: of other processes too, and again if one was publishing."""
        version = read_snapshot(self._paths).version
        if version != self._tidied_version:
            tidy(self._paths)
            self._tidied_version = version


def _repeat(work: Callable[[], None], every: float) -> NoReturn:
    """Work until SIGTERM. It ends a pause at once, and a round when the round is done."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Signals interrupt the main thread. In a thread of its own a publish runs to its end.
    with ThreadPoolExecutor(1) as pool:
        while True:
            try:
                pool.submit(work).result()
            except (SigdirError, OSError) as error:
                write_line(f"fold: {error}")
            with waiting():
                time.sleep(every)
