"""Where a row came from: the number of its import, and that import's summary in the log.

The number is a column of the row's data file, the same for all rows of an import; each file is read once. The
commit is found by bisection over the log's times, because it is not earlier than its rows.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import each
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.history import Summaries
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.paths import Paths

_SOURCES = 5
_STEPS = 64  # commits of others at most between a row's time and its import's commit


@dataclass(frozen=True, slots=True)
class Origin:
    """An import in short. ``names`` are the names of its first sources without their folders; ``sources`` counts all.

    A row that was POSTed has the import 0.
    """

    number: int
    version: int
    committed_at: datetime
    label: str | None
    names: tuple[str, ...]
    sources: int
    imported: int


POSTED = Origin(0, -1, datetime.fromtimestamp(0, UTC), None, (), 0, 0)


def origin_of(summary: dict[str, Any]) -> Origin:
    """The public part of an import's summary: names of folders stay private."""
    sources = summary["sources"]
    names = tuple(source["path"].rstrip("/").rpartition("/")[2] for source in sources[:_SOURCES])
    return Origin(
        summary["import"], summary["version"], summary["committed_at"], summary["source"], names,
        len(sources), summary["totals"]["imported"],
    )  # fmt: skip


class Origins:
    """Finds origins and keeps them: neither a file nor a commit ever changes. Safe for threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._runs: dict[Path, tuple[list[int], list[int]]] = {}
        self._found: dict[int, Origin] = {}
        self._lock = threading.Lock()

    def of(self, view: View, collection: Collection, segment: int, row: int) -> Origin | None:
        """The import of a row of the view's n-th segment; None if the log or the data file cannot be read."""
        files = view.snapshot.files[collection]
        if segment >= len(files):
            return POSTED
        try:
            number = self._number(view, files[segment].path, row)
            if number and number not in self._found:
                created_at = int(view.segments[collection][segment].created_at[row])
                found = self._find(number, created_at, view.snapshot.version)
                if found is None:
                    return None
                self._found[number] = found
        except (WarehouseError, OSError):  # vacuumed or damaged; its mapped columns are still served
            return None
        return self._found[number] if number else POSTED

    def _number(self, view: View, file: Path, row: int) -> int:
        runs = self._runs.get(file)
        if runs is None:
            with self._lock:
                runs = self._runs.get(file)
                if runs is None:
                    runs = import_runs(file)
                    here = {file.path for collection in COLLECTIONS for file in view.snapshot.files[collection]}
                    self._runs = {path: kept for path, kept in self._runs.items() if path in here} | {file: runs}
        firsts, numbers = runs
        return numbers[bisect_right(firsts, row) - 1]

    def _find(self, number: int, created_at: int, newest: int) -> Origin | None:
        """The commit of an import that has a row of this time."""
        summaries = Summaries(self._paths)
        first = summaries.first_since(created_at // 1000, newest)
        # One version earlier too: the times of a batch may run a little ahead of the clock.
        for version in range(max(0, first - 1), min(newest + 1, first + _STEPS)):
            summary = summaries.at(version)
            if summary is not None and summary.get("import") == number:
                return origin_of(summary)
        return None


def import_runs(file: Path) -> tuple[list[int], list[int]]:
    """The rows of a data file where another import begins, and the imports; raises UnreadableWarehouse, OSError."""
    firsts: list[int] = []
    numbers: list[int] = []
    at = 0
    with naming(file), pq.ParquetFile(file) as parquet:
        for batch in each(parquet.iter_batches(1 << 20, columns=["import_id"])):
            values = batch.column(0).to_numpy()
            changes = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
            firsts += (changes + at).tolist()
            numbers += values[changes].tolist()
            at += len(values)
    return firsts, numbers
