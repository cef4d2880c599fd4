"""Rows by a piece of their name, from an index instead of a scan.

For each three characters that stand together in a name, whatever their case, the index has the list of the rows
whose name has them. The parenthesis that ends a name counts as its last character. A fragment's rows are in all
lists of its trigrams; those few rows are then compared with the fragment itself, so the answer is exact.

A list holds the gaps between row numbers as LEB128 varints: seven bits a byte, low ones first, bit 7 set where more
follow. All lists stand in one file, one after the other; ``starts`` has where each begins.

What is known, for the 1.08 M real texts: trigrams of names take 19.7 bytes a row and are built at 2 M rows a second
and core. Trigrams of whole texts would take three times as much, because half of all lists of types are the same.
A suffix array of the names takes 56 bytes a row, and an FM-index finds a match in fifty steps that each miss the cache.

A fragment that may stand inside a list of types, or is shorter than three characters, is not for this index: it has
many matches, and scanning finds them as fast (``search.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_SYMBOLS = 40
_TRIGRAMS = _SYMBOLS**3
_NAME_END = 0x28


def _symbols() -> Array:
    """The number of each byte: letters without case, digits, ``_ $ (``; 0 for what no name has."""
    table = np.zeros(256, np.uint8)
    for number, character in enumerate(b"abcdefghijklmnopqrstuvwxyz0123456789_$(", 1):
        table[character] = number
        table[ord(chr(character).upper())] = number
    return as_readonly(table)


_SYMBOL_OF = _symbols()


@dataclass(frozen=True, slots=True)
class Trigrams:
    """The lists of one data file: that of trigram ``n`` is ``lists[starts[n]:starts[n + 1]]``."""

    starts: Array  # int64, _TRIGRAMS + 1
    lists: Array  # uint8
    rows: int

    def candidates(self, *fragments: str) -> Array | None:
        """The rows that may have all fragments, rising, int64. All that have them are among these.

        None where this index cannot tell.
        """
        known = [numbers for fragment in fragments if (numbers := trigrams_of(fragment)) is not None]
        if not known:
            return None
        wanted = np.unique(np.concatenate(known))
        sizes = self.starts[wanted + 1] - self.starts[wanted]
        order = wanted[np.argsort(sizes)]
        found = np.empty(int(sizes.min()), np.int64)  # a list has at most as many rows as bytes
        return found[: _intersect(self.lists, self.starts, order, self.rows, found)]


@lru_cache(maxsize=16)  # each file of a view is asked for the same fragment
def trigrams_of(fragment: str) -> Array | None:
    """The numbers of the trigrams of the fragment's part that can only stand in a name; None if there is none."""
    name, parenthesis, _ = fragment.lower().partition("(")
    if not parenthesis and _may_be_in_types(name):
        return None
    raw = (name + parenthesis).encode()
    symbols = _SYMBOL_OF[np.frombuffer(raw, np.uint8)].astype(np.int64)
    if len(symbols) < 3 or not symbols.all():
        return None
    return (symbols[:-2] * _SYMBOLS + symbols[1:-1]) * _SYMBOLS + symbols[2:]


_TYPE_WORDS = ("address", "bool", "string", "function", "bytes", "uint", "ufixed")
_TYPE_END = re.compile(r"([a-z]*?)(x?\d+|\d+x\d*)")


def _may_be_in_types(fragment: str) -> bool:
    """Whether a piece of a name, lower-case, is also a piece of a type such as ``uint256`` or ``fixed128x18``."""
    if any(fragment in word for word in _TYPE_WORDS):
        return True
    sized = _TYPE_END.fullmatch(fragment)
    return sized is not None and any(word.endswith(sized[1]) for word in _TYPE_WORDS)


# Building.


def build(
    text: Array, offsets: Array, rows: int, room: Callable[[int], Array] = lambda size: np.empty(size, np.uint8)
) -> Trigrams:
    """Count the bytes of each list, then write them: two passes over the names.

    ``room`` gives an array of so many bytes for the lists.
    """
    sizes = np.zeros(_TRIGRAMS + 1, np.int64)
    _measure(text, offsets, rows, _SYMBOL_OF, sizes[1:])
    starts = np.cumsum(sizes)
    lists = room(int(starts[-1]))
    _fill(text, offsets, rows, _SYMBOL_OF, starts[:-1].copy(), lists)
    return Trigrams(as_readonly(starts), as_readonly(lists), rows)


@kernel(nogil=True)
def _measure(text: Array, offsets: Array, rows: int, symbols: Array, sizes: Array) -> None:
    last = np.full(len(sizes), -1, np.int64)
    for row in range(rows):
        code = np.int64(0)
        for at in range(offsets[row], offsets[row + 1]):
            code = (code * _SYMBOLS + symbols[text[at]]) % _TRIGRAMS
            if at - offsets[row] >= 2 and last[code] != row:
                gap = row - last[code]
                while gap > 0x7F:
                    sizes[code] += 1
                    gap >>= 7
                sizes[code] += 1
                last[code] = row
            if text[at] == _NAME_END:
                break


@kernel(nogil=True)
def _fill(text: Array, offsets: Array, rows: int, symbols: Array, ends: Array, lists: Array) -> None:
    last = np.full(len(ends), -1, np.int64)
    for row in range(rows):
        code = np.int64(0)
        for at in range(offsets[row], offsets[row + 1]):
            code = (code * _SYMBOLS + symbols[text[at]]) % _TRIGRAMS
            if at - offsets[row] >= 2 and last[code] != row:
                gap, end = row - last[code], ends[code]
                while gap > 0x7F:
                    lists[end] = (gap & 0x7F) | 0x80
                    gap >>= 7
                    end += 1
                lists[end] = gap
                ends[code] = end + 1
                last[code] = row
            if text[at] == _NAME_END:
                break


# Searching.

# Reading a byte of a list costs 1 ns, comparing a row that is not in the cache 100. Most rows that are left have the
# fragment, so a list gains less than that: 8 was the best of 4, 8, 16 and 64.
_BYTES_A_ROW = 8


@kernel(nogil=True)
def _intersect(lists: Array, starts: Array, order: Array, rows: int, found: Array) -> int:
    """Fill ``found`` with the rows that are in the lists of ``order``, the shortest first: their number.

    A list that takes longer to read than the rows that are left take to be compared is left out.
    """
    count, row, value, shift = 0, np.int64(-1), np.int64(0), 0
    for at in range(starts[order[0]], starts[order[0] + 1]):
        value |= np.int64(lists[at] & 0x7F) << shift
        shift += 7
        if lists[at] < 0x80:
            row += value
            value, shift = np.int64(0), 0
            found[count] = row
            count += 1
    for n in range(1, len(order)):
        first, last = starts[order[n]], starts[order[n] + 1]
        if last - first > count * _BYTES_A_ROW:
            break
        kept, here, row, value, shift = 0, 0, np.int64(-1), np.int64(0), 0
        for at in range(first, last):
            value |= np.int64(lists[at] & 0x7F) << shift
            shift += 7
            if lists[at] < 0x80:
                row += value
                value, shift = np.int64(0), 0
                while here < count and found[here] < row:
                    here += 1
                if here == count:
                    break
                if found[here] == row:
                    found[kept] = row
                    kept += 1
        count = kept
    return count


def warm() -> None:
    """Compile or load the kernels."""
    text = as_readonly(np.frombuffer(b"warm()", np.uint8))
    build(text, as_readonly(np.array([0, len(text)])), 1).candidates("arm")
