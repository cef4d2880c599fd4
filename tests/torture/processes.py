"""The processes under test: servers with their children, and commands."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import SAFETY_SECONDS
from tests.processes import run_forked
from tests.serve.support import Server, children_of, serving
from tests.torture.plan import Kill
from tests.warehouse.support import environment


class Servers:
    """The servers of a warehouse: ``current`` answers; those before it ended with a kill of their supervisor."""

    def __init__(self, running: ExitStack, warehouse: Path, kills: Counter[str], *options: str) -> None:
        self.fold_every = 0.0
        """Of the next one to start."""
        self._running, self._warehouse, self._kills = running, warehouse, kills
        self._started: list[Server] = []
        self._options = ["--silent-seconds", "10", *options]  # what a server has by itself

    def start(self) -> None:
        served = serving(self._warehouse, *self._options, fold_every=self.fold_every)
        self._started.append(self._running.enter_context(served))

    @property
    def current(self) -> Server:
        return self._started[-1]

    def port(self) -> int:
        return self.current.port

    def errors(self) -> list[str]:
        """What all of them have reported as errors of their own."""
        return [line for server in self._started for line in server.errors()]

    def kill_all(self, kills: Iterable[Kill], began: float, stop: threading.Event) -> None:
        """Kill each at its time, or at once when the rest of the round is over."""
        for one in kills:
            stop.wait(max(0.0, began + one.at - time.monotonic()))
            self._kill(one)

    def _kill(self, one: Kill) -> None:
        """Kill a process, which its supervisor replaces, or a supervisor, and start another server."""
        children = children_of(self.current.process.pid)
        if one.target != "supervisor":
            pids = [pid for pid, name in children if name == f"sigdir-{one.target}"]
            self._kills[one.target] += bool(pids) and _kill(pids[one.number % len(pids)])
            return
        self.current.process.kill()
        self.current.process.wait(SAFETY_SECONDS)
        self._kills["supervisor"] += 1
        # The children it leaves run for a while at the same time as the next server.
        try:
            self.start()
            time.sleep(one.number / 4)
        finally:
            for pid, _ in children:
                _kill(pid)


def _kill(pid: int) -> bool:
    """Kill -9. False if the process had already ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def run(
    folder: Path,
    *arguments: str | Path,
    failpoint: str | None = None,
    kill_after: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder until it ends or is killed as planned."""
    more = dict(variables or {}) | ({"SIGDIR_FAILPOINT": failpoint} if failpoint else {})
    words = [str(argument) for argument in arguments]
    try:
        return run_forked(words, folder, environment(**more), kill_after or SAFETY_SECONDS)
    except subprocess.TimeoutExpired:
        assert kill_after is not None, f"{' '.join(words)} does not end"
        return subprocess.CompletedProcess(words, -signal.SIGKILL, "", "")


def check_success(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.args} ended with {done.returncode}: {done.stdout[-300:]} {done.stderr[-500:]}"


Work = Callable[[], "Counter[str] | None"]
"""Gives how much it has done, or nothing."""


def at_once(work: Sequence[Work], meanwhile: Sequence[Work], stop: threading.Event) -> Counter[str]:
    """Run all of it at once; ``stop`` is set when the work has ended. Raises the first failure."""
    with ThreadPoolExecutor(len(work) + len(meanwhile)) as pool:
        futures = [pool.submit(one) for one in work]
        others = [pool.submit(one) for one in meanwhile]
        try:
            done = [future.result() for future in futures]
        finally:
            stop.set()
        done += [future.result() for future in others]
    return sum(filter(None, done), Counter())
