"""Progress on standard error: a bar on a terminal, plain lines elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Self

from sigdir.cli.output import write_line
from sigdir.pipeline.progress import Reporter

if TYPE_CHECKING:
    from rich.progress import TaskID

_LINE_SECONDS = 30.0


def reporter(quiet: bool) -> Reporter:
    """The reporter for this standard error."""
    if quiet:
        return Reporter()
    return Bar() if sys.stderr.isatty() else Lines()


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

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


class Bar(Reporter):
    """A bar that disappears when the work is done."""

    def __init__(self) -> None:
        from rich.console import Console  # 75 ms, which other reporters do without
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TaskProgressColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}"),
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
        self._task = self._progress.add_task(name, total=total or None, rate="")
        self._rows, self._began = 0, time.monotonic()

    def advance(self, units: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, units)

    def rows(self, count: int) -> None:
        self._rows += count
        if self._task is not None:
            rate = self._rows / max(time.monotonic() - self._began, 1e-9)
            self._progress.update(self._task, rate=f"{self._rows:,} rows, {rate:,.0f} a second")

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
