"""A process of this program: how it begins and ends, and what memory it keeps and may add."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Protocol

FORK = multiprocessing.get_context("fork")
"""Processes that are copies of this one, which must have no other threads: they have loaded what it has loaded."""


class Closable(Protocol):
    """What a process that is forked has open, too."""

    def close(self) -> None: ...


_PARENT_DEATH_SIGNAL, _NAME = 1, 15  # PR_SET_PDEATHSIG, PR_SET_NAME
_MOST_ARENAS = -8  # M_ARENA_MAX


def write_line(text: str) -> None:
    """Write a line on standard error at once. Where that is full or closed, the line is lost and the server goes on."""
    with suppress(OSError):
        print(f"{text}\n", end="", file=sys.stderr, flush=True)  # at once: threads' lines would be joined


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
    """Have Arrow use the system's allocator. Its own keeps what is freed: a worker grew to 255 MiB under a load that needs 160.
    It also maps 1 GiB at its first use, and so takes the memory of a costly request.

    glibc's default gives threads sixteen heaps on two cores, and none returns the memory of large bodies: forty threads
    kept 460 MiB after a test of such bodies. So there are two.
    """
    import pyarrow as pa  # a server that cannot start says so without it

    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):  # glibc has it
        ctypes.CDLL(None).mallopt(_MOST_ARENAS, 2)


def begin(name: str) -> None:
    """Give this process a session of its own, so that a Ctrl-C reaches its parent alone, and a name for `ps` and `top`.

    The name has 15 characters at most. A copy of another process gets the signal handlers of a new one.
    """
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(AttributeError, OSError):  # Linux has it
        ctypes.CDLL(None).prctl(_NAME, name.encode())


def end(process: BaseProcess, seconds: float = 0.0) -> None:
    """Wait so long for a process to end, then kill it: one that was stopped hears nothing else."""
    process.join(seconds)
    process.kill()
    process.join()


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel end this process by SIGTERM when the thread that started it ends, even by kill -9.

    Ends it at once where the process ``parent`` has ended already.
    """
    with suppress(AttributeError, OSError):  # Linux has it
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
