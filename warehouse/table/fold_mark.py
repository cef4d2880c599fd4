"""When folding, or pulling from a store, last succeeded: an empty file's modification time, which any process can read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from sigdir.warehouse.table.paths import Paths


def mark_fold(paths: Paths) -> None:
    """Note that folding succeeded now. Nothing is synced: a lost mark is made again a period later."""
    with suppress(FileNotFoundError):  # there is no warehouse yet, so nothing to fold
        paths.last_fold.touch()


def mark_pull(paths: Paths) -> None:
    """Note that the working copy is as its store is now."""
    paths.last_pull.touch()


def last_fold(paths: Paths) -> float | None:
    """Seconds since 1970 of the last fold; None if there was none."""
    return _time_of(paths.last_fold)


def last_pull(paths: Paths) -> float | None:
    """Seconds since 1970 of the last pull; None if there was none."""
    return _time_of(paths.last_pull)


def _time_of(mark: Path) -> float | None:
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        return None
