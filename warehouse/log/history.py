"""The summaries of the commits: which imports there were, and when; and which one brought a row."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sigdir.warehouse.log.entry import existing_version, read_summary
from sigdir.warehouse.table.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import EPOCH, iso
from sigdir.warehouse.table.times import microseconds as since_1970


def history(paths: Paths, version: int | None = None) -> list[dict[str, Any]]:
    """The summaries of the commits up to ``version``, oldest first, as ``read_summary`` gives them.

    Raises UnreadableWarehouse.
    """
    last = existing_version(paths, version)
    return [] if last is None else list(newest_first(paths, last))[::-1]


def newest_first(paths: Paths, newest: int, after: int = -1) -> Iterator[dict[str, Any]]:
    """The summaries of the commits above ``after`` up to ``newest``, each read when it is asked for.

    Raises UnreadableWarehouse.
    """
    summaries = (read_summary(paths, number) for number in range(newest, max(after, -1), -1))
    return (summary for summary in summaries if summary is not None)


def newest_import(paths: Paths, newest: int, after: int = -1) -> dict[str, Any] | None:
    """The summary of the newest import of these; None if it is not there. Raises UnreadableWarehouse."""
    return next((summary for summary in newest_first(paths, newest, after) if "import" in summary), None)


def committed_since(paths: Paths, microseconds: int, newest: int) -> int:
    """The first version up to ``newest`` committed at or after a time since 1970; ``newest`` + 1 where none is.

    Found by bisection: of a log of 10,000 versions 14 entries are read. Commits that are not ours count as
    earlier. Raises UnreadableWarehouse.
    """

    def committed_at(version: int) -> int:
        summary = read_summary(paths, version)
        return since_1970(summary["committed_at"]) if summary else 0

    return bisect_left(range(newest + 1), microseconds, key=committed_at)


def version_at(paths: Paths, time: datetime) -> int | None:
    """The version that was the newest at a time (UTC where it has no zone); None if there is no table.

    Raises UnreadableWarehouse, also for a time before the first version that has something.
    """
    newest = existing_version(paths)
    if newest is None:
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    first = next(filter(None, (read_summary(paths, number) for number in range(newest + 1))), None)
    if first is not None and moment < first["committed_at"]:
        raise UnreadableWarehouse(
            f"{paths.root} has no version at {iso(moment)}; the first is of {iso(first['committed_at'])}"
        )
    return max(0, committed_since(paths, since_1970(moment) // 1000 * 1000 + 1, newest) - 1)


# Where a row came from: the number of its import, which the index of a data file has, and that import's summary.

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
    names = tuple(public_name(source["path"]) for source in sources[:_SOURCES])
    return Origin(
        summary["import"], summary["version"], summary["committed_at"], summary["source"], names,
        len(sources), summary["totals"]["imported"],
    )  # fmt: skip


def public_name(path: str) -> str:
    """The name of a source without its folder."""
    return path.rstrip("/").rpartition("/")[2]


class Origins:
    """Finds origins and keeps them: a commit never changes. Safe for threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._found: dict[int, Origin] = {0: POSTED}

    def of(self, number: int, created_at: int, newest: int) -> Origin | None:
        """The import with this number, which brought a row of this time; None if the log cannot be read."""
        if number not in self._found:
            with suppress(WarehouseError, OSError):
                found = self._find(number, created_at, newest)
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
