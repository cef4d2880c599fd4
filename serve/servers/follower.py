"""The process of a replica that follows its store: every second it brings the working copy up to date.

The workers see a new version as they see any commit into the folder. While the store is away they serve the version
that they have.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from sigdir.serve.core.process import write_line
from sigdir.serve.core.settings import Settings
from sigdir.signatures.errors import SigdirError
from sigdir.warehouse.table.files import mark
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.transfer.working_copy import Check, pull

PULL_SECONDS = 1.0
_CHECK_SECONDS: Mapping[Check, float] = {"bytes": 3600.0, "log": 10.0}
"""How often what is there already is looked at: hashing the files of 100 M rows takes seconds, their log milliseconds."""


def pull_once(settings: Settings) -> None:
    """Pull, and end the process with status 2 where that fails."""
    try:
        pull(settings.paths)
    except (SigdirError, OSError) as error:
        write_line(f"Error: {error}")
        sys.exit(2)
    mark(settings.paths.last_pull)


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
