"""The parent process of a server: starts workers and the process that folds or follows a store, and replaces each that ends.

A worker whose loop does not run for ten seconds is replaced too: one of its threads holds the GIL, or it was stopped.

Both servers run the same way: each worker is a child process, and the supervisor holds the port. The parent imports
none of the engines, so it is small and starts at once. Children start with ``-P``: they never import from the
folder in which the server was started.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPException
from importlib.util import find_spec
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from sigdir.serve.metrics.counts import beats, new_memory
from sigdir.serve.servers import probe
from sigdir.serve.servers.registry import SERVERS
from sigdir.serve.settings import Settings
from sigdir.signatures.errors import SigdirError, missing_package
from sigdir.warehouse.identity import read_identity
from sigdir.warehouse.paths import Paths, existing
from sigdir.warehouse.staging.writer import make_warehouse

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_POLL_SECONDS = 0.1
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
WORKER_ERROR = 2  # a worker's status when it has printed why it does not start
_CHECK_SECONDS = 3.0  # a start takes 2, and longer only where kernels are compiled or indexes built

Spawn = Callable[[], "subprocess.Popen[bytes]"]


class Heartbeats:
    """Tells which workers are silent: their loop has not run for so many seconds, or not within START_SECONDS.

    Polls are counted, not seconds: where this process did not run either, the worker is not to blame.
    """

    START_SECONDS = 600.0  # kernels may be compiled first, on a busy machine

    def __init__(self, read: Callable[[], list[int]], seconds: float) -> None:
        """``read`` gives how often the loop of each worker has begun; 0 ``seconds`` are for ever."""
        self._read, self._most = read, (seconds or inf) / _POLL_SECONDS
        self._last = read()
        self._polls = [-self.START_SECONDS / _POLL_SECONDS] * len(self._last)
        """Of each worker since its last beat; below zero while it may still be loading."""

    def silent(self) -> list[int]:
        """The places of the silent workers. To be called at each poll."""
        now = self._read()
        for place, has_begun in enumerate(this != last for this, last in zip(now, self._last, strict=True)):
            self._polls[place] = 0 if has_begun else self._polls[place] + 1
        self._last = now
        return [place for place, polls in enumerate(self._polls) if polls >= self._most]

    def restarted(self, place: int) -> None:
        """The worker of this place is a new one, which has to load first."""
        if place < len(self._polls):
            self._polls[place] = -self.START_SECONDS / _POLL_SECONDS


class StartError(SigdirError):
    """The server cannot start; the message says why."""


# glibc's default gives threads sixteen heaps on two cores, and none returns the memory of large bodies:
# forty threads kept 460 MiB after a test of such bodies.
_MEMORY = {"MALLOC_ARENA_MAX": "2"}


def run(settings: Settings, server: str, ready: Callable[[Settings, str], None]) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit status. Calls ``ready`` once with the settings and the address.

    The workers of a read-only warehouse share a temporary folder unless the settings name one. Raises StartError,
    UnreadableWarehouse, OSError.
    """
    require_package(server)
    settings = settings.as_the_medium_allows()
    if settings.on_read_only_media and settings.cache is None:
        with TemporaryDirectory(prefix="sigdir-") as folder:
            return _run(replace(settings, cache=Path(folder)), server, ready)
    return _run(settings, server, ready)


def _run(settings: Settings, server: str, ready: Callable[[Settings, str], None]) -> int:
    bound = _bind(settings, listen=True) if SERVERS[server].shares_socket else _reserve(settings)
    host, port = bound.getsockname()[:2]
    lock = _lock_address(host, port)
    life, ours = os.pipe()  # never written to; it ends with this process
    environment = _MEMORY | os.environ | replace(settings, host=host, port=port).environment()
    counts = new_memory(settings.workers)
    descriptors = (bound.fileno(), counts, lock.fileno(), life)
    spawners: list[Spawn] = [
        partial(_start, _worker(f"{server}:{bound.fileno()}:{counts}:{place}:{life}"), environment, *descriptors)
        for place in range(settings.workers)
    ]
    if settings.fold_every > 0:
        spawners.append(partial(_start, _fold_process(settings), environment))

    def starting() -> bool:
        if _answers(host, port):
            ready(settings, f"http://{_in_url(settings.host)}:{port}")
            return False
        return True

    if settings.follow_store:
        spawners.append(partial(_start, _follower(), environment))

    with bound, lock, os.fdopen(life), os.fdopen(ours):
        if settings.follow_store:
            first_pull(settings, environment)
        ensure_warehouse(settings)
        heartbeats = Heartbeats(partial(beats, counts, settings.workers), settings.silent_seconds)
        return _keep(spawners, heartbeats, starting, partial(check, environment), bound.close)


def require_package(server: str) -> None:
    """Raise StartError where the server's package is not installed: its workers would fail one after the other."""
    if find_spec(SERVERS[server].package) is None:
        raise StartError(missing_package(f"--server {server}", SERVERS[server].package, SERVERS[server].extra))


def ensure_warehouse(settings: Settings) -> None:
    """Make the warehouse where the folder holds none, and say so: the folder may be mistyped.

    A server that only reads makes none; it raises UnreadableWarehouse.
    """
    if settings.read_only:
        existing(settings.warehouse)
        return
    paths = Paths(settings.warehouse.absolute())
    if make_warehouse(paths):
        print(f"new warehouse at {paths.root}", file=sys.stderr, flush=True)


def first_pull(settings: Settings, environment: dict[str, str]) -> None:
    """Fetch the newest version; where that fails, serve the one that is there. Raises StartError if there is none."""
    if subprocess.run([*_follower(), "once"], env=environment, check=False).returncode == 0:
        return
    paths = Paths(settings.warehouse.absolute())
    if not paths.log.is_dir() or read_identity(paths).unfinished:
        raise StartError("there is no version to serve: the line above says why the store cannot be followed")
    print("serving the version that is there until the store answers", file=sys.stderr, flush=True)


def _follower() -> list[str]:
    return [sys.executable, "-P", "-m", "sigdir.serve.servers.follower"]


def _worker(argument: str) -> list[str]:
    return [sys.executable, "-P", "-m", "sigdir.serve.servers.worker", argument]


def _fold_process(settings: Settings) -> list[str]:
    command = [sys.executable, "-P", "-m", "sigdir", "fold", "--every", str(settings.fold_every)]
    return [*command, "--warehouse", str(settings.warehouse)]


def check(environment: dict[str, str], stopping: Callable[[], bool] = lambda: False) -> None:
    """Do what a worker does at its start, and wait for it; raises StartError if it fails, with the reason.

    Ends it where ``stopping`` gives True.
    """
    child = _start(_worker("check"), environment)
    while child.poll() is None:
        if stopping():
            _stop([child])
            return
        time.sleep(_POLL_SECONDS)
    if child.returncode:
        raise StartError(f"the warehouse cannot be served: {why_it_ended(child.returncode)}")


def why_it_ended(status: int) -> str:
    """What the status of a worker that does not start says; negative for a signal, as subprocess gives it."""
    if status == WORKER_ERROR:
        return "the line above has the reason"
    if status >= 0:
        return f"its first check ended with status {status}, and what it printed stands above"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    advice = {
        "SIGKILL": "the system does so when memory runs out",
        "SIGBUS": "a file was cut short while it was mapped, or the disk is full or failing; run `sigdir verify`",
    }
    if name in ("SIGTERM", "SIGINT"):
        return f"it was ended by {name} during its first check"
    return f"its first check was killed by {name}; {advice.get(name, 'run `sigdir verify` to look for damage')}"


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _reserve(settings: Settings) -> socket.socket:
    """A socket that holds the address for workers that listen on sockets of their own; raises StartError.

    The first socket does not share the address: it finds out whether another server has it.
    """
    with _bind(settings) as first:
        port = first.getsockname()[1]
    return _bind(replace(settings, port=port), shared=True)


def _lock_address(host: str, port: int) -> socket.socket:
    """A socket that only one server of this machine can have for an address; raises StartError.

    granian's workers share the port, so the port itself does not keep a second server out while theirs load. The
    workers inherit the lock: none of an earlier server is left once it is free. Only Linux has such names.
    """
    lock = socket.socket(socket.AF_UNIX)
    with suppress(FileNotFoundError):
        try:
            lock.bind(f"\0sigdir-serve:{host}:{port}")
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"{host}:{port}: another sigdir serve has this address; the workers of one that was killed end"
                " within 12 seconds"
            ) from None
    return lock


def _bind(settings: Settings, *, shared: bool = False, listen: bool = False) -> socket.socket:
    try:
        family, kind, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(address)
        if listen:
            bound.listen(1024)
    except OSError as error:
        advice = "; choose another with --port (0 picks a free one)" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"{settings.host}:{settings.port}: {error.strerror or error}{advice}") from error
    return bound


def _start(command: list[str], environment: dict[str, str], *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a child that ends when this process ends, even by kill -9: the port would stay taken."""
    return subprocess.Popen(
        command,
        env=environment,
        pass_fds=descriptors,
        start_new_session=True,  # a Ctrl-C reaches the parent alone, which stops the others in order
        preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - there are no other threads here
    )


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel end this process by SIGTERM when the thread that started it ends.

    Ends it at once where the process ``parent`` has ended already.
    """
    with suppress(AttributeError, OSError):  # Linux has it
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def _answers(host: str, port: int) -> bool:
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to connect, not where to listen
    connection = HTTPConnection(target, port, timeout=2)
    try:
        connection.request("GET", probe.PATH, headers=probe.HEADERS)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _keep(
    spawners: list[Spawn],
    heartbeats: Heartbeats,
    starting: Callable[[], bool],
    check: Callable[[Callable[[], bool]], None],
    close: Callable[[], None],
) -> int:
    """Start all children, restart what ends or is silent, and stop them in order when asked to.

    ``starting`` is called until it gives False. Where that takes long, or a child ends first, ``check`` is called once,
    and may raise; it is given a function that says whether to stop.
    """
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    children = [spawn() for spawn in spawners]
    began = time.monotonic()
    is_starting, checked = True, False
    try:
        while not stopping:
            is_starting = is_starting and starting()
            time.sleep(_POLL_SECONDS)
            for place in heartbeats.silent():
                _write(f"process {children[place].pid} no longer answers; killed")
                children[place].kill()  # one that was stopped hears nothing else
                children[place].wait()
            ended = [place for place, child in enumerate(children) if child.poll() is not None]
            if is_starting and any(children[place].returncode == WORKER_ERROR for place in ended) and checked:
                raise StartError("no worker can serve")
            if is_starting and not checked and (ended or time.monotonic() - began > _CHECK_SECONDS):
                check(lambda: bool(stopping))
                checked = True
            for place in ended:
                if not stopping:
                    _write(f"process {children[place].pid} ended with status {children[place].returncode}; replaced")
                    time.sleep(_RESTART_SECONDS)
                    children[place] = spawners[place]()
                    heartbeats.restarted(place)
    finally:
        close()  # new connections are refused at once
        _stop(children)
    return 0


def _write(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _stop(children: list[subprocess.Popen[bytes]]) -> None:
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
