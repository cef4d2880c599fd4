"""Bulk requests: hashes resolved, whole collections downloaded, and the memory that they take.

One worker runs on one core, the client on another if there is one. The references are fixed rates that a
mirror or an indexer needs. Answers are compared with the files before anything is timed.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import servers
from benchmarks.bench_serve import warehouse_of
from benchmarks.measure import Figure
from benchmarks.servers import Server
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths

_BODY = 100_000
_BODIES = 10
_HASHES_WANTED = 300_000
_ROWS_WANTED = 1_000_000
_MEMORY_WANTED = 128.0
"""MiB that a worker may grow by while it sends collections of any size: 16 in transit, and a few blocks per thread."""


def figures(rows: int, rounds: int, server: str) -> list[Figure]:
    warehouse = warehouse_of(rows)
    segments = _segments(warehouse)
    random = np.random.default_rng(11)
    misses = [_body(random.integers(0, 1 << 32, _BODY, np.uint64).astype(">u4")) for _ in range(_BODIES)]
    hits = [_body(_known(segments, random)) for _ in range(_BODIES)]
    with servers.ours(warehouse, server) as running, _one_core(running.pid):
        _check(running, segments, random)
        found = [
            _rate(f"{server}: random hashes resolved against {rows:,} rows", _HASHES_WANTED, rounds, lambda: _resolve(running, misses)),
            _rate(f"{server}: known hashes resolved against {rows:,} rows", _HASHES_WANTED, rounds, lambda: _resolve(running, hits)),
        ]  # fmt: skip
        before = _anonymous_mib(running.pid)
        for kind in ("ndjson", "csv"):
            download = partial(_download, running, kind)
            found.append(_rate(f"{server}: {rows:,} rows as {kind}", _ROWS_WANTED, rounds, download))
        found.append(
            _rate(f"{server}: {rows:,} rows by the change feed", _ROWS_WANTED / 2, rounds, lambda: _follow(running))
        )
        grown = _anonymous_mib(running.pid) - before
        found.append(
            Figure(
                f"{server}: memory while {rows:,} rows are downloaded", f"{grown:.0f} MiB", f"{_MEMORY_WANTED:.0f} MiB",
                grown / _MEMORY_WANTED, "<= 1x", grown <= _MEMORY_WANTED,
            )
        )  # fmt: skip
    return found


def _rate(name: str, wanted: float, rounds: int, work: Callable[[], float]) -> Figure:
    """The best rate of several rounds and the rate to reach, both per second."""
    rates = [work() for _ in range(rounds)]
    ratio = max(rates) / wanted
    return Figure(name, f"{max(rates):,.0f}/s", f"{wanted:,.0f}/s", ratio, ">= 1x", ratio >= 1, rates, [wanted])


def _anonymous_mib(pid: int) -> float:
    """Anonymous memory of a server's largest process, in MiB: mapped columns do not count."""
    lines = [line for p in servers.family(pid) for line in Path(f"/proc/{p}/smaps_rollup").read_text().splitlines()]
    return max(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


@contextmanager
def _one_core(pid: int) -> Iterator[None]:
    """Pin the server to the first core and this process to the others, if there are several."""
    cores = sorted(os.sched_getaffinity(0))
    for process in servers.family(pid):
        for thread in Path(f"/proc/{process}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores[:1])
    os.sched_setaffinity(0, cores[1:] or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _segments(warehouse: Path) -> list[Segment]:
    paths = Paths(warehouse)
    files = read_snapshot(paths).files[SIGNATURES]
    return [segment_of(paths, file) for file in files]


def _known(segments: list[Segment], random: np.random.Generator) -> np.ndarray:
    (segment, *_) = segments
    rows = random.integers(0, segment.rows, _BODY)
    return np.ascontiguousarray(segment.hash[rows]).view(">u4").reshape(-1)


def _body(hashes: np.ndarray) -> bytes:
    return b"\n".join(b"0x%08x" % value for value in hashes.tolist())


def _check(server: Server, segments: list[Segment], random: np.random.Generator) -> None:
    """Check that some hashes resolve to exactly their texts."""
    hashes = _known(segments, random)[:200]
    answer = b"".join(_sent(server, "POST", "/api/v1/resolve/", _body(hashes)))
    for value, line in zip(hashes.tolist(), answer.splitlines(), strict=True):
        raw = value.to_bytes(4, "big")
        texts = [segment.text_at(row) for segment in segments for row in segment.with_hash(raw).tolist()]
        assert json.loads(line) == {"hash": "0x" + raw.hex(), "texts": texts}, line


def _resolve(server: Server, bodies: list[bytes]) -> float:
    began = time.perf_counter()
    for body in bodies:
        lines = sum(piece.count(b"\n") for piece in _sent(server, "POST", "/api/v1/resolve/", body))
        assert lines == _BODY, f"{lines} lines"
    return len(bodies) * _BODY / (time.perf_counter() - began)


def _download(server: Server, kind: str) -> float:
    """Rows per second; the lines are counted and not kept."""
    version = server.json("/dumps/")["latest"]
    began = time.perf_counter()
    path = f"/dumps/{version['version']}/signatures.{kind}"
    lines = sum(piece.count(b"\n") for piece in _sent(server, "GET", path))
    seconds = time.perf_counter() - began
    assert lines - (kind == "csv") == version["rows"]["signatures"], f"{lines} lines"
    return float(lines / seconds)


def _follow(server: Server) -> float:
    """Rows per second from the first cursor to the end, with pages of the largest size."""
    began = time.perf_counter()
    rows, after, more = 0, "", True
    while more:
        body = b"".join(_sent(server, "GET", f"/api/v1/changes/?limit=50000&after={after}"))
        last = json.loads(body[body.rindex(b"\n", 0, -1) + 1 :])
        rows, after, more = rows + body.count(b"\n") - 1, last["next"], last["more"]
    return rows / (time.perf_counter() - began)


def _sent(server: Server, method: str, path: str, body: bytes | None = None) -> Iterator[bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request(method, path, body)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    while piece := answer.read1(1 << 20):
        yield piece
    connection.close()
