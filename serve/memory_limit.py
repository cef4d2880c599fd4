"""The memory of a process: what it keeps, and a limit on what a part of the program may add."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa


@contextmanager
def limited_memory(more: int) -> Iterator[None]:
    """Within the block the process may have so many bytes more than it has; the kernel refuses others (RLIMIT_DATA).

    Without limit where there is no /proc, or a lower limit already.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with suppress(OSError, ValueError, AttributeError):
        pages = int(Path("/proc/self/statm").read_text().split()[5])  # data and stack
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def return_freed_memory() -> None:
    """Have Arrow use the system's allocator. Its own keeps what is freed: a worker grew to 255 MiB under a load that needs 160."""
    pa.set_memory_pool(pa.system_memory_pool())
