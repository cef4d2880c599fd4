"""The parent process of `sigdir serve`: keeps the server's processes, and the one that folds or follows a store.

On waitress each worker is a child, and all accept connections from one socket; a worker whose loop does not run for ten
seconds is replaced, because one of its threads holds the GIL, or it was stopped. granian is one child, which keeps
workers of its own. This process imports none of the engines, so it is small and starts at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from math import inf
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from types import FrameType

from sigdir.serve.core.process import end_with_parent
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
    with_address,
)
from sigdir.signatures.errors import missing_package

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_POLL_SECONDS = 0.1
_REMOVING_SECONDS = 2.0
"""A folder that nobody has made again for so long is removed."""

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
        counts = stack.enter_context(_temporary_folder())
        if settings.on_read_only_media and settings.cache is None:
            settings = replace(settings, cache=stack.enter_context(_temporary_cache()))
        bound = stack.enter_context(bind(settings))
        served = with_address(settings, bound)
        lock = stack.enter_context(lock_address(served.host, served.port))
        environment = _ENVIRONMENT | os.environ | served.environment() | {COUNTS_FOLDER: counts}
        if settings.follow_store:
            first_pull(settings, environment)
        ensure_warehouse(settings)
        serving = _processes_of(server, settings.workers, bound, lock, environment)
        return _Supervisor(serving, _upkeep(settings, environment), settings.silent_seconds).run(
            lambda: is_served(served.host, served.port),
            lambda: ready(settings, url_of(replace(settings, port=served.port))),
            bound,
        )


def _temporary_folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="sigdir-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)


@contextmanager
def _temporary_cache() -> Iterator[Path]:
    """A folder for indexes. A process of costly requests may still write there when all others have ended."""
    folder = Path(mkdtemp(prefix="sigdir-"))
    try:
        yield folder
    finally:
        gone_at = time.monotonic() + _REMOVING_SECONDS
        give_up = gone_at + 4 * _REMOVING_SECONDS
        while time.monotonic() < min(gone_at, give_up):
            if folder.exists():
                rmtree(folder, ignore_errors=True)
                gone_at = time.monotonic() + _REMOVING_SECONDS
            time.sleep(_POLL_SECONDS)


def _processes_of(
    server: str, workers: int, bound: socket.socket, lock: socket.socket, environment: dict[str, str]
) -> list[Child]:
    if server == "granian":
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # its workers listen on sockets of their own
        return [Child(["sigdir.serve.servers.granian_server"], environment, [lock.fileno()])]
    module = ["sigdir.serve.servers.waitress_worker", str(bound.fileno())]
    return [Child(module, environment, [bound.fileno(), lock.fileno()], beats=True) for _ in range(workers)]


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

    def __init__(self, serving: Sequence[Child], upkeep: Sequence[Child], silent_seconds: float) -> None:
        self._serving = serving
        self._children = [*serving, *upkeep]
        self._most_polls = (silent_seconds or inf) / _POLL_SECONDS
        self._stopping: list[int] = []
        self._is_ready = False

    def run(self, is_served: Callable[[], bool], ready: Callable[[], None], bound: socket.socket) -> int:
        """Until a signal comes. ``ready`` is called once, when ``is_served`` gives True. Raises StartError."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)
        for child in self._children:
            child.start()
        try:
            while not self._stopping:
                if not self._is_ready and is_served():
                    self._is_ready = True
                    ready()
                time.sleep(_POLL_SECONDS)
                for child in self._children:
                    self._look_after(child)
        finally:
            bound.close()  # new connections are refused when the workers have closed theirs
            self._stop()
        return 0

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._stopping.append(number)

    def _look_after(self, child: Child) -> None:
        if child.silent_polls() >= self._most_polls:
            _write(f"process {child.pid} no longer answers; killed")
            child.end()
        status = child.status()
        if status is None or self._stopping:
            return
        if child in self._serving and not self._is_ready:
            raise StartError(f"the warehouse cannot be served: {why_it_ended(status)}")
        _write(f"process {child.pid} ended with status {status}; replaced")
        time.sleep(_RESTART_SECONDS)
        child.start()

    def _stop(self) -> None:
        for child in self._children:
            child.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children:
            child.end(max(0.0, deadline - time.monotonic()))


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


_START_POLLS = 6000
"""A worker may be silent for so many polls more while it starts, ten minutes: kernels may be compiled first."""


class Child:
    """A module that runs as a process, in a session of its own: a Ctrl-C reaches the parent alone, which stops all in order.

    ``-P`` keeps the folder where the server was started off the import path. With ``beats`` the last argument is the
    descriptor of a pipe, into which the process writes a byte each second; the pipe breaks when the parent has ended.
    """

    def __init__(
        self,
        module: Sequence[str],
        environment: Mapping[str, str],
        descriptors: Sequence[int] = (),
        *,
        beats: bool = False,
    ) -> None:
        """Not started yet. It inherits the descriptors."""
        self._command = [sys.executable, "-P", "-m", *module]
        self._environment, self._descriptors = environment, tuple(descriptors)
        self._has_beats = beats
        self._beats: int | None = None
        self._silent_polls = 0

    def start(self) -> None:
        """Start it, or the next one in its place."""
        command, descriptors = self._command, self._descriptors
        self._forget_beats()
        if self._has_beats:
            self._beats, theirs = os.pipe()
            os.set_blocking(self._beats, False)
            os.set_blocking(theirs, False)  # a worker goes on while the supervisor is stopped
            command, descriptors = [*command, str(theirs)], (*descriptors, theirs)
            self._silent_polls = -_START_POLLS
        self._process = subprocess.Popen(
            command, env=self._environment, pass_fds=descriptors, start_new_session=True,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - there are no other threads here
        )  # fmt: skip
        if self._has_beats:
            os.close(theirs)

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def silent_polls(self) -> int:
        """For how many polls it has not beaten; below zero while it starts. To be called at each poll.

        Polls are counted, not seconds: where the parent did not run either, the child is not to blame.
        """
        if self._beats is None:
            return 0
        heard = b""
        with suppress(BlockingIOError):
            heard = os.read(self._beats, 65_536)
        self._silent_polls = 0 if heard else self._silent_polls + 1
        return self._silent_polls

    def terminate(self) -> None:
        self._process.terminate()

    def end(self, seconds: float = 0.0) -> None:
        """Wait for its end so long, then kill it: what was stopped hears nothing else."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget_beats()

    def _forget_beats(self) -> None:
        if self._beats is not None:
            os.close(self._beats)
            self._beats = None
