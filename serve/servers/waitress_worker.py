"""A waitress worker. While its loop runs, the process writes its id into the supervisor's pipe."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable
from io import FileIO
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from sigdir.serve.core.budget import FREE_BYTES
from sigdir.serve.core.process import write_line
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.start import START_ERROR
from sigdir.serve.servers.startup import open_app
from sigdir.warehouse.index.view import TakesLong, short_only, this_takes_long
from sigdir.warehouse.table.errors import UnreadableWarehouse, WarehouseError

UNREAD_BYTES = 8 << 20
"""Of an answer, so much waits for its client; then the thread waits too. More than a page of the longest texts has, so
that only streams wait, which have a number of threads."""
WRITE_SECONDS = 60.0
"""A client has so long to take another piece of its answer; then it gets no more."""
_DRAIN_SECONDS = 10.0
_CHECK_SECONDS = 0.25
_CONNECTIONS = 2000  # each costs a microsecond whenever any of them has something to do
_OWN_FILES = 256  # mapped columns, SQLite's three files, bodies that went to disk


def main(settings: Settings, bound: socket.socket, lock: socket.socket, beats: FileIO) -> None:
    """Serve at the bound socket, and end the process. ``lock`` is that of the address; ``beats`` is the pipe."""
    try:
        app, processes = open_app(settings, inherited=(bound, lock, beats))
        serve(app, settings, bound, beats)
        for process in processes.values():  # one may still write an index, and its folder may be removed next
            process.close()
    except (WarehouseError, OSError) as error:
        write_line(f"Error: {error}")
        os._exit(START_ERROR)  # threads may still run
    os._exit(0)  # unloading the modules takes seconds on a busy machine; lines of the log are flushed one by one


def serve(app: Any, settings: Settings, bound: socket.socket, beats: FileIO) -> None:
    """Serve until SIGTERM or the supervisor's end, then finish the requests that have begun."""
    sockets: dict[int, Any] = {}
    server: Any = create_server(
        app,
        map=sockets,
        sockets=[bound],
        threads=settings.threads,
        ident=None,
        server_name=settings.host,
        connection_limit=_connection_limit(),
        channel_timeout=60,
        # The application refuses large bodies in the words of 4byte.directory's API; this limit stops the ones it never sees.
        max_request_body_size=2 * max(settings.max_body, settings.max_import_body),
        max_request_header_size=65_536,
        # waitress copies the size of a chunk and a trailer that have no end with each piece that comes.
        recv_bytes=65_536,
        outbuf_high_watermark=UNREAD_BYTES,
        # Memory for a body that is on its way, per connection; the rest goes to disk.
        inbuf_overflow=65_536,
        # A worker that answers SQL reads on while a query runs: so it sees that the client has gone.
        channel_request_lookahead=int(settings.is_patient),
        log_socket_errors=False,  # it logs a traceback for each client that went away
        clear_untrusted_proxy_headers=False,
    )
    # It would warn of each request that waits for a thread.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    logging.getLogger("waitress").addFilter(_without_traceback)
    short = ShortFirst(server)
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the supervisor passes a Ctrl-C on as SIGTERM

    def handle_connections(seconds: float) -> None:
        wasyncore.loop(timeout=seconds, use_poll=True, map=sockets, count=1)
        short.after_round()

    checked = 0.0
    while not stopping:
        handle_connections(0.5)
        if (now := time.time()) - checked >= _CHECK_SECONDS or now < checked:
            checked = now
            close_stalled(sockets, now)
            if not _beat(beats):
                break
    _drain(server, sockets, handle_connections)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Let what ends a stream in its middle be one line where it is a damaged file, which the error names."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, UnreadableWarehouse):
        record.msg, record.args, record.exc_info = f"error: {record.getMessage()}: {error}", (), None
    return True


def _connection_limit() -> int:
    """How many connections fit into the limit of open files, which the command has raised to the hard one."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _CONNECTIONS if limit == resource.RLIM_INFINITY else max(16, min(_CONNECTIONS, limit - _OWN_FILES))


def _beat(beats: FileIO) -> bool:
    """Tell the supervisor that the loop runs; False if it has ended, even by kill -9."""
    try:
        beats.write(array("i", [os.getpid()]))  # writes nothing while the supervisor is stopped and the pipe full
    except BrokenPipeError:
        return False
    return True


def close_stalled(sockets: dict[int, Any], now: float) -> None:
    """Close connections whose answer waits for a client that takes none of it: a stream's holds a thread and a permit."""
    for connection in list(sockets.values()):
        if connection.writable() and now - getattr(connection, "last_activity", now) > WRITE_SECONDS:
            connection.handle_close()


def _drain(server: Any, sockets: dict[int, Any], handle_connections: Callable[[float], None]) -> None:
    """Accept no more connections, and finish the requests that have begun to arrive."""
    server.del_channel()
    server.socket.close()
    deadline = time.monotonic() + _DRAIN_SECONDS
    while time.monotonic() < deadline and any(map(_is_busy, list(sockets.values()))):
        handle_connections(0.05)


def _is_busy(connection: Any) -> bool:
    """Whether a request is arriving, in work, or its answer not yet sent."""
    return bool(getattr(connection, "requests", ()) or getattr(connection, "request", None) or connection.writable())


class ShortFirst:
    """Takes the place of a server's ``task_dispatcher``: short requests are answered by the thread that read them.

    Waking another thread and being woken for its answer costs 100 us, the answer 40. What turns out to take long goes to
    the server's own dispatcher. This uses connections' ``service()``, ``requests`` and asyncore's methods.

    A request that was sent behind another one waits until the client has taken the answer before: by itself waitress
    has a thread wait for a client that sends many requests and reads nothing.
    """

    def __init__(self, server: Any) -> None:
        """Of a waitress whose servers have no such attribute nothing changes."""
        self._own: Any = getattr(server, "task_dispatcher", None)
        self._loop = threading.get_ident()
        self._short, self._behind = deque[Any](), deque[Any]()
        if self._own is not None:
            server.task_dispatcher = self

    def add_task(self, connection: Any) -> None:
        """Take a connection. waitress holds its lock meanwhile, so nothing is answered here."""
        request = connection.requests[0]
        if threading.get_ident() != self._loop:
            self._behind.append(connection)
        elif not request.error and request.command in ("GET", "HEAD") and len(request.query) <= FREE_BYTES:
            self._short.append(connection)
        else:
            self._own.add_task(connection)

    def after_round(self) -> None:
        """Answer what is short. To be called by the thread of the loop each time that it has handled its connections."""
        while self._short:
            connection = self._short.popleft()
            try:
                with short_only():
                    if len(connection.requests) > 1:  # waitress may wait between two
                        this_takes_long()
                    connection.service()
            except TakesLong:
                self._own.add_task(connection)
            except Exception:  # noqa: BLE001 - waitress logs it and hangs up
                connection.handle_error()
        for connection in [self._behind.popleft() for _ in range(len(self._behind))]:
            is_unread = connection.connected and connection.writable()
            (self._behind.append if is_unread else self._own.add_task)(connection)
