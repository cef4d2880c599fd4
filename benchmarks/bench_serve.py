"""Requests a second beside the same server answering a static body of the same size.

The ceiling is a Falcon application with one route and a ready body, on the same WSGI server with the
same workers and threads, asked by the same client in the same run. The client is wrk.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpus
from benchmarks.measure import ROOT, Figure, sigdir
from pipeline.keccak import keccak256
from warehouse.mapped import Segment, segment_of
from warehouse.paths import Paths
from warehouse.snapshot import read_snapshot

_CONNECTIONS = 8
_SECONDS = 4
_FRAGMENTS = ["balanceOf", "transfer(", "Uint256[]", "nosuchsignature", "owner", "zzqx", "setFee"]

_CEILING = """
import os, sys, falcon
class Static:
    def __init__(self, size):
        self.body = b"x" * size
    def on_get(self, req, resp):
        resp.content_type = "application/json"
        resp.data = self.body
    def on_post(self, req, resp):
        req.bounded_stream.read()
        resp.content_type = "application/json"
        resp.data = self.body
app = falcon.App()
for size in (52, 200, 16800):
    app.add_route(f"/{size}", Static(size))
if __name__ == "__main__":
    import waitress
    waitress.serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=1, ident=None)
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int, path: str, environment: dict[str, str]) -> Iterator[int]:
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port, path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[:4]} does not serve")
            time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _answers(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _ours(house: Path, server: str) -> tuple[list[str], int]:
    port = _free_port()
    command = [sys.executable, "-m", "sigdir", "serve", "--warehouse", str(house), "--port", str(port)]
    command += ["--workers", "1", "--no-log-requests", "--fold-every", "0", "--server", server]
    return command, port


def _ceiling(folder: Path, server: str) -> tuple[list[str], int, dict[str, str]]:
    port = _free_port()
    (folder / "ceiling.py").write_text(_CEILING)
    if server == "waitress":
        return [sys.executable, str(folder / "ceiling.py"), str(port)], port, {}
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "ceiling:app", "--port", str(port)]
    command += ["--workers", "1", "--blocking-threads", "1", "--no-ws", "--http", "1", "--log-level", "critical"]
    return command, port, {"PYTHONPATH": str(folder)}


def _wrk(port: int, script: str, folder: Path) -> float:
    """Requests a second of a run in which every answer was a success."""
    path = folder / "requests.lua"
    path.write_text(script)
    command = ["wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}", "-s", str(path), f"http://127.0.0.1:{port}/"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in told or "Socket errors" in told:
        raise RuntimeError(told)
    found = re.search(r"Requests/sec:\s+([\d.]+)", told)
    assert found is not None
    return float(found[1])


def _get(path: str) -> str:
    return f'request = function() return wrk.format("GET", {path}) end\n'


def _post(path: str, body: str) -> str:
    return (
        'wrk.method = "POST"\nwrk.headers["Content-Type"] = "application/x-www-form-urlencoded"\n'
        f"local n = 0\nlocal run = os.time() .. math.random(1000000)\n"
        f'request = function() n = n + 1 return wrk.format(nil, "{path}", nil, {body}) end\n'
    )


_RANDOM = f"math.randomseed({random.Random(7).randrange(10**6)})\n"


def _cases(rows: int, known: list[str]) -> list[tuple[str, str, str, float, float]]:
    """Name, our requests, the ceiling's, what waitress must reach, what granian must reach."""
    hits = "{" + ",".join(f'"{value}"' for value in known) + "}"
    pages = rows // 100
    lists = "/api/v1/signatures/"
    return [
        ("page 1", _get(f'"{lists}"'), _get('"/16800"'), 0.9, 0.35),
        (
            "random deep pages",
            _RANDOM + _get(f'"{lists}?page=" .. math.random(2, {pages})'), _get('"/16800"'), 0.75, 0.35,
        ),
        (
            "random pages, oldest first",
            _RANDOM + _get(f'"{lists}?ordering=created_at&page=" .. math.random(2, {pages})'), _get('"/16800"'),
            0.75, 0.35,
        ),
        (
            "hex lookups, hits",
            _RANDOM + f"local known = {hits}\n" + _get(f'"{lists}?hex_signature=0x" .. known[math.random(#known)]'),
            _get('"/200"'), 0.8, 0.35,
        ),
        (
            "hex lookups, misses",
            _RANDOM + _get(f'string.format("{lists}?hex_signature=0x%08x", math.random(0, 4294967295))'),
            _get('"/52"'), 0.8, 0.35,
        ),
    ]  # fmt: skip


def servers() -> list[str]:
    """The servers that are installed."""
    return ["waitress", *(["granian"] if find_spec("granian") else [])]


def figures(rows: int, rounds: int, server: str) -> list[Figure]:
    if shutil.which("wrk") is None:
        print("wrk is not installed; the serving figures are left out", file=sys.stderr)
        return []
    house = corpus.CACHE / "served"
    _warehouse(house, rows)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, our_port = _ours(house, server)
        ceiling, ceiling_port, environment = _ceiling(folder, server)
        with (
            _running(ours, our_port, "/readyz", {}),
            _running(ceiling, ceiling_port, "/52", environment),
        ):
            known = _check(our_port, house)
            found = []
            for name, mine, theirs, on_waitress, on_granian in _cases(rows, known):
                wanted = on_waitress if server == "waitress" else on_granian
                found.append(_beside(f"{server}: {name}", our_port, mine, ceiling_port, theirs, wanted, rounds, folder))
            found.append(_posts(server, our_port, ceiling_port, rounds, folder))
    return found


def _beside(
    name: str, port: int, script: str, ceiling_port: int, ceiling_script: str, wanted: float, rounds: int, folder: Path
) -> Figure:
    mine, theirs = [], []
    for _ in range(rounds):
        theirs.append(_wrk(ceiling_port, ceiling_script, folder))
        mine.append(_wrk(port, script, folder))
    ratio = max(mine) / max(theirs)
    return Figure(
        f"{name}, {_CONNECTIONS} connections", f"{max(mine):,.0f}/s", f"{max(theirs):,.0f}/s", ratio,
        f">= {wanted:g}x", ratio >= wanted, mine, theirs,
    )  # fmt: skip


def _posts(server: str, port: int, ceiling_port: int, rounds: int, folder: Path) -> Figure:
    before = _count(port)
    body = '"text_signature=function%20posted" .. run .. "_" .. n .. "(uint%20a)"'
    figure = _beside(
        f"{server}: durable POSTs of new rows", port, _post("/api/v1/signatures/", body),
        ceiling_port, _post("/200", body), 0.35, rounds, folder,
    )  # fmt: skip
    answered = sum(figure.seconds) * _SECONDS
    assert _count(port) - before >= 0.9 * answered, "posted rows are missing"
    return figure


def _count(port: int) -> int:
    return int(_json(port, "/api/v1/signatures/?page_size=1")["count"])


def _json(port: int, path: str) -> dict[str, Any]:
    connection = HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    value: dict[str, Any] = json.loads(connection.getresponse().read())
    connection.close()
    return value


def _warehouse(house: Path, rows: int) -> None:
    if not (house / "table").is_dir():
        sigdir("import", str(corpus.lines(rows)), "--warehouse", str(house), "--quiet")


def _check(port: int, house: Path) -> list[str]:
    """Ask for rows that the files have, and compare; gives hashes that are there."""
    paths = Paths(house)
    (file, *_) = read_snapshot(paths).files["signatures"]
    segment = segment_of(paths.cache, "signatures", file, lambda _: None)
    known = []
    for row in np.random.default_rng(3).integers(0, segment.rows, 2000).tolist():
        text = segment.text_at(row)
        known.append(keccak256(text.encode())[:4].hex())
        if len(known) <= 50:
            answer = _json(port, f"/api/v1/signatures/?hex_signature={known[-1]}")
            texts = [found["text_signature"] for found in answer["results"]]
            assert text in texts, f"{text} is not found by its hash"
    return known


def search_figures(corpora: Path | None) -> list[Figure]:
    """Fragments in the real texts, beside bytes.find over the same bytes, case and count disregarded."""
    if corpora is None:
        return []
    house = corpus.CACHE / "real"
    if not (house / "table").is_dir():
        sigdir("import", str(corpora), "--warehouse", str(house), "--quiet")
    paths = Paths(house)
    segments = [
        segment_of(paths.cache, "signatures", file, lambda _: None) for file in read_snapshot(paths).files["signatures"]
    ]
    text = b"".join(segment.text.tobytes() for segment in segments)
    rows = sum(segment.rows for segment in segments)
    mine, theirs = [], []
    for fragment in _FRAGMENTS:
        needle = fragment.lower()
        expected = sum(
            needle in segment.text_at(row).lower() for segment in segments for row in range(0, segment.rows, 97)
        )
        found = sum(int((segment.with_text(fragment) % 97 == 0).sum()) for segment in segments)
        assert found == expected, f"{fragment}: {found} rows, not {expected}"
        mine.append(_best(partial(_search_all, segments, fragment)))
        theirs.append(_best(partial(_find_all, text, fragment.encode())))
    ratio = sum(mine) / sum(theirs)
    return [
        Figure(
            f"{len(_FRAGMENTS)} fragments in {rows:,} real texts, one core, beside bytes.find",
            f"{sum(mine) / len(mine) * 1000:.2f} ms", f"{sum(theirs) / len(theirs) * 1000:.2f} ms", ratio,
            "<= 0.5x", ratio <= 0.5, mine, theirs,
        )
    ]  # fmt: skip


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(15):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def _search_all(segments: list[Segment], fragment: str) -> int:
    return sum(len(segment.with_text(fragment)) for segment in segments)


def _find_all(text: bytes, needle: bytes) -> int:
    count, at = 0, text.find(needle)
    while at >= 0:
        count += 1
        at = text.find(needle, at + len(needle))
    return count
