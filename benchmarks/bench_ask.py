"""Questions over HTTP: SQL, and the lookups of others while heavy SQL runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from threading import Event, Thread
from urllib.parse import urlencode

from benchmarks import servers
from benchmarks.bench_serve import warehouse_of
from benchmarks.measure import Figure
from benchmarks.servers import Server

_TEN_ROWS = "SELECT * FROM signatures LIMIT 10"
_HEAVY = (
    "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b",
    "SELECT parameter_list(text_signature) AS list, count(*) FROM signatures GROUP BY list ORDER BY 2 DESC LIMIT 1000",
)
_LOOKUPS = 2000
_PAUSE_SECONDS = 0.002


def figures(rows: int, rounds: int) -> list[Figure]:
    """Ten rows by SQL in a warm process; the p99 of lookups, quiet and beside clients that send heavy queries."""
    with servers.ours(warehouse_of(rows), "waitress", options=["--sql"]) as server:
        return [_ten_rows(server), _lookups(server, max(3, rounds))]


def _address(sql: str) -> str:
    return f"/api/v1/sql/?{urlencode({'sql': sql})}"


def _ten_rows(server: Server) -> Figure:
    deadline = time.monotonic() + 120
    while len(server.json(_address(_TEN_ROWS)).get("rows", ())) != 10:  # its process is starting
        assert time.monotonic() < deadline
        time.sleep(1)
    seconds = median(_times(server, [_address(_TEN_ROWS)] * 50, 0.0))
    return Figure("sql", seconds * 1000)


def _lookups(server: Server, rounds: int) -> Figure:
    """The median over the pairs, because a busy machine has a p99 of its own."""
    quiet, busy = [], []
    for _ in range(rounds):
        quiet.append(_p99(server))
        with _heavy(server):
            busy.append(_p99(server))
    ratio = median(b / q for q, b in zip(quiet, busy, strict=True))
    return Figure("p99 beside sql", ratio, busy, quiet)


def _p99(server: Server) -> float:
    hashes = [f"/api/v1/signatures/?hex_signature=0x{n * 2654435761 % 2**32:08x}" for n in range(_LOOKUPS)]
    return sorted(_times(server, hashes, _PAUSE_SECONDS))[_LOOKUPS * 99 // 100]


def _times(server: Server, addresses: list[str], pause: float) -> list[float]:
    connection = HTTPConnection("127.0.0.1", server.port)
    found = []
    for address in addresses:
        began = time.perf_counter()
        connection.request("GET", address)
        connection.getresponse().read()
        found.append(time.perf_counter() - began)
        time.sleep(pause)
    connection.close()
    return found


@contextmanager
def _heavy(server: Server) -> Iterator[None]:
    """Two clients that send heavy queries one after the other."""
    done = Event()

    def ask(sql: str) -> None:
        while not done.is_set():
            server.body(_address(sql))

    clients = [Thread(target=ask, args=(sql,)) for sql in _HEAVY]
    for client in clients:
        client.start()
    time.sleep(0.5)
    try:
        yield
    finally:
        done.set()
        for client in clients:
            client.join()
