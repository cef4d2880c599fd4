"""The summaries of the commits: which imports there were, and when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sigdir.warehouse.log.entry import existing_version, read_summary
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.times import iso
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
