"""Rows by their name, its beginning or a piece of it, from an index instead of a scan.

For each four characters that stand together in a name, whatever their case, the index has the list of the rows whose
name has them. The parenthesis that ends a name counts as its last character. Each list is of one of 65,536 hashes, so
four characters may share it with others. A fragment's rows are in all lists of its 4-grams; those few rows are then
compared with the fragment itself, so the answer is exact.

A list holds the gaps between row numbers as LEB128 varints: seven bits a byte, low ones first, bit 7 set where more
follow. Each four million rows, a block, have their own lists: who wants the first rows reads no further. All lists stand in one
file, block after block; ``starts`` has where each begins.

What is known, for the 1.08 M real texts: 4-grams of names take 22.4 bytes a row, and the shortest list of a name has 117
rows in the median and 1,797 for one in a hundred; of trigrams it is 19.7 bytes, 525 and 7,512 rows. A 4-gram of whole
texts would take three times as much, because half of all lists of types are the same.
A suffix array of the names takes 56 bytes a row, and an FM-index finds a match in fifty steps that each miss the cache.

A fragment that may stand inside a list of types, or is shorter than four characters, is not for this index: it has
many matches, and scanning finds them as fast (``search.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.kernels import kernel

_SYMBOLS = 40
_SIZE = 4
_CODES = _SYMBOLS**_SIZE
_LISTS = 1 << 16
_FACTOR, _SHIFT = 0x9E37_79B1, 13
_NAME_END = 0x28
_FEW_ROWS = 1 << 14  # are scanned in 0.1 ms
_BLOCK_ROWS = 1 << 22


def _symbols() -> Array:
    """The number of each byte: letters without case, digits, ``_ $ (``; 0 for what no name has."""
    table = np.zeros(256, np.uint8)
    for number, character in enumerate(b"abcdefghijklmnopqrstuvwxyz0123456789_$(", 1):
        table[character] = number
        table[ord(chr(character).upper())] = number
    return as_readonly(table)


_SYMBOL_OF = _symbols()


@dataclass(frozen=True, slots=True)
class Grams:
    """The lists of one data file: that of 4-gram ``n`` in block ``b`` is ``lists[starts[i]:starts[i + 1]]``.

    ``i`` is ``b * _LISTS + n``.
    """

    starts: Array  # int64, blocks x _LISTS, and one
    lists: Array  # uint8

    def candidates(self, *fragments: str) -> Iterator[Array] | None:
        """The rows that may have all fragments, rising, int64, block by block. All that have them are among these.

        None where this index cannot tell.
        """
        if len(self.starts) == 1:
            return None
        known = [numbers for fragment in fragments if (numbers := grams_of(fragment)) is not None]
        return self._in_all(np.unique(np.concatenate(known))) if known else None

    def _in_all(self, wanted: Array) -> Iterator[Array]:
        for block in range(len(self.starts) // _LISTS):
            lists = wanted + block * _LISTS
            sizes = self.starts[lists + 1] - self.starts[lists]
            found = np.empty(int(sizes.min()), np.int64)  # a list has at most as many rows as bytes
            order = lists[np.argsort(sizes)]
            yield found[: _intersect(self.lists, self.starts, order, found)] + block * _BLOCK_ROWS


def grams_of(fragment: str) -> Array | None:
    """The numbers of the grams of the fragment's part that can only stand in a name; None if there is none."""
    name, parenthesis, _ = fragment.lower().partition("(")
    if not parenthesis and _may_be_in_types(name):
        return None
    raw = (name + parenthesis).encode()
    if len(raw) < _SIZE:
        return None
    symbols = _SYMBOL_OF[np.frombuffer(raw, np.uint8)].astype(np.int64)
    if not symbols.all():
        return None
    powers = _SYMBOLS ** np.arange(_SIZE - 1, -1, -1)
    codes: Array = np.lib.stride_tricks.sliding_window_view(symbols, _SIZE) @ powers
    return (codes * _FACTOR >> _SHIFT) % _LISTS


_TYPE_WORDS = ("address", "bool", "string", "function", "bytes", "uint", "ufixed")
_TYPE_END = re.compile(r"([a-z]*?)(x?\d+|\d+x\d*)")


def _may_be_in_types(fragment: str) -> bool:
    """Whether a piece of a name, lower-case, is also a piece of a type such as ``uint256`` or ``fixed128x18``."""
    if any(fragment in word for word in _TYPE_WORDS):
        return True
    sized = _TYPE_END.fullmatch(fragment)
    return sized is not None and any(word.endswith(sized[1]) for word in _TYPE_WORDS)


# Building.


def build_grams(
    text: Array, offsets: Array, rows: int, room: Callable[[int], Array] = lambda size: np.empty(size, np.uint8)
) -> Grams:
    """Count the bytes of each list, then write them: two passes over the names. A few rows have no lists.

    ``room`` gives an array of so many bytes for the lists.
    """
    blocks = range(0, rows if rows >= _FEW_ROWS else 0, _BLOCK_ROWS)
    sizes = np.zeros(len(blocks) * _LISTS + 1, np.int64)

    def append(ends: Array, lists: Array) -> None:
        for block, first in enumerate(blocks):
            of_block = ends[block * _LISTS : (block + 1) * _LISTS]
            _append(text, offsets[first:], min(rows - first, _BLOCK_ROWS), _SYMBOL_OF, of_block, lists)

    append(sizes[1:], np.empty(0, np.uint8))
    starts = np.cumsum(sizes)
    lists = room(int(starts[-1]))
    append(starts.copy(), lists)
    return Grams(as_readonly(starts), as_readonly(lists))


@kernel(nogil=True)
def _append(text: Array, offsets: Array, rows: int, symbols: Array, ends: Array, lists: Array) -> None:
    """Append each row to the lists of its grams, at ``ends``. Without room for lists these are only counted."""
    writes = len(lists) > 0
    last = np.full(len(ends), -1, np.int64)
    for row in range(rows):
        code = np.int64(0)
        for at in range(offsets[row], offsets[row + 1]):
            code = (code * _SYMBOLS + symbols[text[at]]) % _CODES
            number = (code * _FACTOR >> _SHIFT) % _LISTS
            if at - offsets[row] >= _SIZE - 1 and last[number] != row:
                gap, end = row - last[number], ends[number]
                while gap > 0x7F:
                    if writes:
                        lists[end] = (gap & 0x7F) | 0x80
                    gap >>= 7
                    end += 1
                if writes:
                    lists[end] = gap
                ends[number] = end + 1
                last[number] = row
            if text[at] == _NAME_END:
                break


# Searching.

# Reading a byte of a list costs 3 ns, comparing a row that is not in the cache 100 and more.
_BYTES_A_ROW = 32


@kernel(nogil=True)
def _intersect(lists: Array, starts: Array, order: Array, found: Array) -> int:
    """Fill ``found`` with the rows that are in the lists of ``order``, the shortest first: their number.

    A list that takes longer to read than the rows that are left take to be compared is left out.
    """
    count = 0
    for n in range(len(order)):
        first, last = starts[order[n]], starts[order[n] + 1]
        if n and last - first > count * _BYTES_A_ROW:
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
                if n and here == count:
                    break
                if n == 0 or found[here] == row:
                    found[kept] = row
                    kept += 1
        count = kept
    return count


def warm() -> None:
    """Compile or load the kernels."""
    rows = _FEW_ROWS
    text = as_readonly(np.frombuffer(b"warm()" * rows, np.uint8))
    list(build_grams(text, as_readonly(np.arange(0, len(text) + 1, 6)), rows).candidates("warm") or ())
