"""What `sigdir serve` needs before its processes start: the server's package, the address, a warehouse."""

from __future__ import annotations

import errno
import signal
import socket
from contextlib import suppress
from importlib.util import find_spec

from sigdir.serve.core.process import FORK, end, write_line
from sigdir.serve.core.settings import Settings
from sigdir.signatures.errors import SigdirError, missing_package
from sigdir.warehouse.staging.writer import make_warehouse
from sigdir.warehouse.table.identity import read_identity
from sigdir.warehouse.table.paths import existing

EXTRAS = {"waitress": "", "granian": "fast"}
"""The servers of `--server`, each named as its package, and the extra that installs it."""

_FIRST_PULL_SECONDS = 10.0

START_ERROR = 2
"""The status of a process that has printed why it does not start."""


class StartError(SigdirError):
    """The server cannot start; the message says why."""


def require_package(server: str) -> None:
    """Raise StartError where the server's package is not installed."""
    if find_spec(server) is None:
        raise StartError(missing_package(f"--server {server}", server, EXTRAS[server]))


def bind(settings: Settings) -> socket.socket:
    """A socket that holds the address; who serves listens. Raises StartError."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        advice = "; choose another with --port (0 picks a free one)" if error.errno == errno.EADDRINUSE else ""
        raise StartError(f"{settings.host}:{settings.port}: {error.strerror or error}{advice}") from error
    return bound


def lock_address(host: str, port: int) -> socket.socket:
    """A socket that only one server of this machine can have for an address; raises StartError.

    The port does not keep a second server out while the workers load, because nobody listens yet. The workers inherit
    the lock: none of an earlier server is left once it is free. Only Linux has such names.
    """
    lock = socket.socket(socket.AF_UNIX)
    with suppress(FileNotFoundError):
        try:
            lock.bind(f"\0sigdir-serve:{host}:{port}")
        except OSError as error:
            lock.close()
            if error.errno != errno.EADDRINUSE:
                raise
            raise StartError(
                f"{host}:{port}: another sigdir serve has this address; the workers of one that was killed end"
                " within 12 seconds"
            ) from None
    return lock


def is_served(host: str, port: int) -> bool:
    """Whether a process listens: a worker does so when it can answer."""
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - where to connect, not where to listen
    with suppress(OSError):
        socket.create_connection((target, port), timeout=2).close()
        return True
    return False


def ensure_warehouse(settings: Settings) -> None:
    """Make the warehouse where the folder holds none, and say so: the folder may be mistyped.

    A server that only reads makes none; it raises UnreadableWarehouse.
    """
    if settings.read_only:
        existing(settings.warehouse)
        return
    if make_warehouse(settings.paths):
        write_line(f"new warehouse at {settings.paths.root}")


def first_pull(settings: Settings) -> None:
    """Fetch the newest version; where that fails or takes long, serve the one that is there. Raises StartError if there is none."""
    from sigdir.serve.servers import upkeep

    def has_version() -> bool:
        return settings.paths.log.is_dir() and not read_identity(settings.paths).unfinished

    # The client of a store has threads, with which this process could not be forked any more.
    process = FORK.Process(target=upkeep.pull_once, args=(settings.paths,), daemon=True)
    process.start()
    process.join(_FIRST_PULL_SECONDS if has_version() else None)
    if process.exitcode == 0:
        return
    end(process)  # a store that hangs would be waited for a minute; the process that follows it goes on
    if not has_version():
        raise StartError("there is no version to serve: the line above says why the store cannot be followed")
    write_line("serving the version that is there until the store answers")


def why_it_ended(status: int) -> str:
    """What the status of a process that does not start says; negative for a signal, as subprocess gives it."""
    if status == START_ERROR:
        return "the line above has the reason"
    if status >= 0:
        return f"its first process ended with status {status}, and what it printed stands above"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    advice = {
        "SIGKILL": "the system does so when memory runs out",
        "SIGBUS": "a file was cut short while it was mapped, or the disk is full or failing; run `sigdir verify`",
    }
    if name in ("SIGTERM", "SIGINT"):
        return f"it was ended by {name} while it started"
    return f"its first process was killed by {name}; {advice.get(name, 'run `sigdir verify` to look for damage')}"


def url_of(settings: Settings) -> str:
    """What clients of this machine connect to."""
    return f"http://{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.port}"
