"""A process of this program: what memory it keeps and may add, and its end with the one that started it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def write_line(text: str) -> None:
    """Write a line on standard error at once. Where that is full or closed, the line is lost and the server goes on."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


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
    import pyarrow as pa  # the parent of a server's processes does without

    pa.set_memory_pool(pa.system_memory_pool())


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel end this process by SIGTERM when the thread that started it ends, even by kill -9.

    Ends it at once where the process ``parent`` has ended already.
    """
    with suppress(AttributeError, OSError):  # Linux has it
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
