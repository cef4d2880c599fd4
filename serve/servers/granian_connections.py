"""The connections of a granian worker. granian bounds their number and neither counts them by address nor makes room.

They are sockets of this process. The kernel knows their addresses and since when they are idle. One that is shut down
looks to granian as if the client had hung up. This needs Linux; elsewhere nothing is closed.
"""

from __future__ import annotations

import math
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from sigdir.serve.http.addresses import beyond_share
from sigdir.serve.servers.limits import to_make_room

_OPEN_FILES = Path("/proc/self/fd")
_STATE, _LAST_DATA_SENT, _LAST_DATA_RECEIVED = 0, 44, 52  # of struct tcp_info, times in milliseconds; linux/tcp.h
_ESTABLISHED = 1


class _Connection(NamedTuple):
    socket: socket.socket
    """A second descriptor of it: granian may close its own at any moment."""
    address: str
    idle: float
    """Milliseconds since something was sent or received; infinite where the client has hung up."""


def close_excess(port: int, most: int, per_address: int) -> None:
    """Close connections to ``port``, the ones that are idle for longest: of an address that has more than ``per_address``,
    which may be 0 for any number, and of all once they are close to ``most``.

    Takes 20 us for each connection, and nothing as long as there are few.
    """
    try:
        names = os.listdir(_OPEN_FILES)
    except OSError:
        return
    if len(names) <= min(per_address or most, most // 2):
        return
    copies = list(_copies(map(int, names), port))
    try:
        # Read after the last one was copied: those that the client has not closed by then are open at the same time.
        found = [_Connection(copy, address, _idle(copy)) for copy, address in copies]
        excess = beyond_share(found, per_address, lambda each: each.address, _idle_of)
        for one in [*excess, *to_make_room(found, len(found), most, _idle_of)]:
            with suppress(OSError):
                one.socket.shutdown(socket.SHUT_RDWR)
    finally:
        for copy, _ in copies:
            copy.close()


def _idle_of(connection: _Connection) -> float:
    return connection.idle


def _copies(descriptors: Iterator[int], port: int) -> Iterator[tuple[socket.socket, str]]:
    """A second descriptor of each connection to ``port``, and its client's address.

    The first one has the number that the list of open files had, and ``descriptors`` names it.
    """
    seen: set[int] = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            status = os.fstat(descriptor)
            if stat.S_ISSOCK(status.st_mode) and status.st_ino not in seen:
                seen.add(status.st_ino)
                copy = socket.socket(fileno=os.dup(descriptor))
                try:
                    yield copy, _client_of(copy, port)
                except (OSError, ValueError):
                    copy.close()


def _client_of(connection: socket.socket, port: int) -> str:
    """The address of the client; raises OSError or ValueError for a socket that is no connection to ``port``."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.getsockname()[1] != port:
        raise ValueError
    return str(connection.getpeername()[0])


def _idle(connection: socket.socket) -> float:
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if state[_STATE] != _ESTABLISHED:  # granian closes it soon: the ones that are there are worth more
        return math.inf
    return float(min(struct.unpack_from("=I", state, at)[0] for at in (_LAST_DATA_SENT, _LAST_DATA_RECEIVED)))
