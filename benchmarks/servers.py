"""Servers to measure: ours, and the ceiling beside it, as processes on ports of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.start import EXTRAS

THREADS = Settings().threads

_CEILING = """
import sys, falcon
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
for size in SIZES:
    app.add_route(f"/{size}", Static(size))
if __name__ == "__main__":
    import waitress
    waitress.serve(app, host="127.0.0.1", port=int(sys.argv[1]), threads=int(sys.argv[2]), ident=None)
"""


@dataclass(frozen=True)
class Server:
    """A server that answers on ``port``; ``seconds`` passed from its start to its first answer."""

    pid: int
    port: int
    seconds: float

    def body(self, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        body = connection.getresponse().read()
        connection.close()
        return body

    def json(self, path: str) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body(path))
        return value

    def count(self) -> int:
        return int(self.json("/api/v1/signatures/?page_size=1")["count"])

    def processor_seconds(self) -> float:
        """What its processes have used of the processors so far."""
        return sum(map(_processor_ticks, family(self.pid))) / os.sysconf("SC_CLK_TCK")

    def private_mib(self) -> float:
        """The private memory of its largest process: what is no file's, and so in nobody's cache."""
        return max(_private_kib(pid) for pid in family(self.pid)) / 1024


def installed() -> list[str]:
    """The names of the servers whose package is here."""
    return [name for name in EXTRAS if find_spec(name)]


@contextmanager
def ours(warehouse: Path, server: str, workers: int = 1, options: Sequence[str] = ()) -> Iterator[Server]:
    port = _free_port()
    command = [sys.executable, "-P", "-m", "sigdir", "serve", "--warehouse", str(warehouse), "--port", str(port)]
    command += ["--workers", str(workers), "--no-log-requests", "--fold-every", "0", "--server", server, *options]
    with _running(command, port, "/readyz", {}) as running:
        yield running


@contextmanager
def ceiling(folder: Path, server: str, sizes: tuple[int, ...] = (52, 200, 16_800)) -> Iterator[Server]:
    """The same Falcon on the same server: a route and a ready body for each size.

    waitress has as many threads as ours, granian one.
    """
    port = _free_port()
    (folder / "ceiling.py").write_text(_CEILING.replace("SIZES", repr(sizes)))
    if server == "waitress":
        command = [sys.executable, str(folder / "ceiling.py"), str(port), str(THREADS)]
    else:
        command = [sys.executable, "-m", "granian", "--interface", "wsgi", "ceiling:app", "--port", str(port)]
        command += ["--workers", "1", "--blocking-threads", "1", "--no-ws", "--http", "1"]
        command += ["--log-level", "critical"]
    with _running(command, port, f"/{sizes[0]}", {"PYTHONPATH": str(folder)}) as running:
        yield running


@contextmanager
def _running(command: list[str], port: int, path: str, environment: Mapping[str, str]) -> Iterator[Server]:
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not _answers(port, path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[:4]} does not serve")
            time.sleep(0.02)
        yield Server(process.pid, port, time.perf_counter() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def family(pid: int) -> list[int]:
    """A process and all below it."""
    family = [pid]
    for parent in family:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            family += [int(child) for child in task.read_text().split()]
    return family


def _processor_ticks(pid: int) -> int:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])


def _private_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty"))
