"""Progress of long work: a bar on a terminal, plain lines otherwise, nothing when asked to be quiet."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_LINE_SECONDS = 5.0


class Reporter:
    """The quiet one, and what all of them can be told. Methods may be called from any thread."""

    def stage(self, name: str, total: int) -> None:
        """A new stage begins, of ``total`` units (0 where that is not known)."""

    def advance(self, units: int) -> None:
        """Units of the stage are done: bytes while reading, rows while writing."""

    def rows(self, count: int) -> None:
        """Candidates were read and judged."""

    def note(self, text: str) -> None:
        """Something worth a line of its own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class Lines(Reporter):
    """A line on standard error when a stage begins, and every few seconds in a long one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name, self._total, self._done, self._rows = "", 0, 0, 0
        self._began = self._told = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        with self._lock:
            self._name, self._total, self._done = name, total, 0
            self._began = self._told = time.monotonic()
        self._say(f"{name} ...")

    def advance(self, units: int) -> None:
        with self._lock:
            self._done += units
            now = time.monotonic()
            if now - self._told < _LINE_SECONDS:
                return
            self._told = now
            share = f" {100 * self._done // self._total} %" if self._total else ""
            rate = self._rows / (now - self._began)
            rows = f", {self._rows:,} rows, {rate:,.0f} a second" if self._rows else ""
        self._say(f"{self._name}{share}{rows}")

    def rows(self, count: int) -> None:
        with self._lock:
            self._rows += count

    def note(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class Bar(Reporter):
    """A bar that is gone when the work is done."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: TaskID | None = None
        self._rows = 0
        self._began = time.monotonic()

    def stage(self, name: str, total: int) -> None:
        if self._task is not None:
            self._progress.update(self._task, visible=False)
        self._task = self._progress.add_task(name, total=total or None, told="")

    def advance(self, units: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, units)

    def rows(self, count: int) -> None:
        self._rows += count
        if self._task is not None:
            rate = self._rows / max(time.monotonic() - self._began, 1e-9)
            told = f"{self._rows:,} rows, {rate:,.0f} a second"
            self._progress.update(self._task, told=told)

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def reporter(quiet: bool) -> Reporter:
    """The one that fits where standard error goes."""
    if quiet:
        return Reporter()
    return Bar() if sys.stderr.isatty() else Lines()
