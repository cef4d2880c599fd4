"""What bounds a statement of SQL: Ctrl-C, a time limit, and a limit on the memory of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from sigdir.cli.interrupt import interruptible
from sigdir.serve.memory_limit import limited_memory
from sigdir.warehouse import Warehouse
from sigdir.warehouse.errors import QueryError

_BESIDE = 512 << 20
"""Bytes beside the engine's own: rows on their way to the output, and threads."""

_OUT_OF_MEMORY = ("Out of Memory", "malloc", "realloc", "allocat")


@contextmanager
def limits(warehouse: Warehouse, timeout: timedelta | None) -> Iterator[None]:
    """Within the block Ctrl-C and the time limit end a statement, and memory is limited; raises QueryError."""
    database = warehouse.database
    with _limited_memory(database.memory_limit()), interruptible(database.interrupt, timeout):
        yield


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
