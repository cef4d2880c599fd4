"""The summaries of the commits: which imports there were, and when."""

from __future__ import annotations

from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from typing import Any

from sigdir.warehouse.log.actions import EPOCH
from sigdir.warehouse.log.entry import existing_version, read_summary
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import iso


def history(paths: Paths, version: int | None = None, newest: int | None = None) -> list[dict[str, Any]]:
    """The summaries of the commits up to ``version``, oldest first; of the ``newest`` N versions if given.

    Each is what ``read_summary`` gives. Raises UnreadableWarehouse.
    """
    last = existing_version(paths, version)
    if last is None:
        return []
    first = max(0, last + 1 - newest) if newest is not None else 0
    summaries = (read_summary(paths, number) for number in range(first, last + 1))
    return [summary for summary in summaries if summary is not None]


def last_import(paths: Paths) -> int:
    """The number of the newest import, 0 for none. Reads the log from its end up to that import."""
    newest = existing_version(paths)
    summary = newest_import(paths, newest) if newest is not None else None
    return int(summary["import"]) if summary is not None else 0


def newest_import(paths: Paths, newest: int, after: int = -1) -> dict[str, Any] | None:
    """The summary of the newest import among the versions above ``after`` up to ``newest``; None if it is not there.

    Reads the log from its end. Raises UnreadableWarehouse.
    """
    for number in range(newest, after, -1):
        summary = read_summary(paths, number)
        if summary is not None and "import" in summary:
            return summary
    return None


class CommitSummaries:
    """The summaries of one log, each read at most once: an entry never changes."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._read: dict[int, dict[str, Any] | None] = {}

    def at(self, version: int) -> dict[str, Any] | None:
        """What ``read_summary`` gives; raises UnreadableWarehouse."""
        if version not in self._read:
            self._read[version] = read_summary(self._paths, version)
        return self._read[version]

    def first_since(self, milliseconds: int, newest: int) -> int:
        """The first version up to ``newest`` committed at or after a time since 1970; ``newest`` + 1 where none is.

        Found by bisection: of a log of 10,000 versions 14 entries are read. Commits that are not ours count as
        earlier. Raises UnreadableWarehouse.
        """
        return bisect_left(range(newest + 1), milliseconds, key=self._committed_at)

    def _committed_at(self, version: int) -> int:
        summary = self.at(version)
        return round(summary["committed_at"].timestamp() * 1000) if summary else 0


def version_at(paths: Paths, time: datetime) -> int | None:
    """The version that was the newest at a time (UTC where it has no zone); None if there is no table.

    Raises UnreadableWarehouse, also for a time before the first version that has something.
    """
    newest = existing_version(paths)
    if newest is None:
        return None
    moment = time if time.tzinfo else time.replace(tzinfo=UTC)
    milliseconds = (moment - EPOCH) // timedelta(milliseconds=1)
    summaries = CommitSummaries(paths)
    first = next((summary for number in range(newest + 1) if (summary := summaries.at(number))), None)
    if first is not None and moment < first["committed_at"]:
        raise UnreadableWarehouse(
            f"{paths.root} has no version at {iso(moment)}; the first is of {iso(first['committed_at'])}"
        )
    return max(0, summaries.first_since(milliseconds + 1, newest) - 1)
