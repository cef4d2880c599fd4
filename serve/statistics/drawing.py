"""The figures of the newest version for the server's page: drawn by a process beside it, kept in a file.

Counting 10 M rows takes ten seconds of both cores and drawing half a second of Python. Neither may be in a
worker: the process is started when somebody asks for the page, works at the lowest priority, and ends with
its worker. Workers share the file. A figure may be ten minutes old, and says of which version it is.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from sigdir.serve.servers.supervisor import end_with_parent
from sigdir.warehouse import Warehouse
from sigdir.warehouse.errors import Busy, WarehouseError
from sigdir.warehouse.files import FileLock, make_folder, write_file
from sigdir.warehouse.paths import Paths

_EVERY_SECONDS = 600.0
_AGAIN_SECONDS = 5.0  # after one that another worker's was before
_AFTER_FAILURE_SECONDS = 60.0
_LONGEST_SECONDS = 900.0
_MEMORY = "256MB"  # 450 MiB in all for 10 M rows; with 1 GB it took 1,080 and was no quicker


@dataclass(frozen=True, slots=True)
class Drawing:
    """What the file has. ``figures`` are serve.figures.Figure as dictionaries, ``tag`` differs for each drawing."""

    version: int
    about: str
    totals: list[tuple[str, str]]
    figures: list[dict[str, Any]]
    code: str
    tag: str


@lru_cache(maxsize=1)
def _code() -> str:
    """Differs between states of the code that draws, so that a new one draws again."""
    here = Path(__file__).parent
    files = [here / "figures.py", here / "plots.py", here.parents[1] / "warehouse" / "sql" / "statistics.py"]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:8]


class Drawer:
    """Reads what is drawn and has it drawn again. Threads may share one."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._kept: Drawing | None = None
        self._kept_time = 0
        self._is_drawing = False
        self._not_before = 0.0
        self.has_failed = False

    def newest(self, version: int) -> Drawing | None:
        """The figures that there are, None before the first; starts a process where they should be newer."""
        with self._lock:
            drawing = self._read()
            if drawing is None or drawing.code != _code() or (drawing.version != version and self._is_old()):
                self._start()
            return drawing

    def _is_old(self) -> bool:
        return time.time() - self._kept_time / 1e9 > _EVERY_SECONDS

    def _read(self) -> Drawing | None:
        try:
            written = self._paths.statistics.stat().st_mtime_ns
            if written != self._kept_time:
                kept = orjson.loads(self._paths.statistics.read_bytes())
                self._kept, self._kept_time = Drawing(**kept, tag=f"{written:x}"), written
        except (OSError, ValueError, TypeError):  # not there, or written by other code
            self._kept, self._kept_time = None, 0
        return self._kept

    def _start(self) -> None:
        if not self._is_drawing and time.monotonic() >= self._not_before:
            self._is_drawing = True
            threading.Thread(target=self._draw, name="statistics", daemon=True).start()

    def _draw(self) -> None:
        command = [sys.executable, "-P", "-m", "sigdir.serve.statistics.drawing", str(self._paths.root)]
        try:
            ended = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_LONGEST_SECONDS, check=False
            )
            failed = ended.returncode != 0
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"statistics: {error}", file=sys.stderr, flush=True)
            failed = True
        with self._lock:
            self._is_drawing, self.has_failed = False, failed
            self._not_before = time.monotonic() + (_AFTER_FAILURE_SECONDS if failed else _AGAIN_SECONDS)


def draw(paths: Paths) -> None:
    """Write the file for the newest version; raises Busy where another process is at it, WarehouseError, OSError."""
    from sigdir.serve.statistics.figures import figures, totals
    from sigdir.serve.statistics.report import about
    from sigdir.warehouse.sql.statistics import statistics

    make_folder(paths.cache)
    with FileLock(paths.statistics_lock, wait=False):
        found = statistics(Warehouse(paths.root, memory_limit=_MEMORY))
        told = {
            "version": found.version,
            "about": about(found),
            "totals": totals(found),
            "figures": [asdict(figure) for figure in figures(found)],
            "code": _code(),
        }
        write_file(paths.statistics, orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS))


def main(folder: str) -> int:
    end_with_parent()
    os.nice(19)
    try:
        draw(Paths(Path(folder).absolute()))
    except Busy:
        return 0
    except (WarehouseError, OSError) as error:
        print(f"statistics: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
