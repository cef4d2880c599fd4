"""What a server does besides answering, in a process of its own: it folds and tidies its warehouse, or follows a store.

A replica follows: every second it brings the working copy up to date. The workers see a new version as they see any
commit into the folder. While the store is away they serve the version that they have.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NoReturn

from sigdir.serve.core.process import write_line
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.compact import compact, due
from sigdir.warehouse.index.view import tidy
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish import publish
from sigdir.warehouse.table.errors import Busy
from sigdir.warehouse.table.files import mark
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.transfer.working_copy import Check, pull
from sigdir.warehouse.vacuum import vacuum

# Vacuum reads the log of its whole window: 0.6 s after a week of folds.
_VACUUM_SECONDS = 3600.0

PULL_SECONDS = 1.0
_CHECK_SECONDS: Mapping[Check, float] = {"bytes": 3600.0, "log": 10.0}
"""How often what is there already is looked at: hashing the files of 100 M rows takes seconds, their log milliseconds."""


class Upkeep:
    """Fold, merge the files that are due, remove what is old. `sigdir fold --every` does the same."""

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


def repeat(paths: Paths, every: float) -> NoReturn:
    """Rounds of upkeep, with pauses of so many seconds, until SIGTERM. It ends a pause at once, and lets a round end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Signals interrupt the main thread. In a thread of its own a publish runs to its end.
    upkeep = Upkeep(paths)
    with ThreadPoolExecutor(1) as pool:
        while True:
            try:
                pool.submit(upkeep.run_once).result()
            except SigdirError as error:
                write_line(f"fold: {error}")
            except OSError as error:  # a full disk may name no file
                write_line(f"fold: {paths.root}: {error}")
            with waiting():
                time.sleep(every)


def pull_once(paths: Paths) -> None:
    """Pull, and end the process with status 2 where that fails."""
    try:
        pull(paths)
    except (SigdirError, OSError) as error:
        write_line(f"Error: {error}")
        sys.exit(2)
    mark(paths.last_pull)


def follow(paths: Paths) -> None:
    """Pull until the process is ended. A failure is reported once, and so is its end."""
    problem, due = "", dict.fromkeys(_CHECK_SECONDS, 0.0)
    while True:
        check: Check = next((each for each, at in due.items() if time.monotonic() >= at), "nothing")
        try:
            pull(paths, threads=1, check=check)
            if check in due:
                due[check] = time.monotonic() + _CHECK_SECONDS[check]
            mark(paths.last_pull)
            if problem:
                write_line("follow: the store answers again")
            problem = ""
        except (SigdirError, OSError) as error:
            if not problem:
                write_line(f"follow: {error}; the version that is there is served on")
            problem = str(error)
        time.sleep(PULL_SECONDS)
