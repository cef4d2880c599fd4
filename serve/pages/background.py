"""Counting the figures for the statistics page in another process, into a file that all workers share.

Counting 10 M rows takes both cores ten seconds: too long for a worker. A visit to the page starts the process. It runs
at the lowest priority and ends with its worker. Figures may be ten minutes old; they name their version.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import orjson

from sigdir.serve.core.process import end_with_parent, write_line
from sigdir.serve.statistics import TEMPLATES, about, rendered_figures
from sigdir.warehouse import Warehouse
from sigdir.warehouse.sql.statistics import statistics
from sigdir.warehouse.table.errors import Busy, WarehouseError
from sigdir.warehouse.table.files import FileLock, make_folder, write_file
from sigdir.warehouse.table.paths import Paths, existing
from sigdir.warehouse.table.suppressed import read

_MAX_AGE_SECONDS = 600.0
_PAUSE_SECONDS = 5.0  # after a process that found another worker's process at work
_PAUSE_AFTER_FAILURE_SECONDS = 60.0
_TIMEOUT_SECONDS = 900.0
_MEMORY_LIMIT = "256MB"  # 450 MiB in all for 10 M rows; a limit of 1 GB took 1,080 MiB and was no faster


@dataclass(frozen=True, slots=True)
class RenderedStatistics:
    """The content of the file.

    ``html`` are the figures, ``code`` identifies the code that rendered them, ``suppressed`` the list of texts that are
    not counted, ``written_ns`` is the time of the file.
    """

    version: int
    about: str
    html: str
    code: str
    suppressed: str
    written_ns: int

    @property
    def is_old(self) -> bool:
        return time.time() - self.written_ns / 1e9 > _MAX_AGE_SECONDS


@lru_cache(maxsize=1)
def code_id() -> str:
    """Eight hex digits that change with the code of the figures: then they are rendered again."""
    here = Path(__file__).parent
    files = [here.parent / "statistics.py", here.parents[1] / "warehouse" / "sql" / "statistics.py", *TEMPLATES]
    return hashlib.sha256(b"\0".join(map(Path.read_bytes, files))).hexdigest()[:8]


class BackgroundRenderer:
    """Reads the rendered figures and starts a process when they are too old. Threads may share one."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self.is_rendering = self.has_failed = False
        self._not_before = 0.0

    def newest(self, version: int, suppressed: str = "") -> RenderedStatistics | None:
        """The rendered figures, None before the first of this suppress list. Starts a process if they should be newer."""
        with self._lock:
            found = self._read()
            if found is not None and found.suppressed != suppressed:
                found = None
            if found is None or found.code != code_id() or (found.version != version and found.is_old):
                self._start()
            return found

    def _read(self) -> RenderedStatistics | None:
        try:
            written_ns = self._paths.statistics.stat().st_mtime_ns
            return RenderedStatistics(**orjson.loads(self._paths.statistics.read_bytes()), written_ns=written_ns)
        except (OSError, ValueError, TypeError):  # missing, or written by other code
            return None

    def _start(self) -> None:
        if not self.is_rendering and time.monotonic() >= self._not_before:
            self.is_rendering = True
            threading.Thread(target=self._run, name="statistics", daemon=True).start()

    def _run(self) -> None:
        """Run the process and wait for its end."""
        command = [sys.executable, "-P", "-m", "sigdir.serve.pages.background", str(self._paths.root)]
        command += [str(self._paths.derived)] if self._paths.derived else []
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_TIMEOUT_SECONDS, check=False
            )
            has_failed = done.returncode != 0
        except (OSError, subprocess.TimeoutExpired) as error:
            write_line(f"statistics: {error}")
            has_failed = True
        with self._lock:
            self.is_rendering, self.has_failed = False, has_failed
            pause = _PAUSE_AFTER_FAILURE_SECONDS if has_failed else _PAUSE_SECONDS
            self._not_before = time.monotonic() + pause


def render(paths: Paths) -> None:
    """Write the file for the newest version; raises Busy if another process is doing so, WarehouseError, OSError."""
    existing(paths.root)
    make_folder(paths.cache)
    with FileLock(paths.statistics_lock, wait=False):
        suppressed = read(paths)
        found = statistics(Warehouse(paths.root, memory_limit=_MEMORY_LIMIT, served=paths))
        content = {
            "version": found.version, "about": about(found), "html": rendered_figures(found), "code": code_id(),
            "suppressed": suppressed.id,
        }  # fmt: skip
        write_file(paths.statistics, orjson.dumps(content))


def main(folder: str, derived: str = "") -> int:
    """Render the figures of a warehouse; the exit status is 1 if that failed. ``derived`` as in ``Paths``."""
    end_with_parent()
    os.nice(19)
    try:
        render(Paths(Path(folder).absolute(), Path(derived) if derived else None))
    except Busy:
        return 0
    except (WarehouseError, OSError) as error:
        write_line(f"statistics: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
