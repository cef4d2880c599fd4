"""From settings to an application that can answer: kernels loaded, indexes built, requests logged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sigdir.serve.app import create_app
from sigdir.serve.core.budget import Processes, budget_processes
from sigdir.serve.core.process import Closable, write_line
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.metrics import Counts
from sigdir.serve.servers import budget_process
from sigdir.serve.servers.warm import load
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.files import FileLock, make_folder
from sigdir.warehouse.table.paths import existing

_REPORT_SECONDS = 2.0


def open_app(settings: Settings, inherited: Sequence[Closable] | None = None) -> tuple[Any, Processes]:
    """The WSGI application over the warehouse of the settings, and its processes for costly requests, all ready to answer.

    ``inherited``: a caller without other threads has the processes forked, and names what is open here and must not be
    open there. Builds missing indexes and reports progress on standard error. Raises WarehouseError, OSError, also
    where there is no warehouse: only the server makes one, before its workers start.
    """
    existing(settings.warehouse)
    paths = settings.paths
    if settings.on_read_only_media and settings.cache is None:
        load(settings)
    else:
        make_folder(paths.cache)
        with FileLock(paths.compile_lock):  # one worker compiles the kernels, the others then load them
            load(settings)
    processes = budget_processes(settings, budget_process.main)
    if inherited is not None:
        for process in processes.values():  # before anything is opened that a fork must not have
            process.fork(inherited)
    reader = Reader(paths, _IndexProgress())
    counts = Counts()
    counts.starts.inc()  # what is above the number of workers are restarts
    app = create_app(settings, reader, Writer(paths, reader), counts, processes)
    for process in processes.values():
        process.start()
    for process in processes.values():  # who is ready answers a costly request too
        process.await_ready()
    return app, processes


class _IndexProgress:
    """Prints the number of indexed rows every two seconds."""

    def __init__(self) -> None:
        self._rows = 0
        self._next = time.monotonic() + _REPORT_SECONDS

    def __call__(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _REPORT_SECONDS
            write_line(f"index: {self._rows:,} rows")
