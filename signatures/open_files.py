"""The process's limit of open files."""

from __future__ import annotations

from contextlib import suppress
from resource import RLIMIT_NOFILE, getrlimit, setrlimit


def allow_open_files() -> None:
    """Raise the limit as far as the process may.

    Each mapped column and each connection holds a descriptor: where 256 are allowed, 26 large data files are too many.
    """
    _, most = getrlimit(RLIMIT_NOFILE)
    with suppress(ValueError):  # of macOS: it allows fewer than it says
        setrlimit(RLIMIT_NOFILE, (most, most))
