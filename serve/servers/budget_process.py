"""The process that answers costly requests, which come through a pipe. Before each the process sets a timer of processor time; the kernel ends it by SIGPROF where that runs out, whatever code runs then. A limit of memory makes the
request fail with MemoryError, a 413. It ends when the pipe closes, that is with the process that started it. SIGINT ends
the query that runs: its client has gone.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext, suppress
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from sigdir.serve.app import create_app
from sigdir.serve.core.budget import Answer, Budget
from sigdir.serve.core.decodings import DECODED
from sigdir.serve.core.process import begin, limited_memory
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.servers.warm import load
from sigdir.signatures.interruption import noting
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import existing

_NICENESS, _SQL_NICENESS = 5, 10
"""Costly requests give way to all others, and SQL to these."""


def main(connection: Connection[Any, Any], settings: Settings, gives_way: bool) -> None:
    begin("sigdir-costly")
    if gives_way:
        signal.signal(signal.SIGINT, lambda *_: None)  # between two queries
    load(settings)
    with suppress(EOFError, OSError):
        connection.recv()  # who starts it finds damage, and builds indexes, first
        app, reader = _opened(settings)
        _give_way(_SQL_NICENESS if gives_way else _NICENESS)  # not before: who waits for it does so 1.7 times as long
        connection.send("ready")
        while True:
            body = BytesIO(
                b"".join(iter(connection.recv_bytes, b""))
            )  # it holds these bytes, and its only reader makes no copy
            environ, budget = connection.recv()
            _refresh(reader)
            answer = None
            with noting(_kill, (signal.SIGINT,)) if gives_way else nullcontext(), suppress(KeyboardInterrupt):
                answer = _answer(app, environ, body, budget)
            connection.send(answer)


def _refresh(reader: Reader) -> None:
    """Open the newest version before the budget begins: it may lack an index, and no request is too large because of that.

    An error comes again in the request, which answers with it.
    """
    with suppress(WarehouseError, OSError, pa.ArrowException):
        reader.refreshed()


def _give_way(more: int) -> None:
    """Let other processes go first. Linux shares the processor between sessions before it looks at niceness."""
    niceness = os.nice(more)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _opened(settings: Settings) -> tuple[Any, Reader]:
    """The application, and what it reads."""
    try:
        existing(settings.warehouse)
        reader = Reader(settings.paths)
        reader.current()
        return create_app(settings, reader, Writer(reader.paths, reader)), reader
    except (WarehouseError, OSError) as error:
        sys.exit(f"error: the process of long requests: {error}")


def _answer(app: Any, environ: dict[str, str], body: BytesIO, budget: Budget) -> Answer | None:
    """Run the application within the budget; None where not even its error page had memory."""
    given: Any = environ | {
        "wsgi.version": (1, 0), "wsgi.input": body, "wsgi.errors": sys.stderr,
        "wsgi.multithread": False, "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    began: list[Any] = []
    signal.setitimer(signal.ITIMER_PROF, budget.seconds)
    try:
        with limited_memory(budget.memory):
            parts = app(given, lambda *start: began.extend(start[:2]))
            whole = b"".join(parts)
    except MemoryError:
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    status, headers = began
    return Answer(status, headers, whole, given.get(DECODED, []))
