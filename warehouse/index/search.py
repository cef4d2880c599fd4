"""Rows by a piece of their text, a pattern of it, or hex digits of their hash: every byte is scanned.

Theory. A fragment is found by its two rarest bytes. One loop compares both with a whole block of the text, which
LLVM turns into vector compares; only where both stand at their distance is the rest compared
(``benchmarks/bench_serve.py``). The rows' texts are one run of bytes, so a block may span rows, and a hit is
given to its row afterwards. A pattern is compared only with the rows that have its longest fixed piece.

Work is linear in the bytes of all texts, whatever the texts and the query are. Comparing the rest of a fragment at
each place takes 30 s for 13 MB of `a` and a fragment of 7,501 characters, so once that took more steps than _STEPS
a byte, the rows that are left are searched by Knuth, Morris and Pratt's algorithm (1977). A pattern is a
non-deterministic automaton whose states are the bits of a few words (Baeza-Yates and Gonnet, 1992).

A ``text`` is uint8, the bytes of all rows; row ``i`` of ``rows`` is ``text[offsets[i]:offsets[i + 1]]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_MARK = 0x3F  # the question mark
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
    borders = None
    while row < rows:
        if not len(needle.wanted):
            first, row = row, min(rows, row + size)
            yield np.arange(first, row, dtype=np.int64)
            size = min(2 * size, _MOST_ROWS)
            continue
        found = np.empty(size, np.int64)
        if borders is None:
            count, row, is_costly = _scan_text(
                text, offsets, rows, row, needle.wanted, needle.masks, needle.first, needle.second, found
            )
            borders = _borders(needle.wanted) if is_costly else None
        else:
            count, row = _scan_text_linearly(text, offsets, rows, row, needle.wanted, needle.masks, borders, found)
        yield found[:count]
        size = min(2 * size, _MOST_ROWS)


def rows_among(text: Array, offsets: Array, candidates: Array, fragment: str) -> Array:
    """The rows, of ``candidates``, that have the fragment, whatever its case."""
    needle = _Needle.of(fragment.encode())
    found = np.empty(len(candidates), np.int64)
    borders = _borders(needle.wanted)
    return found[: _keep_with(text, offsets, candidates, needle.wanted, needle.masks, needle.first, borders, found)]


def fixed_pieces(pattern: str) -> list[str]:
    """The pieces of a pattern between its wildcards: each text that fits has all of them."""
    return re.split(r"[*?]", pattern)


def rows_like(
    text: Array, offsets: Array, rows: int, pattern: str, limit: int, candidates: Array | None = None
) -> Array:
    """The first ``limit`` rows whose whole text fits the pattern, rising; case counts.

    In a pattern ``*`` is any run of characters, ``?`` is one. No rows but ``candidates`` are looked at, if given.
    """
    automaton = _Automaton.of(pattern)
    found, count = np.empty(limit, np.int64), 0
    longest = max(fixed_pieces(pattern), key=len)
    pieces = [candidates] if candidates is not None else rows_with_text(text, offsets, rows, longest)
    for piece in pieces:
        count = _keep_like(text, offsets, piece, automaton.fits, automaton.stays, automaton.size, found, count)
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


@dataclass(frozen=True, slots=True)
class _Automaton:
    """A pattern with wildcards: state ``n``, of ``size + 1``, is "its first ``n`` characters fit", stars not counted.

    Bit ``n`` of a row of words stands for state ``n``. ``fits[byte]`` has the states that the byte leads to the
    next one, ``stays`` those in which any byte may follow, because a star stands there.
    """

    fits: Array  # uint64, 256 x words
    stays: Array  # uint64, words
    size: int

    @classmethod
    @lru_cache(maxsize=8)  # each file of a view is asked for the same pattern
    def of(cls, pattern: str) -> _Automaton:
        characters = pattern.replace("*", "").encode()
        words = len(characters) // 64 + 1
        fits, stays = np.zeros((256, words), np.uint64), np.zeros(words, np.uint64)
        for state, byte in enumerate(characters):
            fits[slice(None) if byte == _MARK else byte, state // 64] |= np.uint64(1 << state % 64)
        state = 0
        for character in pattern:
            if character == "*":
                stays[state // 64] |= np.uint64(1 << state % 64)
            else:
                state += 1
        return cls(fits, stays, len(characters))


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
_FREE_STEPS, _STEPS = np.uint64(1 << 16), np.uint64(2)


@kernel(nogil=True)
def _scan_text(
    text: Array, offsets: Array, rows: int, row: int, needle: Array, masks: Array, first: int, second: int, found: Array
) -> tuple[int, int, bool]:
    """Find rows from ``row`` on until ``found`` is full: (how many, the row to continue with, False).

    The last value is True where comparing took too many steps; then the rows that follow want the linear scan.
    """
    size = len(needle)
    count = 0
    # Indices are unsigned: numba tests signed ones for being negative, byte by byte.
    at = np.uint64(offsets[row])
    end = np.uint64(offsets[rows])
    if end - at < np.uint64(size):
        return 0, rows, False
    start, steps = at, np.uint64(0)
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
            if (text[at + a] & mask_a) != byte_a or (text[at + b] & mask_b) != byte_b:
                at += one
                continue
            k = 0
            while k < size and (text[at + np.uint64(k)] & masks[k]) == needle[k]:
                k += 1
            if k < size:
                at += one
                steps += np.uint64(k)
                if steps > _FREE_STEPS and steps > _STEPS * (at - start):
                    return count, _row_at(offsets, rows, row, at), True
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
                return count, row, False
            if at > last:
                return count, rows, False
            stop = min(stop, at) if at > stop else stop
    return count, rows, False


@kernel(nogil=True)
def _borders(needle: Array) -> Array:
    """For each beginning of the needle, how long a beginning of it is also its end, and shorter than itself."""
    borders = np.zeros(len(needle), np.uint64)
    one, none = np.uint64(1), np.uint64(0)
    k = none
    for at in range(1, len(needle)):
        while k > none and needle[at] != needle[k]:
            k = borders[k - one]
        if needle[at] == needle[k]:
            k += one
        borders[at] = k
    return borders


@kernel(nogil=True)
def _scan_text_linearly(
    text: Array, offsets: Array, rows: int, row: int, needle: Array, masks: Array, borders: Array, found: Array
) -> tuple[int, int]:
    """``_scan_text`` with at most two steps a byte: (how many, the row to continue with).

    Where the next byte does not fit, the longest end of what fitted that the needle also begins with still fits.
    """
    count = 0
    while row < rows and count < len(found):
        if offsets[row + 1] - offsets[row] >= len(needle) and _has(
            text, offsets[row], offsets[row + 1], needle, masks, borders
        ):
            found[count] = row
            count += 1
        row += 1
    return count, row


@kernel(nogil=True)
def _has(text: Array, start: int, end: int, needle: Array, masks: Array, borders: Array) -> bool:
    size, one, none = np.uint64(len(needle)), np.uint64(1), np.uint64(0)
    k = none
    for at in range(np.uint64(start), np.uint64(end)):
        byte = text[at]
        while k > none and (byte & masks[k]) != needle[k]:
            k = borders[k - one]
        if (byte & masks[k]) == needle[k]:
            k += one
        if k == size:
            return True
    return False


_DIRECT_STEPS = 1 << 14


@kernel(nogil=True)
def _keep_with(
    text: Array, offsets: Array, rows: Array, needle: Array, masks: Array, first: int, borders: Array, found: Array
) -> int:
    """Put the rows that have the needle into ``found``: their number.

    An ordinary row is compared at each place where the needle's byte ``first`` stands, in half of the time that the
    linear search takes.
    """
    count, size = 0, len(needle)
    byte, mask = needle[first], masks[first]
    for row in rows:
        start, end = offsets[row], offsets[row + 1]
        if (end - start) * size > _DIRECT_STEPS:
            has = _has(text, start, end, needle, masks, borders)
        else:
            has = False
            for at in range(np.uint64(start), np.uint64(max(start, end - size + 1))):
                if (text[at + np.uint64(first)] & mask) == byte:
                    k = 0
                    while k < size and (text[at + np.uint64(k)] & masks[k]) == needle[k]:
                        k += 1
                    if k == size:
                        has = True
                        break
        if has:
            found[count] = row
            count += 1
    return count


@kernel(nogil=True)
def _keep_like(
    text: Array, offsets: Array, rows: Array, fits: Array, stays: Array, size: int, found: Array, count: int
) -> int:
    """Append the rows that fit to ``found[:count]`` until it is full: the new count."""
    states = np.empty(len(stays), np.uint64)
    for row in rows:
        if count == len(found):
            break
        if offsets[row + 1] - offsets[row] < size:
            continue
        if _is_like(text, offsets[row], offsets[row + 1], fits, stays, size, states):
            found[count] = row
            count += 1
    return count


@kernel(nogil=True)
def _is_like(text: Array, at: int, end: int, fits: Array, stays: Array, size: int, states: Array) -> bool:
    """Whether ``text[at:end]`` fits as a whole: from state 0 its bytes lead to state ``size``, among others."""
    one, top = np.uint64(1), np.uint64(63)
    states[:] = 0
    states[0] = one
    for place in range(np.uint64(at), np.uint64(end)):
        carry = any_state = np.uint64(0)
        for word in range(len(states)):
            led = states[word] & fits[text[place], word]
            states[word] = (led << one) | carry | (states[word] & stays[word])
            carry = led >> top
            any_state |= states[word]
        if any_state == 0:
            return False
    last: bool = (states[size // 64] >> np.uint64(size % 64)) & one == one
    return last


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


def warm() -> None:
    """Load the kernels that ordinary texts and fragments, or small files, do not need."""
    text, borders = as_readonly(np.frombuffer(b"f()", np.uint8)), _borders(_Needle.of(b"()").wanted)
    rows_among(text, as_readonly(np.array([0, 3])), np.zeros(1, np.int64), "f(")
    needle = _Needle.of(b"()")
    _scan_text_linearly(
        text, as_readonly(np.array([0, 3])), 1, 0, needle.wanted, needle.masks, borders, np.empty(1, np.int64)
    )
