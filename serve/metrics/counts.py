"""The counts of all workers of a server, in memory that they share.

Invariants
    A worker writes to its own slot of the memory, and to no other.
    No count falls while the server runs: a worker that replaces another continues the counts of its slot, and the
    memory is the supervisor's. It has no name in a file system, so nothing is left behind, whatever is killed.

A slot is 64-bit integers: which layout it has, the two counts of the page cache, the beats of the worker's loop, then a
row for each method and route. A row has a count for each status, a count for each bucket of time, nanoseconds, and bytes. Rows that are
never used take no memory. ``DESIGN.md`` says why this is not prometheus_client's own mode for several processes.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import threading
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product

OTHER = "other"
"""The method or route of a request that is none of the known ones."""

METHODS = ("GET", "HEAD", "POST", "OPTIONS", OTHER)
MILLISECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
"""The upper bounds of the buckets, inclusive."""

FIRST_STATUS, STATUSES = 100, 500
BUCKETS = len(MILLISECONDS) + 1
ROW = STATUSES + BUCKETS + 2
HITS, MISSES, _BEATS, _FIRST_ROW = 1, 2, 3, 4

SLOT_BYTES = 2 << 20

_NANOSECONDS = [int(1_000_000 * bound) for bound in MILLISECONDS]


def new_memory(workers: int) -> int:
    """Memory for the counts of so many workers, all zero, as a descriptor that child processes may inherit."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("sigdir-counts")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, workers * SLOT_BYTES)
    return descriptor


def beats(descriptor: int, workers: int) -> list[int]:
    """How often the loop of each worker has begun."""
    return [
        int.from_bytes(os.pread(descriptor, 8, place * SLOT_BYTES + 8 * _BEATS), sys.byteorder)
        for place in range(workers)
    ]


class Counts:
    """The counts of one worker, and through ``memory`` those of the others. Threads may share one."""

    def __init__(self, descriptor: int | None = None, place: int = 0) -> None:
        """Write to the slot number ``place`` of a server's memory; without a descriptor to memory of its own."""
        self.memory = mmap.mmap(-1, SLOT_BYTES) if descriptor is None else mmap.mmap(descriptor, 0)
        self._cells = memoryview(self.memory).cast("q")[place * SLOT_BYTES // 8 : (place + 1) * SLOT_BYTES // 8]
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str], int] = {}
        self.layout = 0

    def lay_out(self, routes: Sequence[str]) -> None:
        """Give each method and route its row. Counts of other code, of before an update, are dropped."""
        places = {key: _FIRST_ROW + ROW * number for number, key in enumerate(product(METHODS, [*routes, OTHER]))}
        if max(places.values()) + ROW > len(self._cells):
            raise ValueError(f"{len(routes)} routes do not fit into {SLOT_BYTES} bytes")
        self.layout = zlib.crc32(repr([METHODS, MILLISECONDS, *routes]).encode())
        if self._cells[0] not in (0, self.layout):
            self._cells[:] = memoryview(bytes(8 * len(self._cells))).cast("q")
        self._cells[0] = self.layout
        self._rows = places

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Method and route of each row, and where in a slot the row begins."""
        for (method, route), start in self._rows.items():
            yield method, route, start

    def count_request(self, method: str, route: str, status: int, nanoseconds: int, size: int) -> None:
        """Count an answer: its status, the time until it began, and the bytes of its body."""
        rows = self._rows
        row = rows.get((method, route)) or rows.get((OTHER, route)) or rows[OTHER, OTHER]
        cells = self._cells
        with self._lock:
            cells[row + status - FIRST_STATUS] += 1
            cells[row + STATUSES + bisect_left(_NANOSECONDS, nanoseconds)] += 1
            cells[row + ROW - 2] += nanoseconds
            cells[row + ROW - 1] += size

    def beat(self) -> None:
        """Tell the supervisor that the worker's loop runs."""
        self._cells[_BEATS] += 1

    def count_cached(self, hit: bool) -> None:
        """Count a look into a cache of pages."""
        with self._lock:
            self._cells[HITS if hit else MISSES] += 1
