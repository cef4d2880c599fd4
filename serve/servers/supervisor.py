"""The parent process of `sigdir serve`: keeps the server's processes, and the one that folds or follows a store.

On waitress each worker is a child, and all accept connections from one socket and write their process ids into one pipe.
A worker of which nothing came for ten seconds is replaced, because one of its threads holds the GIL, or it was stopped.
granian is one child, which keeps workers of its own.

This process loads what all of them need, once, and forks them: that takes a second of processor, and 100 MiB of memory
that they share. It has no threads, opens no warehouse and calls no engine, because a fork would have a part of that.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from io import FileIO
from math import inf
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import rmtree
from typing import Any

from sigdir.serve.core.process import FORK, Closable, begin, end, end_with_parent, write_line
from sigdir.serve.core.settings import COUNTS_FOLDER, Settings
from sigdir.serve.servers.start import (
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
from sigdir.warehouse.table.files import RunFolder, own_temporary_folder

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_POLL_SECONDS = 0.1
_START_POLLS = 6000
"""A worker may be silent for ten minutes while it starts: indexes may be built first."""
_PIPE_BYTES = 65_536
_REMOVING_SECONDS = 2.0

_MEMORY = "/dev/shm"  # noqa: S108 - a file that is mapped there cannot meet a full disk, which would kill who writes


def run(settings: Settings, server: str, ready: Callable[[Settings, str], None]) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit status. Calls ``ready`` once with the settings and the address.

    Raises StartError, UnreadableWarehouse, OSError.
    """
    require_package(server)
    if settings.mcp and find_spec("mcp") is None:
        raise StartError(missing_package("--mcp", "mcp", "mcp"))
    settings = settings.as_the_medium_allows()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))  # until the processes are there
    with ExitStack() as stack:
        memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        counts = stack.enter_context(RunFolder(own_temporary_folder("sigdir-counts", memory))).path
        if settings.on_read_only_media and settings.cache is None:
            settings = replace(settings, cache=stack.enter_context(_temporary_cache()))
        bound = stack.enter_context(bind(settings))
        host, port = bound.getsockname()[:2]
        served = replace(settings, host=host, port=port)
        lock = stack.enter_context(lock_address(served.host, served.port))
        os.environ[COUNTS_FOLDER] = str(counts)
        stack.callback(os.environ.pop, COUNTS_FOLDER)
        if settings.follow_store:
            first_pull(settings)
        ensure_warehouse(settings)
        beats, theirs = (stack.enter_context(FileIO(end, mode)) for end, mode in zip(os.pipe(), "rw", strict=True))
        for end in (beats, theirs):
            os.set_blocking(end.fileno(), False)  # a worker goes on while nobody reads
        serving = _serving(server, served, bound, lock, beats, theirs)
        upkeep = _upkeep(served, (bound, lock, beats, theirs))
        return _Supervisor(serving, upkeep, beats, settings.silent_seconds).run(
            lambda: is_served(served.host, served.port),
            lambda: ready(settings, url_of(replace(settings, port=served.port))),
            bound,
        )


@contextmanager
def _temporary_cache() -> Iterator[Path]:
    """A folder for indexes. A process of costly requests may still write there when all others have ended."""
    with RunFolder(own_temporary_folder("sigdir-cache")) as run:
        yield run.path
        rmtree(run.path, ignore_errors=True)
        time.sleep(_REMOVING_SECONDS)


def _serving(
    server: str, settings: Settings, bound: socket.socket, lock: socket.socket, beats: FileIO, theirs: FileIO
) -> list[Child]:
    """The processes that answer, with what they need loaded. Their parent alone reads ``beats``."""
    from sigdir.serve.servers.startup import load

    load(settings)
    if server == "granian":
        from sigdir.serve.servers import granian_server

        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # its workers listen on sockets of their own
        return [Child("sigdir-granian", granian_server.main, (settings,), closes=(bound, beats, theirs))]
    from sigdir.serve.servers import waitress_worker

    arguments = settings, bound, lock, theirs
    worker = Child("sigdir-worker", waitress_worker.main, arguments, closes=(beats,), start_polls=_START_POLLS)
    return [replace(worker) for _ in range(settings.workers)]


def _upkeep(settings: Settings, closes: Sequence[Closable]) -> list[Child]:
    """The processes that no request needs."""
    from sigdir.serve.servers import upkeep

    if settings.follow_store:
        return [Child("sigdir-follow", upkeep.follow, (settings.paths,), closes)]
    if settings.fold_every > 0:
        return [Child("sigdir-fold", upkeep.repeat, (settings.paths, settings.fold_every), closes)]
    return []


class _Supervisor:
    """Starts processes, starts again what ends or is silent, and stops all in order when asked to."""

    def __init__(self, serving: Sequence[Child], upkeep: Sequence[Child], beats: FileIO, silent_seconds: float) -> None:
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
            if (status := child.process.exitcode) is not None and not self._stopping:
                raise StartError(f"the warehouse cannot be served: {why_it_ended(status)}")

    def _heard(self) -> set[int]:
        """The ids of the processes that have written into the pipe since the last poll."""
        return set(array("i", self._beats.read(_PIPE_BYTES) or b""))

    def _replace(self, heard: set[int]) -> None:
        for child in self._children:
            process = child.process
            child.silent_polls = 0 if process.pid in heard else child.silent_polls + 1
            if child.silent_polls >= self._most_polls:
                write_line(f"process {process.pid} no longer answers; killed")
                end(process)
            if (status := process.exitcode) is not None and not self._stopping:
                write_line(f"process {process.pid} ended with status {status}; replaced")
                time.sleep(_RESTART_SECONDS)
                child.start()

    def _stop(self) -> None:
        for child in self._children:
            child.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children:
            end(child.process, max(0.0, deadline - time.monotonic()))


@dataclass
class Child:
    """Work in a process that is forked, and closes what it must not have. It may be silent for ``start_polls`` while it starts."""

    name: str
    work: Callable[..., object]
    arguments: Sequence[Any]
    closes: Sequence[Closable]
    start_polls: float = inf
    process: BaseProcess = field(init=False)
    silent_polls: float = field(init=False)
    """For how many polls nothing came from it; below zero while it may be silent.

    Polls are counted, not seconds: where the parent did not run either, the child is not to blame.
    """

    def start(self) -> None:
        """Start it, or the next one in its place."""
        self.silent_polls = -self.start_polls
        self.process = FORK.Process(target=self._run, args=(os.getpid(),))
        self.process.start()

    def _run(self, parent: int) -> None:
        begin(self.name)
        end_with_parent(parent)
        for each in self.closes:
            each.close()
        self.work(*self.arguments)
