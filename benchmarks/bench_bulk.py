"""Bulk requests: hashes resolved, and a whole collection downloaded.

One worker runs on one core, the client on another if there is one. Answers are compared with the files before anything is timed.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


def figures(rows: int, rounds: int) -> list[Figure]:
    warehouse = warehouse_of(rows)
    segments = _segments(warehouse)
    random = np.random.default_rng(11)
    bodies = [_body(_known(segments, random)) for _ in range(_BODIES)]
    with servers.ours(warehouse, "waitress") as running, _one_core(running.pid):
        _check(running, segments, random)
        return [
            Figure("resolve", max(_resolve(running, bodies) for _ in range(rounds))),
            Figure("download", max(_download(running, "ndjson") for _ in range(rounds))),
        ]


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


def _sent(server: Server, method: str, path: str, body: bytes | None = None) -> Iterator[bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request(method, path, body)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    while piece := answer.read1(1 << 20):
        yield piece
    connection.close()
