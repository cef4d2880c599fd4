"""What bounds a statement of SQL: a time limit, and a limit on the memory of this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread

from sigdir.cli.errors import Failure
from sigdir.serve.core.process import limited_memory
from sigdir.warehouse import Warehouse
from sigdir.warehouse.table.errors import QueryError

_BESIDE = 512 << 20
"""Bytes beside the engine's own: rows on their way to the output, and threads."""

_AGAIN_SECONDS = 0.1  # an interruption that arrives before the engine has begun is lost
_GRACE_SECONDS = 2.0  # for the engine to end at a time limit; functions of ours and the output do not hear it

_OUT_OF_MEMORY = ("Out of Memory", "malloc", "realloc", "allocat")


@contextmanager
def limits(warehouse: Warehouse, timeout: timedelta | None) -> Iterator[None]:
    """Within the block the time limit ends a statement, and memory is limited; raises QueryError."""
    database = warehouse.database
    with _limited_memory(database.memory_limit()), time_limit(database.interrupt, timeout):
        yield


@contextmanager
def time_limit(interrupt: Callable[[], None], limit: timedelta | None) -> Iterator[None]:
    """Call ``interrupt`` at the time limit. Then the block raises QueryError; if it does not end, the process does."""
    if limit is None:
        yield
        return
    seconds, ended = limit.total_seconds(), Event()
    began = time.monotonic()
    Thread(target=_end_at, args=(seconds, interrupt, ended), daemon=True).start()
    try:
        yield
    except QueryError as error:
        if time.monotonic() - began >= seconds:
            raise QueryError(_TOO_LONG.format(seconds)) from error
        raise
    finally:
        ended.set()


_TOO_LONG = "the query was stopped after {:g} seconds, its --timeout"


def _end_at(seconds: float, interrupt: Callable[[], None], ended: Event) -> None:
    """Interrupt when the time is over, again and again; end the process after a grace period."""
    if ended.wait(seconds):
        return
    last = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < last:
        interrupt()
        if ended.wait(_AGAIN_SECONDS):
            return
    os.write(2, f"Error: {_TOO_LONG.format(seconds)}\n".encode())
    os._exit(Failure.exit_code)


@contextmanager
def _limited_memory(engine: int) -> Iterator[None]:
    """Within the block the process gets ``engine`` bytes and half a GiB more than it has; raises QueryError beyond.

    The engine's limit counts what it keeps. A result of 20,000 texts of a megabyte passed 6 GB under a limit of 1 GB.
    The kernel refuses the memory, and the engine says so.
    """
    try:
        with limited_memory(engine + _BESIDE):
            yield
    except (MemoryError, QueryError) as error:
        first = str(error).partition("\n")[0]
        if isinstance(error, MemoryError) or any(word in first for word in _OUT_OF_MEMORY):
            raise QueryError(
                f"the query needs more memory than it may have: {first or 'MemoryError'}; --memory-limit allows more"
            ) from error
        raise
