"""The processes under test: a server with its children, and commands. Each is ended by its pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from tests.conftest import ROOT
from tests.torture.ledger import Finding
from tests.warehouse.support import command, environment

HOST = "127.0.0.1"
HANGS_SECONDS = 120.0
"""An action that takes longer hangs, which is a finding. It is not a bound on speed."""

_PARTS = {"worker": "sigdir-worker", "folder": "sigdir-fold", "follower": "sigdir-follow"}
"""The names of a server's children."""

Found = TypeVar("Found")


def until(look: Callable[[], Found | None], what: str) -> Found:
    """Wait until ``look`` gives a result, and return it. Raises Finding if it never does."""
    deadline = time.monotonic() + HANGS_SECONDS
    while time.monotonic() < deadline:
        seen = look()
        if seen:
            return seen
        time.sleep(0.02)
    raise Finding(f"waited {HANGS_SECONDS:.0f} s for {what}")


def kill(pid: int) -> bool:
    """Kill -9. False if the process had already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def children(parent: int) -> dict[int, str]:
    """The name of each living child, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # the process ended meanwhile
            state, above = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(above) == parent and state != "Z":
                found[int(folder.name)] = _name_of(int(folder.name))
    return dict(sorted(found.items()))


class Server:
    """A running ``sigdir serve``: a supervisor, two workers and a process that folds, or follows a store."""

    def __init__(self, warehouse: Path, errors: Path, fold_every: float, *options: str) -> None:
        arguments: list[str | Path] = ["serve", "--warehouse", warehouse, "--host", HOST, "--port", "0"]
        arguments += ["--workers", "2", "--fold-every", str(fold_every), "--no-log-requests", *options]
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command(*arguments), cwd=ROOT, env=environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
        self._left: list[int] = []
        self.port = 0
        try:
            self.port = until(self._ready, "a server to be ready")
        except BaseException:
            self.end()
            raise

    def _ready(self) -> int | None:
        if self._process.poll() is not None:
            raise Finding(f"a server ended with status {self._process.returncode}: {self.output()[-300:]!r}")
        ready = re.search(r"^ready: http://[\d.]+:(\d+)/", self.output(), re.MULTILINE)
        return int(ready[1]) if ready else None

    def output(self) -> str:
        return self._errors.read_text(errors="replace")

    def errors(self) -> list[str]:
        """The lines of its output that report an error of the server itself."""
        return [line for line in self.output().splitlines() if re.match("Traceback|error:|Error", line)]

    def workers(self) -> list[int]:
        return self._children("worker")

    def _children(self, target: str) -> list[int]:
        return [pid for pid, name in children(self._process.pid).items() if name == _PARTS[target]]

    def kill_one(self, target: str, number: int) -> bool:
        """Kill a worker, the fold process or the follower, which the supervisor replaces. False if there was none."""
        pids = self._children(target)
        return bool(pids) and kill(pids[number % len(pids)])

    def kill_supervisor(self) -> None:
        """Kill only the parent. Its children run until ``end``."""
        self._left = list(children(self._process.pid))
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Kill -9 all of its processes that still run."""
        left = self._left or list(children(self._process.pid))
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in left:
            if "sigdir" in _name_of(pid):  # not another process that got the pid since
                kill(pid)
        self._left = []

    def stop(self) -> None:
        """Stop it with SIGTERM, as an operator does. Raises Finding if it does not end with status 0."""
        self._process.terminate()
        try:
            status = self._process.wait(HANGS_SECONDS)
        except subprocess.TimeoutExpired:
            raise Finding("a server does not stop") from None
        if status != 0:
            raise Finding(f"a server stopped with status {status}")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip("\n")
    except OSError:
        return ""


def run(
    *arguments: str | Path,
    failpoint: str | None = None,
    kill_after: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends or is killed as planned. Raises Finding if it hangs."""
    more = dict(variables or {}) | ({"SIGDIR_FAILPOINT": failpoint} if failpoint else {})
    process = subprocess.Popen(
        command(*arguments), cwd=ROOT, env=environment(**more),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if kill_after is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(kill_after)
            process.kill()
        out, err = process.communicate(timeout=HANGS_SECONDS)
    except subprocess.TimeoutExpired:
        raise Finding(f"{' '.join(map(str, arguments))} does not end") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
