"""Every server, started by its line in docs/operations.md: it answers the recorded cases, counts, and stops in good order.

A server that is not installed is skipped; SIGDIR_TEST_SERVERS may name another folder with their commands.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sigdir.serve.servers.start import is_served
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.examples import long_except
from tests.processes import Command
from tests.serve.support import HOST, JSON, Process, family, free_port, get, is_ready, post_text, request, until
from tests.serve.test_counts import requests, scraped
from tests.serve.test_live import has_ended, waits_for_a_lock

WIRE = ROOT.parent / "shared" / "wire"
FOLDERS = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("SIGDIR_TEST_SERVERS", "")])
LINES = {
    line.partition(" --workers")[0] if line.startswith("sigdir") else line.split()[0]: line
    for line in (ROOT / "docs" / "operations.md").read_text().replace("\\\n", "").splitlines()
    if re.match("(sigdir serve --server|gunicorn|uwsgi|granian) ", line)
}


def command_of(line: str, port: int) -> list[str]:
    """The line on a free port, with the server that is installed; skips the test where there is none."""
    words = [
        word.replace("8000", str(port)).replace("/opt/venv/bin/python", sys.executable) for word in shlex.split(line)
    ]
    if words[0] == "sigdir":
        return [*words, "--port", str(port)]
    found = shutil.which(words[0], path=FOLDERS)
    if found is None:
        pytest.skip(f"{words[0]} is not installed")
    return [found, *words[1:]]


@contextmanager
def started(line: str, tmp_path: Path) -> Iterator[tuple[Process, int]]:
    """The server over a new warehouse, when it is ready, and its port. What is left of it is killed."""
    command = command_of(line, port := free_port())
    (counts := tmp_path / "counts").mkdir()
    variables = environment(tmp_path / "warehouse") | {"PROMETHEUS_MULTIPROC_DIR": str(counts)}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # the server may be another environment's
    process: Process
    if command[0] == "sigdir":
        process = Command(command[1:], tmp_path, variables, Path(os.devnull), tmp_path / "output")
    else:
        with (tmp_path / "output").open("wb") as output:
            process = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=output, stderr=output)
    try:
        until(lambda: process.poll() is not None or is_ready(port), "the server")
        assert process.poll() is None, (tmp_path / "output").read_text()
        yield process, port
    finally:
        for pid in (*dict(family(process.pid)), process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(SAFETY_SECONDS)


def test_each_server_has_a_line() -> None:
    """A line that no longer matches would leave a server untried."""
    assert list(LINES) == [
        "sigdir serve --server waitress", "sigdir serve --server granian", "granian", "gunicorn", "uwsgi",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", long_except({"sigdir serve --server waitress", "sigdir serve --server granian"}, LINES)
)
def test_a_server_by_its_line(tmp_path: Path, name: str) -> None:
    """The recorded cases; costly requests in a process of their own; one count for all workers; SIGTERM finishes a POST
    that waits for the right to write, and leaves no process."""
    with started(LINES[name], tmp_path) as (process, port):
        before = requests(scraped(port), route="/healthz")
        for _ in range(20):
            assert get(port, "/healthz").status == 200
        assert requests(scraped(port), route="/healthz") - before == 20
        if (WIRE / "replay.py").exists():
            command = [sys.executable, str(WIRE / "replay.py"), f"http://{HOST}:{port}", "--seed"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False)
            assert done.stdout.splitlines()[-1].endswith(" 0 failed"), done.stdout + done.stderr
        assert request(port, "POST", "/api/v1/decode/", b" " * 300, JSON).status == 400
        below = dict(family(process.pid))
        assert "sigdir-costly" in below.values()
        staging = Staging(Paths(tmp_path / "warehouse").staging)
        with ThreadPoolExecutor() as pool:
            with staging.exclusive_statement():
                waiting = pool.submit(post_text, port, "lastRow()")
                until(lambda: waits_for_a_lock(list(below)), "the POST waits")
                process.terminate()
                stopped = time.monotonic() + 2  # gunicorn's port stays open until its workers have ended
                until(lambda: not is_served(HOST, port) or time.monotonic() > stopped, "the signal to be taken")
            assert waiting.result().status == 201
        staging.close()
        assert process.wait(SAFETY_SECONDS) == 0
        until(lambda: all(map(has_ended, below)), "the end of all processes")


ONE_REQUEST = """
from resource import RLIMIT_NOFILE, getrlimit
from wsgiref.util import setup_testing_defaults
from sigdir.serve.wsgi import app
setup_testing_defaults(request := {"PATH_INFO": "/healthz"})
list(app(request, lambda status, headers: print(status)))
print(*getrlimit(RLIMIT_NOFILE), flush=True)
__import__("os")._exit(0)
"""


@pytest.mark.long
def test_another_server_may_open_as_many_files_as_the_command(tmp_path: Path) -> None:
    """The first request raises the limit that a shell gives: a large data file holds ten descriptors. A new warehouse is
    named, because its folder may be mistyped."""
    command = ["sh", "-c", 'ulimit -n 200 && ulimit -S -n 64 && exec "$0" -c "$1"', sys.executable, ONE_REQUEST]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(tmp_path / "warehouse"), capture_output=True, text=True, check=False,
        timeout=SAFETY_SECONDS,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["200 OK", "200 200"], done.stderr
    assert f"new warehouse at {tmp_path / 'warehouse'}\n" in done.stderr
