"""What bounds a statement of SQL: Ctrl-C, a time limit, and a limit on the memory of this process."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from sigdir.cli.interrupt import interruptible
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
    The kernel refuses the memory (RLIMIT_DATA), and the engine says so.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError, AttributeError):  # no /proc, or a lower limit already
        resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + engine + _BESIDE, before[1]))
    try:
        yield
    except (MemoryError, QueryError) as error:
        first = str(error).partition("\n")[0]
        if isinstance(error, MemoryError) or any(word in first for word in _OUT_OF_MEMORY):
            raise QueryError(
                f"the query needs more memory than it may have: {first or 'MemoryError'}; --memory-limit allows more"
            ) from error
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """What the kernel counts of this process now."""
    found = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if not found:
        raise ValueError("VmData is not there")
    return int(found[1]) * 1024
