"""From settings to an application that can answer: kernels loaded, indexes built, requests logged."""

from __future__ import annotations

import sys
import time

from sigdir.serve.app import create_app
from sigdir.serve.budget import BudgetProcess
from sigdir.serve.lists.short_requests import ShortRequests
from sigdir.serve.memory_limit import return_freed_memory
from sigdir.serve.metrics.counts import Counts
from sigdir.serve.pages.page import page_cache
from sigdir.serve.servers.measured import MeasuredApp
from sigdir.serve.settings import Settings
from sigdir.serve.warm import warm
from sigdir.serve.writer import Writer
from sigdir.warehouse.files import FileLock, make_folder
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths, existing

_REPORT_SECONDS = 2.0


def open_app(settings: Settings, counts: Counts | None = None, budget: BudgetProcess | None = None) -> MeasuredApp:
    """The WSGI application over the warehouse of the settings, counted, and logged if they ask for it.

    Without ``counts``, the memory that a server's workers share, it counts for this process alone. ``budget`` answers
    costly requests. Builds missing indexes and reports progress on standard error. Raises WarehouseError, OSError, also
    where there is no warehouse: only the server makes one, before its workers start.
    """
    existing(settings.warehouse)
    return_freed_memory()
    paths = Paths(settings.warehouse.absolute(), settings.cache if settings.on_read_only_media else None)
    if settings.on_read_only_media and settings.cache is None:
        warm()
    else:
        make_folder(paths.cache)
        with FileLock(paths.compile_lock):  # one worker compiles the kernels, the others then load them
            warm()
    settings = settings.as_the_medium_allows()
    reader = Reader(paths, _IndexProgress())
    counts = counts or Counts()
    pages = page_cache(counts.count_cached)
    app = create_app(settings, reader, Writer(paths, reader), counts, pages, budget)
    return MeasuredApp(app, counts, log=settings.log_requests, is_short=ShortRequests(reader, pages))


class _IndexProgress:
    """Prints the number of indexed rows every two seconds."""

    def __init__(self) -> None:
        self._rows = 0
        self._next = time.monotonic() + _REPORT_SECONDS

    def __call__(self, rows: int) -> None:
        self._rows += rows
        if time.monotonic() > self._next:
            self._next = time.monotonic() + _REPORT_SECONDS
            print(f"index: {self._rows:,} rows", file=sys.stderr, flush=True)
