"""A server that starts, and one that is read while others write.

Latencies are taken at a fixed pace, from the moment a request was due: a wait delays what comes behind
it, and is counted there too.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np

from benchmarks import corpus, servers
from benchmarks.bench_serve import warehouse_of
from benchmarks.measure import Figure, sigdir
from benchmarks.servers import Server
from warehouse.mapped import segment_of
from warehouse.paths import Paths
from warehouse.snapshot import read_snapshot

_READS_A_SECOND = 100
_POSTS_A_SECOND = 20
_QUIET_SECONDS = 15
_NEW_ROWS = 100_000


def figures(rows: int, server: str) -> list[Figure]:
    house = warehouse_of(rows)
    with servers.ours(house, server):
        pass  # its index is built from here on
    found = [] if server != "waitress" else [_cold_index(house)]
    with servers.ours(house, server) as running:
        found.append(_at_most(f"{server}: ready on {rows:,} rows, index built", running.seconds, "s", 2.0))
        _reads(running, rows, 5)
        found.append(
            _at_most(f"{server}: private memory of a worker at {rows:,} rows", running.private_mib(), "MiB", 300)
        )
    found.append(_while_written(house, rows, server))
    return found


def _at_most(name: str, value: float, unit: str, limit: float) -> Figure:
    shown = f"{value:.2f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return Figure(name, shown, f"{limit:g} {unit}", value / limit, "<= 1x", value <= limit, [value], [limit])


def _cold_index(house: Path) -> Figure:
    """Rows a second of one core, from Parquet to a mapped index."""
    file = max(read_snapshot(Paths(house)).files["signatures"], key=lambda file: file.rows)
    best = 0.0
    for _ in range(2):
        with tempfile.TemporaryDirectory(dir=corpus.CACHE) as folder:
            began = time.process_time()
            segment = segment_of(Path(folder), "signatures", file.path, file.rows)
            best = max(best, file.rows / (time.process_time() - began) / 1e6)
            assert int(segment.ids[0]) == file.first_id
            assert int(segment.ids[-1]) == file.last_id
            assert bool(np.all(np.diff(np.asarray(segment.hashes)) > 0))
    return Figure(
        f"cold index of {file.rows:,} rows, a core", f"{best:.2f} M/s", "2 M/s", best / 2, ">= 1x", best >= 2, [best]
    )


def _reads(server: Server, rows: int, seconds: float, stop: threading.Event | None = None) -> np.ndarray:
    """Milliseconds of pages and lookups at random, from the moment each was due."""
    chance = random.Random(5)
    connection = HTTPConnection("127.0.0.1", server.port)
    took = []
    began = time.perf_counter()
    number = 0
    while time.perf_counter() - began < seconds and not (stop and stop.is_set()):
        due = began + number / _READS_A_SECOND
        time.sleep(max(0.0, due - time.perf_counter()))
        path = "/api/v1/signatures/?" + (
            f"page={chance.randint(1, rows // 100)}" if number % 2 else f"hex_signature=0x{chance.getrandbits(32):08x}"
        )
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, f"{path}: {answer.status}"
        took.append(time.perf_counter() - due)
        number += 1
    connection.close()
    return np.array(took) * 1000


def _while_written(house: Path, rows: int, server: str) -> Figure:
    """The slowest reads of a hundred while POSTs run, a fold and an import publish; two workers."""
    copy = corpus.CACHE / "written"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(house, copy, copy_function=_link)
    new = corpus.lines(_NEW_ROWS, first=rows)
    try:
        with servers.ours(copy, server, workers=2) as running:
            before = running.count()
            _reads(running, rows, 3)
            quiet = _reads(running, rows, _QUIET_SECONDS)
            stop = threading.Event()
            found: list[np.ndarray] = []
            reader = threading.Thread(target=lambda: found.append(_reads(running, rows, 600, stop)))
            reader.start()
            with _posting(running) as posted:
                time.sleep(2)
                sigdir("fold", "--warehouse", str(copy))
                time.sleep(2)
                sigdir("import", str(new), "--warehouse", str(copy), "--quiet")
                time.sleep(2)
            stop.set()
            reader.join()
            assert running.count() == before + _NEW_ROWS + len(posted), "rows are missing"
    finally:
        shutil.rmtree(copy)
    busy_p99, quiet_p99 = (float(np.percentile(values, 99)) for values in (found[0], quiet))
    ratio = busy_p99 / quiet_p99
    return Figure(
        f"{server}: p99 of reads while POSTs, a fold and an import of {_NEW_ROWS:,} run, beside quiet",
        f"{busy_p99:.2f} ms", f"{quiet_p99:.2f} ms", ratio, "<= 3x", ratio <= 3, found[0].tolist(), quiet.tolist(),
    )  # fmt: skip


def _link(source: str, target: str) -> None:
    """Data files and indexes never change, so a copy can share them; what does change is copied."""
    if source.endswith((".parquet", ".npy", "/text")):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)


@contextmanager
def _posting(server: Server) -> Iterator[list[int]]:
    """POST new rows at a steady pace in the background; gives the list of those acknowledged."""
    stop = threading.Event()
    acknowledged: list[int] = []

    def work() -> None:
        connection = HTTPConnection("127.0.0.1", server.port)
        headers = {"Content-Type": "application/json"}
        while not stop.wait(1 / _POSTS_A_SECOND):
            body = f'{{"text_signature": "live{len(acknowledged)}_{time.time_ns()}()"}}'
            connection.request("POST", "/api/v1/signatures/", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 201, f"POST: {answer.status}"
            acknowledged.append(answer.status)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join()
