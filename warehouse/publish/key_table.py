"""A hash table of the keys of a batch, in which stored texts are looked up.

Invariants
    An entry is one uint64: 24 bits of the key above, the number of the row and one below; 0 is an empty place. The
    first row of each key has an entry. Keys are compared as a whole before two rows count as the same.
    Memory does not grow with the batch: a table of more than PART_ROWS rows is made in parts, one after the other,
    each of the keys that end in the same bits.

Theory. Open addressing with at most three of four places taken. The place of a key is its first half times a random odd
number, so nobody can choose texts that share one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.arrow import Array
from sigdir.signatures.columns import Keys, as_readonly
from sigdir.signatures.kernels import kernel, pointer

Numbers = npt.NDArray[np.int64]

PART_ROWS = 1 << 26
"""At most so many rows are in a table, which takes 1 GiB then: 100 M rows are two tables of 512 MiB each."""

_CHUNK_ROWS = 1 << 19
_TAG_SHIFT = 40


class Found(NamedTuple):
    """Numbers of rows, and the match of each: the id of a stored text, or the first row with the same text."""

    rows: Numbers
    matches: Numbers


class KeyTable:
    """The rows of a part of a batch. ``enter`` its rows, then ``find`` other keys among them; threads may share it then.

    ``words`` are the batch's keys, uint64 of shape (rows, 2). The part has the keys whose last bits are ``part``.
    """

    def __init__(self, words: Array, parts: int = 1, part: int = 0) -> None:
        self._words = as_readonly(words)
        self._mask, self._part = np.uint64(parts - 1), np.uint64(part)
        rows = len(words) if parts == 1 else sum(self._rows_of(chunk) for chunk in self._chunks())
        bits = max((rows * 4 // 3).bit_length(), 4)
        self._shift = np.uint64(64 - bits)
        self._factor = np.uint64(secrets.randbits(64) | 1)
        self._slots = np.zeros(1 << bits, np.uint64)

    def _chunks(self) -> Iterator[slice]:
        for first in range(0, len(self._words), _CHUNK_ROWS):
            yield slice(first, min(first + _CHUNK_ROWS, len(self._words)))

    def _rows_of(self, chunk: slice) -> int:
        return int(np.count_nonzero(self._words[chunk, 1] & self._mask == self._part))

    def enter(self) -> Iterator[Found]:
        """Enter all rows. Gives the rows whose key an earlier row has, with the number of the first one."""
        for chunk in self._chunks():
            size = chunk.stop - chunk.start
            rows, first = np.empty(size, np.int64), np.empty(size, np.int64)
            found = _enter(
                self._slots, self._words, chunk.start, chunk.stop, self._factor, self._shift, self._mask, self._part,
                rows, first,
            )  # fmt: skip
            yield Found(rows[:found], first[:found])

    def find(self, keys: Keys, ids: Numbers) -> Found:
        """The first row of each key that the part has, with the key's id."""
        rows, matches = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        found = _find(
            as_readonly(self._slots), self._words, as_readonly(keys.high), as_readonly(keys.low), as_readonly(ids),
            self._factor, self._shift, self._mask, self._part, rows, matches,
        )  # fmt: skip
        return Found(rows[:found], matches[:found])


def parts_of(rows: int) -> int:
    """How many parts the table of so many rows has: a power of two."""
    return 1 << (max(rows - 1, 0) // PART_ROWS).bit_length()


@kernel(nogil=True)
def _place_of(
    slots: Any, last: Any, words: Any, high: Any, low: Any, factor: Any, shift: Any
) -> tuple[Any, Any]:  # fmt: skip
    """The place of a key, and the row that has it; -1 where the place is empty.

    ``slots`` and ``words`` are pointers, two words a row: with arrays it takes twice as long.
    """
    at = (high * factor) >> shift
    tag = high << np.uint64(_TAG_SHIFT)
    while slots[at] != 0:
        entry = slots[at] ^ tag
        if entry >> np.uint64(_TAG_SHIFT) == 0:
            row = np.int64(entry) - 1
            if words[2 * row] == high and words[2 * row + 1] == low:
                return at, row
        at = (at + np.uint64(1)) & last
    return at, -1


@kernel(nogil=True)
def _enter(
    slots: Array, words: Array, start: int, stop: int, factor: Any, shift: Any, mask: Any, part: Any, rows: Array,
    first: Array,
) -> int:  # fmt: skip
    """Enter the rows ``start`` up to and without ``stop``; returns how many have an earlier one with the same key."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for row in range(start, stop):
        high, low = words[row, 0], words[row, 1]
        if low & mask != part:
            continue
        at, other = _place_of(pointer(slots), last, pointer(words), high, low, factor, shift)
        if other < 0:
            slots[at] = high << np.uint64(_TAG_SHIFT) | np.uint64(row + 1)
        else:
            rows[found], first[found] = row, other
            found += 1
    return found


@kernel(nogil=True)
def _find(
    slots: Array, words: Array, high: Array, low: Array, ids: Array, factor: Any, shift: Any, mask: Any, part: Any,
    rows: Array, what: Array,
) -> int:  # fmt: skip
    """Look keys up; returns how many have a row."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for key in range(len(high)):
        if low[key] & mask != part:
            continue
        _, row = _place_of(pointer(slots), last, pointer(words), high[key], low[key], factor, shift)
        if row >= 0:
            rows[found], what[found] = row, ids[key]
            found += 1
    return found
