"""The process of a replica that follows its store: every second it brings the working copy up to date.

Started by the supervisor as ``python -P -m sigdir.serve.servers.follower``, with the settings in SIGDIR_ variables.
With the argument ``once`` it ends after the first time, with status 2 where that fails. The workers see a new version
as they see any commit into the folder. While the store is away they serve the version that they have.
"""

from __future__ import annotations

import sys
import time

from sigdir.serve.core.settings import Settings
from sigdir.signatures.errors import SigdirError
from sigdir.warehouse.table.files import mark
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.transfer.working_copy import pull

PULL_SECONDS = 1.0
_CHECK_SECONDS = 3600.0  # hashing the files of 100 M rows takes seconds


def main(arguments: list[str]) -> int:
    paths = Settings.from_environment().paths
    if arguments == ["once"]:
        try:
            pull(paths)
        except (SigdirError, OSError) as error:
            _write(f"Error: {error}")
            return 2
        mark(paths.last_pull)
        return 0
    follow(paths)
    return 0


def follow(paths: Paths) -> None:
    """Pull until the process is ended. A failure is reported once, and so is its end."""
    problem, next_check = "", 0.0
    while True:
        try:
            is_due = time.monotonic() >= next_check
            pull(paths, threads=1, check="bytes" if is_due else "nothing")
            next_check = time.monotonic() + _CHECK_SECONDS if is_due else next_check
            mark(paths.last_pull)
            if problem:
                _write("follow: the store answers again")
            problem = ""
        except (SigdirError, OSError) as error:
            if not problem:
                _write(f"follow: {error}; the version that is there is served on")
            problem = str(error)
        time.sleep(PULL_SECONDS)


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
