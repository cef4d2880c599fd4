"""Limits of a worker that both servers share."""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TypeVar

MAX_HEADER_BYTES = 65_536

WRITE_BYTES, WRITE_SECONDS = 131_072, 60.0
"""A client has so many seconds to take so many bytes of an answer, 2 KiB a second; then it gets no more."""

NO_ROOM = "The server's temporary folder has no room for this body."
NO_ROOM_SECONDS = 10
"""The answer to a body that the disk does not take, and when its client may come again."""

Connection = TypeVar("Connection")

_MIN_CONNECTIONS = 16
_OWN_FILES = 256  # mapped columns, SQLite's three files, bodies that went to disk


def connection_limit(wanted: int) -> int:
    """Raise the limit of open files to the hard one; gives how many connections fit into it, ``wanted`` at most."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = wanted if hard == resource.RLIM_INFINITY else hard - _OWN_FILES
    return max(_MIN_CONNECTIONS, min(wanted, most))


def note_no_room(error: OSError) -> None:
    """Say on standard error that a body could not be stored while it arrived."""
    print(f"error: {tempfile.gettempdir()}: no room for a body that arrives: {error}", file=sys.stderr, flush=True)


def to_make_room(
    idle: Sequence[Connection], open_now: int, most: int, since: Callable[[Connection], float]
) -> list[Connection]:
    """Of the ``idle`` connections those that are so for longest: from nine tenths of ``most`` on, down to three quarters.

    ``open_now`` counts all connections, ``since`` gives how long one has been idle.
    """
    if open_now <= most * 9 // 10:
        return []
    return sorted(idle, key=since, reverse=True)[: open_now - most * 3 // 4]
