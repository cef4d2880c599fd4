"""When folding last succeeded: the modification time of an empty file, which any process can read."""

from __future__ import annotations

from contextlib import suppress

from sigdir.warehouse.paths import Paths


def mark_fold(paths: Paths) -> None:
    """Note that folding succeeded now. Nothing is synced: a lost mark is made again a period later."""
    with suppress(FileNotFoundError):  # there is no warehouse yet, so nothing to fold
        paths.last_fold.touch()


def last_fold(paths: Paths) -> float | None:
    """Seconds since 1970 of the last success; None if there was none."""
    try:
        return paths.last_fold.stat().st_mtime
    except FileNotFoundError:
        return None
