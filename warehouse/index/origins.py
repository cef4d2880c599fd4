"""Where a row came from: the number of its import, and that import's summary in the log.

The index of a data file has the number. The commit is found by bisection over the log's times, because it is not
earlier than its rows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sigdir.signatures.collections import Collection
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.entry import read_summary
from sigdir.warehouse.log.history import committed_since
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import EPOCH

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


POSTED = Origin(0, -1, EPOCH, None, (), 0, 0)


def origin_of(summary: dict[str, Any]) -> Origin:
    """The public part of an import's summary: names of folders stay private."""
    sources = summary["sources"]
    names = tuple(source["path"].rstrip("/").rpartition("/")[2] for source in sources[:_SOURCES])
    return Origin(
        summary["import"], summary["version"], summary["committed_at"], summary["source"], names,
        len(sources), summary["totals"]["imported"],
    )  # fmt: skip


class Origins:
    """Finds origins and keeps them: a commit never changes. Safe for threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._found: dict[int, Origin] = {0: POSTED}

    def of(self, view: View, collection: Collection, segment: int, row: int) -> Origin | None:
        """The import of a row of the view's n-th segment; None if the log cannot be read."""
        rows = view.segments[collection][segment]
        number = rows.import_at(row)
        if number not in self._found:
            with suppress(WarehouseError, OSError):
                found = self._find(number, int(rows.created_at[row]), view.snapshot.version)
                if found is not None:
                    self._found[number] = found
        return self._found.get(number)

    def _find(self, number: int, created_at: int, newest: int) -> Origin | None:
        """The commit of an import that has a row of this time."""
        # Commits have milliseconds.
        first = committed_since(self._paths, created_at // 1000 * 1000, newest)
        # One version earlier too: the times of a batch may run a little ahead of the clock.
        for version in range(max(0, first - 1), min(newest + 1, first + _STEPS)):
            summary = read_summary(self._paths, version)
            if summary is not None and summary.get("import") == number:
                return origin_of(summary)
        return None
