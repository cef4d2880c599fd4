"""The process that answers costly requests: ``python -P -m sigdir.serve.servers.budget_process DESCRIPTOR``.

The descriptor is its end of a pipe. The settings are in SIGDIR_ variables. Before a request the process sets a timer of
processor time; the kernel ends it by SIGPROF where that runs out, whatever code runs then. A limit of memory makes the
request fail with MemoryError, a 413. It ends when the pipe closes, that is with the process that started it.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import BytesIO
from multiprocessing.connection import Connection
from typing import Any

from sigdir.serve.app import create_app
from sigdir.serve.core.budget import Answer, Budget
from sigdir.serve.core.process import limited_memory, return_freed_memory
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.writer import Writer
from sigdir.serve.servers.warm import warm, warm_solidity
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import Paths, existing

_NICENESS = 5
"""Costly requests give way to all others."""


def main(descriptor: int) -> None:
    os.nice(_NICENESS)
    return_freed_memory()
    warm()
    warm_solidity()
    import_module("pandas")  # Arrow imports it at its first conversion: 0.4 s of the first request's budget
    connection: Connection[Any, Any] = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send("ready")
        _opened()
        while True:
            environ, budget = connection.recv()
            connection.send(_answer(_opened(), environ, connection.recv_bytes(), budget))


@cache
def _opened() -> Any:
    """The application over the newest version. It opens after the worker was told ``ready``, which waits for nothing here."""
    settings = Settings.from_environment().as_the_medium_allows()
    try:
        existing(settings.warehouse)
        reader = Reader(Paths(settings.warehouse.absolute(), settings.cache if settings.on_read_only_media else None))
        reader.current()
        return create_app(settings, reader, Writer(reader.paths, reader))
    except (WarehouseError, OSError) as error:
        sys.exit(f"error: the process of long requests: {error}")


def _answer(app: Any, environ: dict[str, str], body: bytes, budget: Budget) -> Answer | None:
    """Run the application within the budget; None where not even its error page had memory."""
    given: Any = environ | {
        "wsgi.version": (1, 0), "wsgi.input": BytesIO(body), "wsgi.errors": sys.stderr,
        "wsgi.multithread": False, "wsgi.multiprocess": True, "wsgi.run_once": False, "CONTENT_LENGTH": str(len(body)),
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
    return Answer(status, headers, whole)


if __name__ == "__main__":
    main(int(sys.argv[1]))
