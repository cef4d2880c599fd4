"""One client address has a bounded part of a worker: connections, threads, streams. 127.0.0.2 stands for a client elsewhere."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPResponse
from types import SimpleNamespace
from typing import Any

import pytest

from sigdir.serve.http.addresses import AddressShares, beyond_share, counted_address
from sigdir.serve.servers.granian_connections import close_excess
from sigdir.serve.servers.limits import to_make_room
from sigdir.serve.servers.rsgi import RsgiApp
from sigdir.serve.servers.waitress_channel import create, run_once
from sigdir.serve.settings import Settings
from tests.conftest import SAFETY_SECONDS, import_files
from tests.serve.support import HOST, SIGNATURES_PATH, Server, by, get, serving, until

GREEDY, OTHER = "127.0.0.2", "127.0.0.3"
SEARCH = "/search/?q=aaaa"
CONNECTIONS, THREADS = 6, 8
STREAMS, STREAMS_OF_ONE = THREADS // 2, THREADS // 4


@pytest.fixture(scope="module", params=["waitress", pytest.param("granian", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One worker over 12 MB of texts, more than the buffers of a connection hold."""
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "texts.txt").write_text("".join(f"{'a' * 60_000}{number}()\n" for number in range(200)))
    import_files([folder / "texts.txt"], folder / "warehouse")
    options = ["--connections-per-address", str(CONNECTIONS), "--threads", str(THREADS)]
    with serving(folder / "warehouse", *by(request.param), *options, workers=1) as running:
        yield running
        assert running.errors() == []


def connected(port: int, address: str, path: str = "") -> socket.socket:
    """A connection from this address, with a GET on it if there is a path."""
    connection = socket.create_connection((HOST, port), SAFETY_SECONDS, source_address=(address, 0))
    if path:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    return connection


def status_on(connection: socket.socket) -> int:
    response = HTTPResponse(connection)
    response.begin()
    return response.status


def status_of(server: Server, address: str, path: str) -> int:
    with connected(server.port, address, path) as connection:
        return status_on(connection)


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(SAFETY_SECONDS)


@pytest.mark.long
def test_an_address_has_a_number_of_connections(server: Server) -> None:
    """What it has beyond that is closed; the rest works, and other addresses notice nothing."""
    with ExitStack() as stack:
        greedy = [stack.enter_context(connected(server.port, GREEDY)) for _ in range(5 * CONNECTIONS)]
        own = [stack.enter_context(connected(server.port, HOST)) for _ in range(5 * CONNECTIONS)]
        assert until(lambda: sum(map(is_open, greedy)) == CONNECTIONS, "the others to be closed")
        for connection in [*filter(is_open, greedy), *own, stack.enter_context(connected(server.port, OTHER))]:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert status_on(connection) == 200


def test_an_address_has_a_number_of_streams(server: Server) -> None:
    """It reads none of them; another address has the others."""
    path = f"{SIGNATURES_PATH}?page_size=200"
    with ExitStack() as stack:
        unread = [stack.enter_context(connected(server.port, GREEDY, path)) for _ in range(STREAMS_OF_ONE)]
        assert [status_on(connection) for connection in unread] == [200] * STREAMS_OF_ONE
        assert status_of(server, GREEDY, path) == 503
        assert status_of(server, OTHER, path) == 200
        assert get(server.port, f"{SIGNATURES_PATH}?page_size=1").status == 200
    assert until(lambda: status_of(server, GREEDY, path) == 200, "the streams to end")


def test_more_requests_than_an_address_has_threads_are_answered(server: Server) -> None:
    """They wait, and each has its answer."""
    with ExitStack() as stack:
        for _ in range(5):
            for connection in [stack.enter_context(connected(server.port, OTHER, SEARCH)) for _ in range(CONNECTIONS)]:
                assert status_on(connection) == 200
                connection.close()


def test_an_address_has_half_of_the_threads_of_waitress() -> None:
    """While two requests of one address take for ever, the second waits for the first, and another's is answered."""
    go_on = threading.Event()

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            go_on.wait(SAFETY_SECONDS)
        start_response("200 OK", [("Content-Length", "0")])
        return []

    with socket.socket() as listening, ExitStack() as stack:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        server = create(app, 2, limits_addresses=True, sockets=[listening])
        stack.callback(close, server)
        slow = [stack.enter_context(connected(port, GREEDY, "/slow")) for _ in range(2)]
        quick = stack.enter_context(connected(port, OTHER, "/quick"))
        for answered in ([quick], slow):
            for connection in answered:
                while not is_readable(connection):  # or else pytest-timeout ends it
                    run_once(server, 0.01)
            assert [is_readable(connection) for connection in slow] == [answered is slow] * 2
            go_on.set()


def test_a_short_request_is_answered_by_the_thread_that_reads_on_waitress() -> None:
    """Any other is answered by a thread of the dispatcher."""
    answered: dict[str, int] = {}

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        answered[environ["PATH_INFO"]] = threading.get_ident()
        start_response("200 OK", [("Content-Length", "0")])
        return []

    def is_short(method: str, path: str, *_: str) -> bool:
        return path == "/short"

    with socket.socket() as listening, ExitStack() as stack:
        listening.bind((HOST, 0))
        listening.listen()
        server = create(app, 1, is_short, limits_addresses=False, sockets=[listening])
        stack.callback(close, server)
        for path in ("/short", "/long"):
            connection = stack.enter_context(connected(listening.getsockname()[1], OTHER, path))
            while not is_readable(connection):  # or else pytest-timeout ends it
                run_once(server, 0.01)
    assert answered["/short"] == threading.get_ident() != answered["/long"]


def close(server: Any) -> None:
    for channel in list(server.active_channels.values()):
        channel.handle_close()
    server.task_dispatcher.shutdown()
    server.close()


def is_readable(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_an_address_has_half_of_the_threads_of_granian() -> None:
    """As on waitress."""
    go_on = threading.Event()
    answered: list[str] = []

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/slow":
            go_on.wait(SAFETY_SECONDS)
        start_response("200 OK", [])
        return []

    def request(address: str, path: str) -> Awaitable[None]:
        scope = SimpleNamespace(
            client=f"{address}:5",
            method="GET",
            path=path,
            query_string="",
            http_version="1.1",
            scheme="http",
            headers={},
        )
        return served(scope, SimpleNamespace(response_bytes=lambda *_: answered.append(path)))

    async def ask() -> None:
        slow = [asyncio.ensure_future(request(GREEDY, "/slow")) for _ in range(2)]
        await request(OTHER, "/quick")
        assert answered == ["/quick"]
        go_on.set()
        await asyncio.gather(*slow)
        assert answered == ["/quick", "/slow", "/slow"]

    served = RsgiApp(app, Settings(threads=2)).__rsgi__
    with ThreadPoolExecutor(1) as pool:  # a test of the pages may have left a running loop in this thread
        pool.submit(lambda: asyncio.run(asyncio.wait_for(ask(), SAFETY_SECONDS))).result()


def test_a_request_that_is_cancelled_with_its_turn_gives_it_back() -> None:
    """Its client has gone between the moment when it was given its turn and the one when it takes it."""

    async def cancel() -> None:
        served = RsgiApp(lambda *_: [], Settings(threads=2))
        await served._turn(GREEDY)
        second = asyncio.ensure_future(served._turn(GREEDY))
        await asyncio.sleep(0)
        served._end_turn(GREEDY)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert second.cancelled()
        await served._turn(GREEDY)

    with ThreadPoolExecutor(1) as pool:  # a test of the pages may have left a running loop in this thread
        pool.submit(lambda: asyncio.run(asyncio.wait_for(cancel(), SAFETY_SECONDS))).result()


def test_a_share_of_tasks() -> None:
    """A task without room waits, and begins when one of its own address ends; others do not wait for it."""
    shares: AddressShares[str] = AddressShares(2)
    assert [shares.begin("192.0.2.1", task) for task in "abcd"] == [True, True, False, False]
    assert shares.begin("192.0.2.2", "e")
    assert not shares.take("192.0.2.1")
    assert [shares.end("192.0.2.1") for _ in range(4)] == ["c", "d", None, None]
    assert shares.end("192.0.2.2") is None
    assert all(shares.take("192.0.2.1") == has_room for has_room in (True, True, False))


@pytest.mark.parametrize(("share", "address"), [(0, "192.0.2.1"), (1, "127.0.0.1"), (1, "::ffff:127.0.0.1"), (1, "")])
def test_what_has_no_share(share: int, address: str) -> None:
    """Nobody where addresses are not limited, and never this machine itself."""
    shares: AddressShares[int] = AddressShares(share)
    assert all(shares.begin(address, task) for task in range(9))
    assert shares.end(address) is None


def test_networks_of_ipv6_count_as_one_address() -> None:
    """A client has 2^64 addresses of its own."""
    assert counted_address("2001:db8::1") == counted_address("2001:db8::ffff:1") != counted_address("2001:db8:0:1::1")
    assert counted_address("::ffff:192.0.2.1") == counted_address("192.0.2.1") == "192.0.2.1"


def test_beyond_a_share() -> None:
    """Of an address that has too many, the ones that are idle for longest."""
    items = [
        ("192.0.2.1", 5),
        ("192.0.2.1", 9),
        ("192.0.2.1", 7),
        ("192.0.2.2", 99),
        ("127.0.0.1", 1),
        ("127.0.0.1", 2),
    ]
    for share, expected in ((0, []), (1, [9, 7]), (2, [9]), (3, [])):
        found = beyond_share(items, share, lambda item: item[0], lambda item: item[1])
        assert [idle for _, idle in found] == expected


@contextmanager
def accepted(number: int) -> Iterator[tuple[int, list[socket.socket], list[socket.socket]]]:
    """A port, so many connections to it from one address, and the server's ends of them."""
    with socket.socket() as listening, ExitStack() as stack:
        listening.bind((HOST, 0))
        listening.listen()
        port = listening.getsockname()[1]
        clients, ours = [], []
        for _ in range(number):
            clients.append(stack.enter_context(connected(port, OTHER)))
            ours.append(stack.enter_context(listening.accept()[0]))
        yield port, clients, ours


def test_granian_s_connections_are_counted_once() -> None:
    """Whatever number the list of open files has: here one between those of the connections."""
    with accepted(CONNECTIONS + 1) as (port, clients, ours):
        clients.pop(1).close()
        ours.pop(1).close()
        close_excess(port, 10_000, CONNECTIONS)
        assert all(map(is_open, clients))
        close_excess(port, 10_000, CONNECTIONS - 1)
        assert sum(map(is_open, clients)) == CONNECTIONS - 1


def test_of_granian_s_connections_those_whose_client_has_gone_are_closed_first() -> None:
    """However short ago they were used."""
    with accepted(CONNECTIONS + 1) as (port, clients, ours):
        for each in ours:
            each.send(b"x")
        ours[-1].send(b"x")
        clients.pop().close()
        with suppress(ConnectionResetError):
            assert ours[-1].recv(1) == b""
        close_excess(port, 10_000, CONNECTIONS)
        assert [each.recv(1) for each in clients] == [b"x"] * CONNECTIONS
        assert all(map(is_open, clients))


@pytest.mark.parametrize(("open_now", "closed"), [(18, []), (19, [8, 7, 6, 5]), (20, [8, 7, 6, 5, 4])])
def test_room_is_made_close_to_the_limit(open_now: int, closed: list[int]) -> None:
    """From nine tenths of 20 on as many are closed as leave three quarters, the ones that are idle for longest."""
    assert to_make_room([3, 8, 4, 6, 5, 7], open_now, 20, float) == closed
