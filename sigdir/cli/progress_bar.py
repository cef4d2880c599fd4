"""The progress bar on a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from sigdir.pipeline.progress import Reporter


class Bar(Reporter):
    """A bar that disappears when the work is done."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
