"""waitress with our dispatcher, in this process: short requests are answered at once, and nobody who reads slowly holds a thread."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from waitress import wasyncore
from waitress.server import create_server

from sigdir.serve.core.process import FORK
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.waitress_worker import UNREAD_BYTES, ShortFirst, close_stalled, serve
from sigdir.warehouse.index.view import this_takes_long
from tests.conftest import SAFETY_SECONDS
from tests.serve.support import HOST, answer_on

LARGE = b"x" * (7 << 20)
"""More than the buffers of a connection hold, and as much as a page of the longest texts."""


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Answers with the thread that answers, or with much."""
    if not environ["PATH_INFO"].startswith("/short") or environ["PATH_INFO"] == "/short/long":
        this_takes_long()
    body = LARGE if environ["PATH_INFO"] == "/large" else str(threading.get_ident()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]


class Running:
    """A waitress server with one thread; the test's own thread runs its loop."""

    def __init__(self, listening: socket.socket) -> None:
        self._port = listening.getsockname()[1]
        self.sockets: dict[int, Any] = {}
        server: Any = create_server(
            app, map=self.sockets, sockets=[listening], threads=1, outbuf_high_watermark=UNREAD_BYTES
        )
        self._own = server.task_dispatcher
        self._short = ShortFirst(server)

    def connected(self, *paths: str, method: str = "GET") -> socket.socket:
        """A connection with a request for each path, sent at once."""
        connection = socket.create_connection((HOST, self._port))
        connection.sendall(b"".join(f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for path in paths))
        return connection

    def rounds(self, is_done: Callable[[], bool]) -> None:
        """Run the loop until it is so; or else pytest-timeout ends it."""
        while not is_done():
            wasyncore.loop(timeout=0.01, use_poll=True, map=self.sockets, count=1)
            self._short.after_round()

    def answer(self, path: str, method: str = "GET") -> bytes:
        with self.connected(path, method=method) as connection:
            self.rounds(lambda: is_readable(connection))
            return answer_on(connection).body

    def close(self) -> None:
        for each in list(self.sockets.values()):
            each.handle_close()
        self._own.shutdown()


@contextmanager
def running() -> Iterator[Running]:
    with socket.socket() as listening:
        listening.bind((HOST, 0))
        server = Running(listening)
        try:
            yield server
        finally:
            server.close()


def is_readable(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_a_short_request_is_answered_by_the_thread_that_reads() -> None:
    """Any other is answered by a thread of waitress: what takes long, stores, or has a long query."""
    loop = str(threading.get_ident()).encode()
    with running() as server:
        assert server.answer("/short") == loop
        assert server.answer("/other") != loop
        assert server.answer("/short/long") != loop
        assert server.answer("/short", "POST") != loop
        assert server.answer("/short", "OPTIONS") != loop
        assert server.answer("/short?" + "page=1&" * 40) != loop
        assert server.answer("/short") == loop


def test_requests_that_are_sent_at_once_are_answered_in_order() -> None:
    """By a thread, however short they are."""
    with running() as server, server.connected("/short", "/other", "/short") as connection:
        bodies: list[bytes] = []

        def received() -> bool:
            if is_readable(connection):
                bodies.append(connection.recv(65_536))
            return b"".join(bodies).count(b"HTTP/1.1 200") == 3

        server.rounds(received)
    assert str(threading.get_ident()).encode() not in b"".join(bodies)


def test_clients_that_read_nothing_hold_no_thread() -> None:
    """Three have sent three requests for large answers each, and the only thread answers another client."""
    with running() as server, ExitStack() as stack:
        unread = [stack.enter_context(server.connected("/large", "/large", "/large")) for _ in range(3)]
        server.rounds(lambda: all(map(is_readable, unread)))
        assert server.answer("/other")
        assert server.answer("/short")


def test_a_client_that_takes_nothing_is_hung_up_on() -> None:
    """A minute after it took something; one that waits for no answer stays."""
    with running() as server, server.connected("/large") as unread, server.connected() as idle:
        server.rounds(lambda: is_readable(unread) and len(server.sockets) == 4)
        connections = [each for each in server.sockets.values() if hasattr(each, "last_activity")]
        server.rounds(lambda: not any(each.requests for each in connections))
        now = max(each.last_activity for each in connections)
        close_stalled(server.sockets, now + 59)
        assert len(server.sockets) == 4
        close_stalled(server.sockets, now + 61)
        assert len(server.sockets) == 3
        idle.sendall(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n")
        server.rounds(lambda: is_readable(idle))


def test_a_worker_ends_with_its_supervisor() -> None:
    """By the end of a pipe, which every system has; a connection that is idle does not keep it."""
    held, theirs = os.pipe()
    os.close(held)
    with socket.socket() as bound, socket.socket() as idle, FileIO(theirs, "w") as beats:
        bound.bind((HOST, 0))
        bound.listen()
        idle.connect(bound.getsockname())
        worker = FORK.Process(target=serve, args=(app, Settings(Path("nowhere")), bound, beats), daemon=True)
        worker.start()
        worker.join(SAFETY_SECONDS)
        assert worker.exitcode == 0


def test_a_server_without_that_attribute_stays_as_it_is() -> None:
    """Another waitress may name it differently; its own dispatcher then answers everything."""

    class Other:
        """A server that has no task_dispatcher."""

    other = Other()
    ShortFirst(other).after_round()
    assert vars(other) == {}
