"""The parent of a server: workers on one socket, a folder beside them, each replaced when it dies.

The parent imports none of the engines, so it is small and starts at once.
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
from http.client import HTTPConnection, HTTPException
from types import FrameType

from sigdir.serve.settings import BODIES, Settings

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_CHECK_SECONDS = 3.0  # a start takes 2, and longer only where kernels are compiled or indexes built

Spawn = Callable[[], "subprocess.Popen[bytes]"]


class StartError(Exception):
    """The server cannot start; the message says why."""


# By itself glibc gives threads sixteen heaps on two cores, and none gives back what large bodies left in it:
# granian's forty threads kept 460 MiB after a test of such bodies.
_MEMORY = {"MALLOC_ARENA_MAX": "2"}


def run(settings: Settings, server: str, ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit status. ``ready`` is told the address once.

    Raises StartError.
    """
    environment = _MEMORY | os.environ | settings.environment()
    spawners: list[Spawn] = []
    listening = None
    if server == "waitress":
        listening = _listen(settings)
        descriptor = listening.fileno()
        settings_port = listening.getsockname()[1]
        spawners += [lambda: _worker(descriptor, environment)] * settings.workers
    else:
        settings_port = settings.port
        spawners.append(lambda: _granian(settings, environment))
    if settings.fold_every > 0:
        command = [sys.executable, "-P", "-m", "sigdir", "fold", "--every", str(settings.fold_every)]
        command += ["--warehouse", str(settings.warehouse)]
        spawners.append(lambda: _start(command, environment))

    def close() -> None:
        if listening is not None:
            listening.close()

    address = f"http://{_shown(settings.host)}:{settings_port}"

    def starting() -> bool:
        if _answers(settings.host, settings_port):
            ready(address)
            return False
        return True

    try:
        return _keep(spawners, starting, lambda: _check(environment), close)
    finally:
        close()


def _check(environment: dict[str, str]) -> None:
    """Do what a worker does at its start, and wait for it; raises StartError where it fails."""
    if subprocess.run(
        [sys.executable, "-P", "-m", "sigdir.serve.servers.worker", "check"], env=environment, check=False
    ).returncode:
        raise StartError("the warehouse cannot be served")


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listen(settings: Settings) -> socket.socket:
    try:
        family, kind, _, _, where = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(1024)
    except OSError as error:
        advice = "; --port takes another, 0 a free one" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"{settings.host}:{settings.port}: {error.strerror or error}{advice}") from error
    listening.set_inheritable(True)
    return listening


def _start(command: list[str], environment: dict[str, str], *descriptors: int) -> subprocess.Popen[bytes]:
    """Start a child that is told to end where this process ends, even by a kill: a port would stay taken."""
    return subprocess.Popen(
        command,
        env=environment,
        pass_fds=descriptors,
        start_new_session=True,  # a Ctrl-C reaches the parent alone, which tells the others in order
        preexec_fn=end_with_parent,  # noqa: PLW1509 - there are no other threads here
    )


def end_with_parent() -> None:
    """Have the kernel end this process by SIGTERM when the thread that started it is gone."""
    with suppress(AttributeError, OSError):  # Linux has it
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def _worker(descriptor: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "sigdir.serve.servers.worker", str(descriptor)]
    return _start(command, environment, descriptor)


def _granian(settings: Settings, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-P",
        "-m",
        "granian",
        "--interface",
        "wsgi",
        "--factory",
        "sigdir.serve.servers.worker:granian_app",
    ]
    command += ["--host", settings.host, "--port", str(settings.port), "--workers", str(settings.workers)]
    command += ["--blocking-threads", str(settings.threads + BODIES), "--respawn-failed-workers", "--no-ws"]
    command += ["--workers-kill-timeout", "10", "--http", "1"]
    command += ["--log-level", "error"]  # it would warn of more threads than cores; most of them only wait
    # Of headers it takes so much, as waitress does; by itself 400 KiB.
    command += ["--http1-buffer-size", "65536"]
    return _start(command, environment)


def _answers(host: str, port: int) -> bool:
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to knock, not where to listen
    connection = HTTPConnection(target, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _keep(
    spawners: list[Spawn], starting: Callable[[], bool], check: Callable[[], None], closing: Callable[[], None]
) -> int:
    """Start all, restart what ends, until asked to stop; then stop all in good order.

    ``starting`` is asked until it is not so any more. Where that takes long, or a child ends before,
    ``check`` is called once, and may raise.
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
            time.sleep(_LOOK_SECONDS)
            ended = [place for place, child in enumerate(children) if child.poll() is not None]
            if is_starting and not checked and (ended or time.monotonic() - began > _CHECK_SECONDS):
                check()
                checked = True
            for place in ended:
                if not stopping:
                    _tell_end(children[place])
                    time.sleep(_RESTART_SECONDS)
                    children[place] = spawners[place]()
    finally:
        closing()  # whoever connects from now on is refused at once
        _stop(children)
    return 0


def _tell_end(child: subprocess.Popen[bytes]) -> None:
    print(f"process {child.pid} ended with status {child.returncode}; replaced", file=sys.stderr, flush=True)


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
