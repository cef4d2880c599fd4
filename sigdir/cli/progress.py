"""Progress on standard error: a bar on a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from sigdir.cli.output import write_line
from sigdir.pipeline.progress import Reporter

_LINE_SECONDS = 30.0


def reporter(quiet: bool) -> Reporter:
    """The reporter for this standard error."""
    if quiet:
        return Reporter()
    if sys.stderr.isatty():
        from sigdir.cli.progress_bar import Bar  # importing rich takes 75 ms

        return Bar()
    return Lines()


class Lines(Reporter):
    """A line when a stage begins, and one every half minute, also while the work reports nothing.

    A thread writes them: some phases of an import take minutes between two reports.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write_lines, daemon=True)
        self._name, self._total, self._done, self._rows = "", 0, 0, 0
        self._began = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._name, self._total, self._done, self._rows = name, total, 0, 0
            self._began = time.monotonic()
        write_line(f"{name} ...")

    def advance(self, units: int) -> None:
        with self._lock:
            self._done += units

    def rows(self, count: int) -> None:
        with self._lock:
            self._rows += count

    def note(self, text: str) -> None:
        write_line(text)

    def line(self) -> str:
        """What is done of the stage, and for how long it runs; empty before the first one."""
        with self._lock:
            seconds = time.monotonic() - self._began
            share = f" {100 * self._done // self._total} %" if self._total else ""
            rows = f", {self._rows:,} rows, {self._rows / max(seconds, 1e-9):,.0f} a second" if self._rows else ""
            return f"{self._name}{share}{rows}, {seconds:,.0f} s" if self._name else ""

    def _write_lines(self) -> None:
        while not self._ended.wait(_LINE_SECONDS):
            if line := self.line():
                write_line(line)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
