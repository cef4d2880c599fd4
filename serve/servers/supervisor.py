"""The parent process of `sigdir serve`: keeps the server's processes, and the one that folds or follows a store.

On waitress each worker is a child, and all accept connections from one socket and write their process ids into one pipe.
A worker of which nothing came for ten seconds is replaced, because one of its threads holds the GIL, or it was stopped.
granian is one child, which keeps workers of its own. This process imports none of the engines, so it is small and starts
at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp

from sigdir.serve.core.process import end_with_parent, write_line
from sigdir.serve.core.settings import COUNTS_FOLDER, Settings
from sigdir.serve.servers.start import (
    FOLLOWER,
    StartError,
    bind,
    ensure_warehouse,
    first_pull,
    is_served,
    lock_address,
    require_package,
    url_of,
    why_it_ended,
)
from sigdir.signatures.errors import missing_package

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_POLL_SECONDS = 0.1
_START_POLLS = 6000
"""A worker may be silent for ten minutes while it starts: kernels may be compiled first."""
_PIPE_BYTES = 65_536
_REMOVING_SECONDS = 2.0

_MEMORY = "/dev/shm"  # noqa: S108 - a file that is mapped there cannot meet a full disk, which would kill who writes

# glibc's default gives threads sixteen heaps on two cores, and none returns the memory of large bodies:
# forty threads kept 460 MiB after a test of such bodies.
_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}


def run(settings: Settings, server: str, ready: Callable[[Settings, str], None]) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit status. Calls ``ready`` once with the settings and the address.

    Raises StartError, UnreadableWarehouse, OSError.
    """
    require_package(server)
    if settings.mcp and find_spec("mcp") is None:
        raise StartError(missing_package("--mcp", "mcp", "mcp"))
    settings = settings.as_the_medium_allows()
    with ExitStack() as stack:
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        counts = stack.enter_context(TemporaryDirectory(prefix="sigdir-", dir=memory))
        if settings.on_read_only_media and settings.cache is None:
            settings = replace(settings, cache=stack.enter_context(_temporary_cache()))
        bound = stack.enter_context(bind(settings))
        host, port = bound.getsockname()[:2]
        served = replace(settings, host=host, port=port)
        lock = stack.enter_context(lock_address(served.host, served.port))
        environment = _ENVIRONMENT | os.environ | served.environment() | {COUNTS_FOLDER: counts}
        if settings.follow_store:
            first_pull(settings, environment)
        ensure_warehouse(settings)
        beats, theirs = os.pipe()
        for end in (beats, theirs):
            os.set_blocking(end, False)  # a worker goes on while nobody reads
        serving = _processes_of(server, settings.workers, bound, lock, theirs, environment)
        return _Supervisor(serving, _upkeep(settings, environment), beats, settings.silent_seconds).run(
            lambda: is_served(served.host, served.port),
            lambda: ready(settings, url_of(replace(settings, port=served.port))),
            bound,
        )


@contextmanager
def _temporary_cache() -> Iterator[Path]:
    """A folder for indexes. A process of costly requests may still write there when all others have ended."""
    folder = Path(mkdtemp(prefix="sigdir-"))
    try:
        yield folder
    finally:
        for seconds in (0, _REMOVING_SECONDS):
            time.sleep(seconds)
            rmtree(folder, ignore_errors=True)


def _processes_of(
    server: str, workers: int, bound: socket.socket, lock: socket.socket, beats: int, environment: dict[str, str]
) -> list[Child]:
    if server == "granian":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # its workers listen on sockets of their own
        return [Child(["sigdir.serve.servers.granian_server"], environment, [lock.fileno()])]
    module = ["sigdir.serve.servers.waitress_worker", str(bound.fileno()), str(beats)]
    descriptors = [bound.fileno(), lock.fileno(), beats]
    return [Child(module, environment, descriptors, start_polls=_START_POLLS) for _ in range(workers)]


def _upkeep(settings: Settings, environment: dict[str, str]) -> list[Child]:
    """The processes that no request needs."""
    if settings.follow_store:
        return [Child([FOLLOWER], environment)]
    if settings.fold_every > 0:
        fold = ["sigdir", "fold", "--every", str(settings.fold_every), "--warehouse", str(settings.warehouse)]
        return [Child(fold, environment)]
    return []


class _Supervisor:
    """Starts processes, starts again what ends or is silent, and stops all in order when asked to."""

    def __init__(self, serving: Sequence[Child], upkeep: Sequence[Child], beats: int, silent_seconds: float) -> None:
        """``beats`` is the end of the pipe that is read here."""
        self._serving, self._upkeep, self._beats = serving, upkeep, beats
        self._children: list[Child] = []
        self._most_polls = (silent_seconds or inf) / _POLL_SECONDS
        self._stopping: list[int] = []

    def run(self, is_served: Callable[[], bool], ready: Callable[[], None], bound: socket.socket) -> int:
        """Until a signal comes. ``ready`` is called once, when ``is_served`` gives True. Raises StartError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: self._stopping.append(number))
        self._start(self._serving)
        try:
            while self._goes_on() and not is_served():
                self._require_running()
            if not self._stopping:
                ready()
                self._start(self._upkeep)  # after the servers, which it would slow down while they load
            while self._goes_on():
                self._replace(self._heard())
        finally:
            bound.close()  # new connections are refused when the workers have closed theirs
            self._stop()
        return 0

    def _start(self, children: Iterable[Child]) -> None:
        for child in children:
            child.start()
            self._children.append(child)

    def _goes_on(self) -> bool:
        """Wait for the next poll; False once a signal came."""
        time.sleep(_POLL_SECONDS)
        return not self._stopping

    def _require_running(self) -> None:
        for child in self._serving:
            if (status := child.process.poll()) is not None and not self._stopping:
                raise StartError(f"the warehouse cannot be served: {why_it_ended(status)}")

    def _heard(self) -> set[int]:
        """The ids of the processes that have written into the pipe since the last poll."""
        with suppress(BlockingIOError):
            return set(array("i", os.read(self._beats, _PIPE_BYTES)))
        return set()

    def _replace(self, heard: set[int]) -> None:
        for child in self._children:
            process = child.process
            child.silent_polls = 0 if process.pid in heard else child.silent_polls + 1
            if child.silent_polls >= self._most_polls:
                write_line(f"process {process.pid} no longer answers; killed")
                child.end()
            if (status := process.poll()) is not None and not self._stopping:
                write_line(f"process {process.pid} ended with status {status}; replaced")
                time.sleep(_RESTART_SECONDS)
                child.start()

    def _stop(self) -> None:
        for child in self._children:
            child.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children:
            child.end(max(0.0, deadline - time.monotonic()))


@dataclass
class Child:
    """A module that runs as a process, in a session of its own: a Ctrl-C reaches the parent alone, which stops all in order.

    ``-P`` keeps the folder where the server was started off the import path. It inherits the descriptors, and may be silent
    for ``start_polls`` while it starts.
    """

    module: Sequence[str]
    environment: Mapping[str, str]
    descriptors: Sequence[int] = ()
    start_polls: float = inf
    process: subprocess.Popen[bytes] = field(init=False)
    silent_polls: float = field(init=False)
    """For how many polls nothing came from it; below zero while it may be silent.

    Polls are counted, not seconds: where the parent did not run either, the child is not to blame.
    """

    def start(self) -> None:
        """Start it, or the next one in its place."""
        self.silent_polls = -self.start_polls
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", *self.module], env=self.environment, pass_fds=self.descriptors,
            start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - there are no other threads here
        )  # fmt: skip

    def end(self, seconds: float = 0.0) -> None:
        """Wait for its end so long, then kill it: what was stopped hears nothing else."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
