"""Rows by a piece of their text, a pattern of it, or hex digits of their hash, compared byte by byte.

Theory. A fragment is found by its two rarest bytes. One loop compares both with a whole block of the text, which
LLVM turns into vector compares; only where both stand at their distance is the rest compared
(``benchmarks/bench_search.py``). The rows' texts are one run of bytes, so a block may span rows, and a hit is
given to its row afterwards. A pattern is compared only with the rows that have its longest fixed piece.

A fragment or pattern has at most ``MAX_SEARCHED`` characters here, and neither comparison takes more steps than that for a byte
of the texts, whatever these are.

A ``text`` is uint8, the bytes of all rows; row ``i`` of ``rows`` is ``text[offsets[i]:offsets[i + 1]]``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import HEX_PAIRS, as_readonly
from sigdir.signatures.kernels import kernel
from sigdir.signatures.rank import INSIDE, OF_STANDARD, PREFIX, WHOLE_NAME
from sigdir.warehouse.evidence.summaries import BELOW_WITNESS

_PIECE_ROWS = 1 << 16
_COMPARED_BYTES = 64
_ANY_RUN, _ANY_ONE = ord("*"), ord("?")  # no text has them


def rows_with_hex(hash: Array, rows: int, digits: str) -> Array:
    """The rows whose hash, uint8 of shape (rows, width), has these lower-case hex digits anywhere, rising."""
    found = [np.empty(0, np.int64)]
    for first in range(0, rows, _PIECE_ROWS):
        piece = hash[first : min(first + _PIECE_ROWS, rows)]
        text = as_readonly(HEX_PAIRS[piece].view(np.uint8).reshape(-1))
        offsets = as_readonly(np.arange(len(piece) + 1) * (2 * piece.shape[1]))
        found += [first + some for some in rows_with_text(text, offsets, len(piece), digits)]
    return np.concatenate(found)


def rows_with_text(text: Array, offsets: Array, rows: int, fragment: str) -> Iterator[Array]:
    """The rows that have the fragment, whatever its case, rising, piece by piece."""
    if not fragment:
        yield from (np.arange(row, min(rows, row + _PIECE_ROWS)) for row in range(0, rows, _PIECE_ROWS))
        return
    wanted = np.frombuffer(fragment.encode(), np.uint8)
    masks = _masks(wanted)
    first, second = _rarest(fragment.encode())
    row = 0
    while row < rows:
        found = np.empty(_PIECE_ROWS, np.int64)
        count, row = _scan_text(text, offsets, rows, row, wanted & masks, masks, first, second, found)
        yield found[:count]


def has_wildcards(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern


def fixed_pieces(pattern: str) -> list[str]:
    """The pieces of a pattern between its wildcards: each text that fits has all of them."""
    return re.split(r"[*?]", pattern)


def rows_like(
    text: Array, offsets: Array, pieces: Iterable[Array], pattern: str, limit: int, any_case: bool = False
) -> Array:
    """The first ``limit`` rows of ``pieces``, which are rising rows, whose whole text fits the pattern."""
    found, left = [np.empty(0, np.int64)], limit
    for rows in pieces:
        found.append(rows[are_like(text, offsets[rows], offsets[rows + 1], pattern, any_case)][:left])
        left -= len(found[-1])
        if left == 0:
            break
    return np.concatenate(found)


def are_like(text: Array, begins: Array, ends: Array, pattern: str, any_case: bool) -> Array:
    """Which pieces of the texts, ``text[begins[n]:ends[n]]``, fit a pattern as a whole: a flag each.

    In a pattern ``*`` is any run of characters, ``?`` is one. Case counts, but for ``any_case``.
    """
    wanted = np.frombuffer(pattern.encode(), np.uint8)
    masks = _masks(wanted) if any_case else np.full(len(wanted), 0xFF, np.uint8)
    held = np.empty(len(begins), np.bool_)
    _are_like(text, as_readonly(begins), as_readonly(ends), wanted & masks, masks, held)
    return held


# The bytes of canonical texts from the rarest to the most common; a byte that is not listed is rarer still.
_COMMON = b"etnarsiodu2s56(),lcgbmpfhykAvTBPSwCFDRIOMEVN[]LUH13K_84GW0jxqQ79zJYXZ$"[::-1]


def _masks(wanted: Array) -> Array:
    """Masks by which ``text & masks == wanted & masks`` is equality without regard to case."""
    letters = ((wanted & 0xDF) >= ord("A")) & ((wanted & 0xDF) <= ord("Z"))
    return np.where(letters, 0xDF, 0xFF).astype(np.uint8)


def _rarest(fragment: bytes) -> tuple[int, int]:
    """The places of the two rarest bytes of a fragment, the same place where it has only one."""
    order = sorted(range(len(fragment)), key=lambda at: _COMMON.find(fragment[at : at + 1].lower()))
    return order[0], order[min(1, len(order) - 1)]


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
            if (text[at + a] & mask_a) == byte_a and (text[at + b] & mask_b) == byte_b:
                while k < size and (text[at + np.uint64(k)] & masks[k]) == needle[k]:
                    k += 1
            if k < size:
                at += one
                continue
            while np.uint64(offsets[row + 1]) <= at:
                row += 1
            if at + np.uint64(size) > np.uint64(offsets[row + 1]):
                at += one  # it reaches into the next row
                continue
            found[count] = row
            count += 1
            row += 1
            at = np.uint64(offsets[row])
            if count == len(found) or row == rows:
                return count, row
    return count, rows


@kernel(nogil=True)
def _are_like(text: Array, begins: Array, ends: Array, pattern: Array, masks: Array, held: Array) -> None:
    for n in range(len(begins)):
        held[n] = _is_like(text, np.uint64(begins[n]), np.uint64(ends[n]), pattern, masks)


@kernel(nogil=True)
def _is_like(text: Array, at: Any, end: Any, pattern: Array, masks: Array) -> bool:
    """Whether ``text[at:end]`` fits as a whole. Where it does not fit on, the last ``*`` takes one character more."""
    one, size = np.uint64(1), np.uint64(len(pattern))
    place, after_star, taken = np.uint64(0), np.uint64(0), at
    while at < end:
        if place < size and pattern[place] == _ANY_RUN:
            place += one
            after_star, taken = place, at
            if place == size:
                return True
        elif place < size and (pattern[place] == _ANY_ONE or (text[at] & masks[place]) == pattern[place]):
            place += one
            at += one
        elif after_star:
            taken += one
            at, place = taken, after_star
        else:
            return False
    while place < size and pattern[place] == _ANY_RUN:
        place += one
    is_through: bool = place == size
    return is_through


def match_weights(text: Array, offsets: Array, rows: Array, fragment: str, evidence: Array, standards: Array) -> Array:
    """What orders rows that match a fragment, uint64, the best lowest: how they match, then their evidence.

    ``evidence`` is what ``weights`` of ``evidence/summaries.py`` gives, and ``standards`` are the places among the rows of
    standards' texts. Their witness does not count: a standard is certain, whoever names it.
    """
    match = _match_kinds(text, offsets, rows, fragment)
    known = standards[match[standards] != INSIDE]
    match[known] -= OF_STANDARD
    evidence[known] &= BELOW_WITNESS
    found: Array = match.astype(np.uint64) << np.uint64(32) | evidence
    return found


def _match_kinds(text: Array, offsets: Array, rows: Array, fragment: str) -> Array:
    """How each row matches a fragment, uint8; whether it is a standard's is not asked."""
    if not fragment:
        return np.full(len(rows), PREFIX, np.uint8)
    starts = offsets[rows]
    lengths = offsets[rows + 1] - starts
    match = np.full(len(rows), INSIDE, np.uint8)
    prefix = np.frombuffer(fragment.encode()[:_COMPARED_BYTES].lower(), np.uint8)
    like = np.flatnonzero(lengths >= len(prefix))
    for at, byte in enumerate(prefix.tolist()):  # the first few bytes rule out almost every row
        here = text[starts[like] + at]
        is_letter = 97 <= byte <= 122
        like = like[(here | 0x20 if is_letter else here) == byte]
    match[like] = PREFIX
    after = np.minimum(starts[like] + len(fragment), len(text) - 1)
    match[like[(text[after] == 0x28) | (lengths[like] == len(fragment))]] = WHOLE_NAME
    return match
