"""Rows by a piece of their text, a pattern of it, or hex digits of their hash: every byte is scanned.

Theory. A fragment is found by its two rarest bytes. One loop compares both with a whole block of the text, which
LLVM turns into vector compares; only where both stand at their distance is the rest compared
(``benchmarks/bench_serve.py``). The rows' texts are one run of bytes, so a block may span rows, and a hit is
given to its row afterwards. A pattern is compared only with the rows that have its longest fixed piece.

A ``text`` is uint8, the bytes of all rows; row ``i`` of ``rows`` is ``text[offsets[i]:offsets[i + 1]]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_FIRST_ROWS, _MOST_ROWS = 1 << 12, 1 << 20  # of a piece of the answer: it doubles from the one to the other


def rows_with_hex(hash: Array, rows: int, digits: str) -> Array:
    """The rows whose hash, uint8 of shape (rows, width), has these lower-case hex digits anywhere, rising."""
    nibbles = np.array([int(digit, 16) for digit in digits], np.uint8)
    found = np.empty(rows, np.int64)
    return found[: _scan_hex(hash, rows, nibbles, found)].copy()


def rows_with_text(text: Array, offsets: Array, rows: int, fragment: str) -> Iterator[Array]:
    """The rows that have the fragment, whatever its case, rising, piece by piece."""
    needle = _Needle.of(fragment.encode())
    row, size = 0, _FIRST_ROWS
    while row < rows:
        if not len(needle.wanted):
            first, row = row, min(rows, row + size)
            yield np.arange(first, row, dtype=np.int64)
        else:
            found = np.empty(size, np.int64)
            count, row = _scan_text(
                text, offsets, rows, row, needle.wanted, needle.masks, needle.first, needle.second, found
            )
            yield found[:count]
        size = min(2 * size, _MOST_ROWS)


def rows_like(text: Array, offsets: Array, rows: int, pattern: str, limit: int) -> Array:
    """The first ``limit`` rows whose whole text fits the pattern, rising; case counts.

    In a pattern ``*`` is any run of characters, ``?`` is one.
    """
    wanted = np.frombuffer(re.sub(r"\*+", "*", pattern).encode(), np.uint8)
    found, count = np.empty(limit, np.int64), 0
    for candidates in rows_with_text(text, offsets, rows, max(re.split(r"[*?]", pattern), key=len)):
        count = _keep_like(text, offsets, candidates, wanted, found, count)
        if count == limit:
            break
    return found[:count]


# The bytes of canonical texts from the rarest to the most common; a byte that is not listed is rarer still.
_COMMON = b"etnarsiodu2s56(),lcgbmpfhykAvTBPSwCFDRIOMEVN[]LUH13K_84GW0jxqQ79zJYXZ$"[::-1]


@dataclass(frozen=True, slots=True)
class _Needle:
    """A fragment to search for: ``text & masks == wanted`` is equality without regard to case.

    ``first`` and ``second`` are the places of its two rarest bytes, the same place where it has only one.
    """

    wanted: Array
    masks: Array
    first: int
    second: int

    @classmethod
    def of(cls, fragment: bytes) -> _Needle:
        letters = np.array([65 <= byte & 0xDF <= 90 for byte in fragment], np.bool_)
        masks = np.where(letters, 0xDF, 0xFF).astype(np.uint8)
        wanted = np.frombuffer(fragment, np.uint8) & masks
        rarity = [_COMMON.find(bytes([byte]).lower()) for byte in fragment]
        order = sorted(range(len(fragment)), key=rarity.__getitem__)
        first, second = (order[0], order[1]) if len(order) > 1 else (0, 0)
        return cls(wanted, masks, first, second)


@kernel(nogil=True)
def _scan_hex(hashes: Array, rows: int, nibbles: Array, found: Array) -> int:
    count = 0
    width = hashes.shape[1] * 2
    size = len(nibbles)
    for row in range(rows):
        for start in range(width - size + 1):
            k = 0
            while k < size:
                byte = hashes[row, (start + k) >> 1]
                nibble = byte & 15 if (start + k) & 1 else byte >> 4
                if nibble != nibbles[k]:
                    break
                k += 1
            if k == size:
                found[count] = row
                count += 1
                break
    return count


_BLOCK = 64


@kernel(nogil=True)
def _scan_text(
    text: Array, offsets: Array, rows: int, row: int, needle: Array, masks: Array, first: int, second: int, found: Array
) -> tuple[int, int]:
    """Find rows from ``row`` on until ``found`` is full: (how many, the row to continue with)."""
    size = len(needle)
    count = 0
    # Indices are unsigned: numba tests signed ones for being negative, byte by byte.
    at = np.uint64(offsets[row])
    end = np.uint64(offsets[rows])
    if end - at < np.uint64(size):
        return 0, rows
    last = end - np.uint64(size)  # the last place where the needle fits
    one = np.uint64(1)
    a, b = np.uint64(first), np.uint64(second)
    byte_a, mask_a = needle[first], masks[first]
    byte_b, mask_b = needle[second], masks[second]
    while at <= last:
        if at + np.uint64(_BLOCK) <= last:
            hit = np.uint8(0)
            for k in range(np.uint64(_BLOCK)):
                same_a = (text[at + a + k] & mask_a) == byte_a
                same_b = (text[at + b + k] & mask_b) == byte_b
                hit |= np.uint8(same_a) & np.uint8(same_b)
            if hit == 0:
                at += np.uint64(_BLOCK)
                continue
            stop = at + np.uint64(_BLOCK)
        else:
            stop = last + one
        while at < stop:
            k = 0
            if (text[at + a] & mask_a) == byte_a:
                while k < size and (text[at + np.uint64(k)] & masks[k]) == needle[k]:
                    k += 1
            if k < size:
                at += one
                continue
            row = _row_at(offsets, rows, row, at)
            if at + np.uint64(size) > np.uint64(offsets[row + 1]):
                at += one  # it reaches into the next row
                continue
            found[count] = row
            count += 1
            row += 1
            at = np.uint64(offsets[row])
            if count == len(found) or row == rows:
                return count, row
            if at > last:
                return count, rows
            stop = min(stop, at) if at > stop else stop
    return count, rows


_STAR, _MARK = 0x2A, 0x3F


@kernel(nogil=True)
def _keep_like(text: Array, offsets: Array, rows: Array, pattern: Array, found: Array, count: int) -> int:
    """Append the rows that fit to ``found[:count]`` until it is full: the new count."""
    for row in rows:
        if count == len(found):
            break
        if _is_like(text, offsets[row], offsets[row + 1], pattern):
            found[count] = row
            count += 1
    return count


@kernel(nogil=True)
def _is_like(text: Array, at: int, end: int, pattern: Array) -> bool:
    """Whether ``text[at:end]`` fits as a whole.

    At a mismatch the last star takes one more character. What an earlier star took is the shortest that
    fits, so no other length of it needs to be tried.
    """
    k, star, resume = 0, -1, at
    while at < end:
        if k < len(pattern) and pattern[k] == _STAR:
            star, resume = k, at
            k += 1
        elif k < len(pattern) and (pattern[k] == _MARK or pattern[k] == text[at]):
            k += 1
            at += 1
        elif star >= 0:
            resume += 1
            at = resume
            k = star + 1
        else:
            return False
    while k < len(pattern) and pattern[k] == _STAR:
        k += 1
    return k == len(pattern)


@kernel(nogil=True)
def _row_at(offsets: Array, rows: int, low: int, at: Any) -> int:
    """The row, ``low`` or a later one, that byte ``at`` belongs to: by steps that double, then halve."""
    step = 1
    while low + step < rows and np.uint64(offsets[low + step]) <= at:
        low += step
        step *= 2
    high = min(low + step, rows)
    while high - low > 1:
        middle = (low + high) // 2
        if np.uint64(offsets[middle]) <= at:
            low = middle
        else:
            high = middle
    return low
