"""A server that starts, and one that is read while others write.

Requests are sent at a fixed pace. The latency of a request that waited for the previous one counts from the moment
it was due, so that one slow answer also counts for the requests after it. Where the client itself was late (it
shares two cores with the server), the latency counts from the moment of sending.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from http.client import HTTPConnection
from itertools import count
from operator import truediv
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks import corpus, servers
from benchmarks.bench_serve import warehouse_of
from benchmarks.measure import ROOT, Figure, sigdir
from benchmarks.servers import Server
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import fold
from sigdir.warehouse.table.paths import Paths

_READS_A_SECOND = 100
_POSTS_A_SECOND = 20
_QUIET_SECONDS = 9
_PAIRS = 5
_NEW_ROWS = 100_000


def figures(rows: int) -> list[Figure]:
    warehouse = warehouse_of(rows)
    with servers.ours(warehouse, "waitress"):
        pass  # builds the index
    with servers.ours(warehouse, "waitress") as running:
        _read_for(running, rows, 5)
        found = [Figure("ready", running.seconds), Figure("private memory", running.private_mib())]
    return [*found, _while_written(warehouse, rows), _fifty_publishes(), _posts_during_import(rows)]


def _reads(server: Server, rows: int, stop: Callable[[], bool], took: list[float]) -> None:
    """Add the milliseconds of pages and lookups at random."""
    chance = random.Random(5)
    connection = HTTPConnection("127.0.0.1", server.port)
    began = time.perf_counter()
    for number in count():
        if stop():
            break
        since = due = began + number / _READS_A_SECOND
        if (early := due - time.perf_counter()) > 0:
            time.sleep(early)
            since = time.perf_counter()
        path = "/api/v1/signatures/?" + (
            f"page={chance.randint(1, rows // 100)}" if number % 2 else f"hex_signature=0x{chance.getrandbits(32):08x}"
        )
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, f"{path}: {answer.status}"
        took.append((time.perf_counter() - since) * 1000)
    connection.close()


def _read_for(server: Server, rows: int, seconds: float) -> list[float]:
    took: list[float] = []
    end = time.monotonic() + seconds
    _reads(server, rows, lambda: time.monotonic() > end, took)
    return took


@contextmanager
def _background(work: Callable[[Callable[[], bool], list[float]], None]) -> Iterator[list[float]]:
    """Do the work in a thread until the block ends; gives the times that it takes, raises what it raised."""
    stop = threading.Event()
    took: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, stop.is_set, took)
        try:
            yield took
        finally:
            stop.set()
        working.result()


def _reading(server: Server, rows: int) -> AbstractContextManager[list[float]]:
    return _background(partial(_reads, server, rows))


def _posting(server: Server) -> AbstractContextManager[list[float]]:
    """POST new rows at a steady pace; gives the milliseconds of each that was acknowledged."""
    return _background(partial(_posts, server))


def _posts(server: Server, stop: Callable[[], bool], took: list[float]) -> None:
    connection = HTTPConnection("127.0.0.1", server.port)
    headers = {"Content-Type": "application/json"}
    while not stop():
        time.sleep(1 / _POSTS_A_SECOND)
        body = f'{{"text_signature": "live{len(took)}_{time.time_ns()}()"}}'
        began = time.perf_counter()
        connection.request("POST", "/api/v1/signatures/", body, headers)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 201, f"POST: {answer.status}"
        took.append((time.perf_counter() - began) * 1000)
    connection.close()


def _from_elsewhere(*arguments: str) -> None:
    """Run a command in a session of its own, as another shell or a timer would.

    Linux shares the processor between sessions; in the client's own it would slow the client, not the server.
    """
    command = [sys.executable, "-P", "-m", "sigdir", *arguments]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True, check=True)


def _while_written(warehouse: Path, rows: int) -> Figure:
    """The slowest reads of a hundred while POSTs run, a fold and an import publish, beside quiet; two workers.

    Nine waits decide of one run, and the machine's own come in bursts: of the same server the ratio was between
    0.4 and 4 within ten minutes. So quiet and busy runs alternate, and the median of the pairs counts.
    """
    copy = corpus.CACHE / "written"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(warehouse, copy, copy_function=_link)
    quiet: list[float] = []
    busy: list[float] = []
    try:
        with servers.ours(copy, "waitress", workers=2) as running:
            _read_for(running, rows, 3)
            for number in range(_PAIRS):
                quiet.append(_slowest(_read_for(running, rows, _QUIET_SECONDS)))
                busy.append(_slowest(_read_while_written(running, rows, number, copy)))
    finally:
        shutil.rmtree(copy)
    ratio = median(map(truediv, busy, quiet))
    return Figure("p99 while written", ratio, [one / 1000 for one in busy], [one / 1000 for one in quiet])


def _slowest(took: list[float]) -> float:
    return float(np.percentile(took, 99))


def _read_while_written(running: Server, rows: int, number: int, warehouse: Path) -> list[float]:
    new = corpus.lines(_NEW_ROWS, first=rows + number * _NEW_ROWS)
    before = running.count()
    with _reading(running, rows) as took, _posting(running) as posted:
        time.sleep(2)
        _from_elsewhere("fold", "--warehouse", str(warehouse))
        time.sleep(2)
        _from_elsewhere("import", str(new), "--warehouse", str(warehouse), "--quiet")
        time.sleep(2)
    assert running.count() == before + _NEW_ROWS + len(posted), "rows are missing"
    return took


def _fifty_publishes() -> Figure:
    """Requests that fail while another process folds fifty times; every fold has rows to move."""
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as name:
        warehouse = Path(name)
        sigdir("import", str(corpus.lines(_NEW_ROWS)), "--warehouse", name, "--quiet")
        with (
            servers.ours(warehouse, "waitress", workers=2) as running,
            _reading(running, _NEW_ROWS),
            _posting(running) as posted,
        ):
            last = read_snapshot(Paths(warehouse)).version + 50
            while read_snapshot(Paths(warehouse)).version < last:
                fold(Paths(warehouse))
                time.sleep(0.1)
        with servers.ours(warehouse, "waitress") as running:
            assert running.count() == _NEW_ROWS + len(posted), "rows are missing"
    return Figure("publishes", 0.0)  # one that fails would have ended the benchmark


def _posts_during_import(rows: int) -> Figure:
    """The longest POST while another process imports a large file into the same warehouse."""
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as name, servers.ours(Path(name), "waitress", 2) as running:
        with _posting(running) as posted:
            sigdir("import", str(corpus.lines(rows)), "--warehouse", name, "--quiet")
            time.sleep(1)
        assert running.count() == rows + len(posted), "rows are missing"
    return Figure("post while imported", max(posted))


def _link(source: str, target: str) -> None:
    """Data files and indexes never change, so a copy can share them; what does change is copied."""
    if source.endswith((".parquet", "/ids", "/rows", "/text", "/gram_lists")):
        os.link(source, target)
    else:
        shutil.copyfile(source, target)
