"""The parent of a server: workers on one socket, a folder beside them, each replaced when it dies.

The parent imports none of the engines, so it is small and starts at once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from types import FrameType

from serve.settings import Settings

_STOP_SECONDS = 15.0
_RESTART_SECONDS = 0.5
_LOOK_SECONDS = 0.1

Spawn = Callable[[], "subprocess.Popen[bytes]"]


class StartError(Exception):
    """The server cannot start; the message says why."""


def run(settings: Settings, server: str, ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; gives the exit status. ``ready`` is told the address once."""
    environment = os.environ | settings.environment()
    prepared = subprocess.run([sys.executable, "-m", "serve.worker", "prepare"], env=environment, check=False)
    if prepared.returncode:
        raise StartError("the warehouse cannot be opened")
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
        command = [sys.executable, "-m", "sigdir", "fold", "--every", str(settings.fold_every)]
        command += ["--warehouse", str(settings.warehouse)]
        spawners.append(lambda: subprocess.Popen(command, env=environment, start_new_session=True))

    def close() -> None:
        if listening is not None:
            listening.close()

    address = f"http://{_shown(settings.host)}:{settings_port}"
    try:
        return _keep(spawners, lambda: _answers(settings.host, settings_port), lambda: ready(address), close)
    finally:
        close()


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
        raise StartError(f"{settings.host}:{settings.port}: {error.strerror or error}") from error
    listening.set_inheritable(True)
    return listening


def _worker(descriptor: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "serve.worker", str(descriptor)]
    # A session of its own: a Ctrl-C reaches the parent alone, which tells the others in order.
    return subprocess.Popen(command, env=environment, pass_fds=[descriptor], start_new_session=True)


def _granian(settings: Settings, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--factory", "serve.app:make_app"]
    command += ["--host", settings.host, "--port", str(settings.port), "--workers", str(settings.workers)]
    command += ["--blocking-threads", str(settings.threads), "--respawn-failed-workers", "--no-ws"]
    command += ["--workers-kill-timeout", "10", "--log-level", "warning", "--http", "1"]
    return subprocess.Popen(command, env=environment, start_new_session=True)


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
    spawners: list[Spawn], answers: Callable[[], bool], ready: Callable[[], None], closing: Callable[[], None]
) -> int:
    """Start all, restart what ends, until asked to stop; then stop all in good order."""
    stopping: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    children = [spawn() for spawn in spawners]
    told = False
    while not stopping:
        if not told and answers():
            ready()
            told = True
        time.sleep(_LOOK_SECONDS)
        for place, child in enumerate(children):
            if child.poll() is not None and not stopping:
                print(
                    f"process {child.pid} ended with status {child.returncode}; replaced", file=sys.stderr, flush=True
                )
                time.sleep(_RESTART_SECONDS)
                children[place] = spawners[place]()
    closing()  # whoever connects from now on is refused at once
    return _stop(children)


def _stop(children: list[subprocess.Popen[bytes]]) -> int:
    for child in children:
        child.terminate()
    deadline = time.monotonic() + _STOP_SECONDS
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    return 0
