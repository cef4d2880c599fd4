"""Progress on standard error: a bar on a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import threading
import time

from sigdir.cli.output import write_line
from sigdir.pipeline.progress import Reporter

_LINE_SECONDS = 4.0


def reporter(quiet: bool) -> Reporter:
    """The reporter for this standard error."""
    if quiet:
        return Reporter()
    if sys.stderr.isatty():
        from sigdir.cli.progress_bar import Bar  # importing rich takes 75 ms

        return Bar()
    return Lines()


class Lines(Reporter):
    """A line when a stage begins, and one every few seconds during a long stage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name, self._total, self._done, self._rows = "", 0, 0, 0
        self._began = self._last_line = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._name, self._total, self._done, self._rows = name, total, 0, 0
            self._began = self._last_line = time.monotonic()
        write_line(f"{name} ...")

    def advance(self, units: int) -> None:
        with self._lock:
            self._done += units
            now = time.monotonic()
            if now - self._last_line < _LINE_SECONDS:
                return
            self._last_line = now
            share = f" {100 * self._done // self._total} %" if self._total else ""
            rate = self._rows / (now - self._began)
            rows = f", {self._rows:,} rows, {rate:,.0f} a second" if self._rows else ""
        write_line(f"{self._name}{share}{rows}")

    def rows(self, count: int) -> None:
        with self._lock:
            self._rows += count

    def note(self, text: str) -> None:
        write_line(text)
