"""One hash looked up in all data files at once.

Theory. Each fold leaves a file, so there are thirty, and each has its own sorted ``hashes``. A binary search
in each, one after the other, waits for memory twenty times a file. Hashes are spread evenly, though: where a
prefix would stand if they were perfectly so is 1,100 entries off in 5 M rows; what stands there tells the
next guess, 30 off, and that the third. A guess in one file does not wait for those in the others, so the
processor fetches all of them together. In four files of 10 M rows together it takes 1.3 microseconds instead
of 3.1. Prefixes that somebody has mined lead the guesses astray, and nothing else: from the last one steps
that double find the way in any order.

A tuple of arrays would make numba compile a kernel for each number of files; so the kernel is given addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic

from sigdir.warehouse.index.mapped import PREFIX_SHIFT, Segment, range_between

Array = npt.NDArray[Any]

_FIRST_STEP = 8  # entries, a line of the processor's cache


class Lookup:
    """The mapped segments of a collection, oldest first, and where their ``hashes`` lie."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.files = len(segments)
        self._segments = [segment for segment in segments if segment.rows]  # and it keeps them mapped
        orders: list[Any] = [segment.hashes for segment in self._segments]
        self._addresses = np.array([order.__array_interface__["data"][0] for order in orders], np.uint64)
        self._rows = np.array([segment.rows for segment in self._segments], np.int64)

    def with_hash(self, digest: bytes) -> list[tuple[Segment, Array]]:
        """The rows with exactly this hash, rising, of each segment that has any, oldest first."""
        count, ranges = _ranges_of(self._addresses, self._rows, int.from_bytes(digest[:4], "big"))
        if not count:
            return []
        found = []
        for segment, (first, last) in zip(self._segments, ranges.tolist(), strict=True):
            if first < last:
                rows = segment.of_order(first, last, digest)
                if len(rows):
                    found.append((segment, rows))
        return found


_POINTER: Any = types.CPointer(types.uint64)  # type: ignore[no-untyped-call]


def _to_pointer(_: Any, address: Any) -> Any:
    """How numba compiles the call: a number taken for an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return _POINTER(types.uint64), generate


_at: Any = intrinsic(_to_pointer)


# The interpreter is kept, as in prefix_range.
@njit(cache=True)
def _ranges_of(addresses: Array, rows: Array, prefix: int) -> tuple[int, Array]:
    """How many rows have the prefix, and their range in each order: int64 of (orders, 2)."""
    key = np.uint64(prefix) << PREFIX_SHIFT
    files = len(rows)
    guesses = np.empty(files, np.int64)
    for n in range(files):
        guesses[n] = (prefix * rows[n]) >> 32
    for _ in range(2):
        for n in range(files):
            there = np.int64(_at(addresses[n])[guesses[n]] >> PREFIX_SHIFT)
            guess = guesses[n] + (((prefix - there) * rows[n]) >> 32)
            guesses[n] = min(max(guess, 0), rows[n] - 1)
    ranges = np.empty((files, 2), np.int64)
    count = 0
    for n in range(files):
        hashes = _at(addresses[n])
        low, step = guesses[n], _FIRST_STEP
        while low > 0 and hashes[low - 1] >= key:
            low = max(low - step, 0)
            step *= 2
        high, step = guesses[n], _FIRST_STEP
        while high < rows[n] and hashes[high] < key:
            high = min(high + step, rows[n])
            step *= 2
        ranges[n] = range_between(hashes, rows[n], key, low, high)
        count += ranges[n, 1] - ranges[n, 0]
    return count, ranges
