"""Limits of a worker that both servers share."""

from __future__ import annotations

import resource

MAX_HEADER_BYTES = 65_536

_MAX_CONNECTIONS = 2000
_MIN_CONNECTIONS = 16
_OWN_FILES = 256  # mapped columns, SQLite's three files, bodies that went to disk


def connection_limit() -> int:
    """Raise the limit of open files to the hard one; gives how many connections fit into it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = _MAX_CONNECTIONS if hard == resource.RLIM_INFINITY else hard - _OWN_FILES
    return max(_MIN_CONNECTIONS, min(_MAX_CONNECTIONS, most))
