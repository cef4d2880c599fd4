"""Rows by their parameter list: a dictionary of the distinct lists, and for each the rows that have it.

Theory. The 1.08 M real texts have 39,313 distinct lists. So a condition on parameters is asked of the lists, a byte at a
time and whatever it is, and the rows of those that hold are marked. The dictionary of a file stands in the order of first
rows.

A condition is a sequence of items: a type, ``?`` for one parameter of any type, ``*`` for any number of them; and a range
of the number of parameters, and types that stand anywhere, inside of tuples too. The matcher goes through a list item by
item; where it does not fit on, the last ``*`` takes one more. It takes no more steps for a byte of a list than the
condition has bytes.

At rest: 4 bytes a row, and the text of each list with 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array, values
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.kernels import kernel
from sigdir.signatures.search_terms import MANY, Shape

_COMMA, _OPEN, _CLOSE = ord(","), ord("("), ord(")")
_ONE, _ANY = ord("?"), ord("*")

_PIECE_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class ParameterLists:
    """The lists of one data file: list ``n`` is ``text[offsets[n]:offsets[n + 1]]``, its rows ``rows[starts[n]:starts[n + 1]]``."""

    text: Array  # uint8
    offsets: Array  # int64, lists + 1
    starts: Array  # int64, lists + 1
    rows: Array  # uint32

    def with_shape(self, shape: Shape) -> Array:
        """The rows that have a list that fits, rising: int64."""
        held = np.zeros(len(self.rows), np.bool_)
        _mark(self.rows, self.starts, fits(self.text, self.offsets[:-1], self.offsets[1:], shape), held)
        return np.flatnonzero(held)


def fits(text: Array, begins: Array, ends: Array, shape: Shape) -> Array:
    """Which of these lists, ``text[begins[n]:ends[n]]`` without the parentheses, fit: a flag each."""
    held = np.empty(len(begins), np.bool_)
    wanted, bounds = _packed(("*",) if shape.items is None else shape.items)
    types, type_bounds = _packed(shape.types)
    _fits(
        text, as_readonly(begins), as_readonly(ends), wanted, bounds, shape.least, shape.most, types, type_bounds, held
    )
    return held


def _packed(items: tuple[str, ...]) -> tuple[Array, Array]:
    data = np.frombuffer("".join(items).encode() or b"\0", np.uint8)
    return as_readonly(data), as_readonly(np.cumsum([0, *map(len, items)]))


@kernel(nogil=True)
def _fits(
    text: Array, begins: Array, ends: Array, wanted: Array, bounds: Array, least: int, most: int, types: Array,
    type_bounds: Array, held: Array,
) -> None:  # fmt: skip
    for n in range(len(begins)):
        held[n] = (
            _has_items(text, begins[n], ends[n], wanted, bounds)
            and _has_number(text, begins[n], ends[n], least, most)
            and _has_types(text, begins[n], ends[n], types, type_bounds)
        )


@kernel(nogil=True)
def _item_end(text: Array, at: int, end: int) -> int:
    """Where the parameter at ``at`` ends."""
    depth = 0
    while at < end:
        byte = text[at]
        if byte == _COMMA and depth == 0:
            break
        depth += int(byte == _OPEN) - int(byte == _CLOSE)
        at += 1
    return at


@kernel(nogil=True)
def _is_at(text: Array, at: int, stop: int, wanted: Array, first: int, last: int) -> bool:
    """Whether ``text[at:stop]`` is ``wanted[first:last]``."""
    if stop - at != last - first:
        return False
    for k in range(last - first):  # noqa: SIM110 - numba has no generators here
        if text[at + k] != wanted[first + k]:
            return False
    return True


@kernel(nogil=True)
def _has_items(text: Array, at: int, end: int, wanted: Array, bounds: Array) -> bool:
    size = len(bounds) - 1
    item, after_any, taken = 0, -1, at
    if at == end:
        at = end + 1  # no parameter; past the end is where all are read
    while at <= end:
        first = bounds[item] if item < size else 0
        if item < size and wanted[first] == _ANY:
            item += 1
            after_any, taken = item, at
            if item == size:
                return True
            continue
        stop = _item_end(text, at, end)
        if item < size and (wanted[first] == _ONE or _is_at(text, at, stop, wanted, first, bounds[item + 1])):
            item += 1
            at = stop + 1
        elif after_any >= 0:
            taken = _item_end(text, taken, end) + 1
            at, item = taken, after_any
        else:
            return False
    while item < size and wanted[bounds[item]] == _ANY:
        item += 1
    return item == size


@kernel(nogil=True)
def _has_number(text: Array, at: int, end: int, least: int, most: int) -> bool:
    if least == 0 and most == MANY:
        return True
    number = 0
    if at < end:
        at -= 1
        while at < end:
            at = _item_end(text, at + 1, end)
            number += 1
    return least <= number <= most


@kernel(nogil=True)
def _has_types(text: Array, begin: int, end: int, types: Array, bounds: Array) -> bool:
    """Whether each type stands somewhere as a whole; an array of it is another type."""
    for n in range(len(bounds) - 1):
        size = bounds[n + 1] - bounds[n]
        is_there = False
        at = begin
        while at + size <= end and not is_there:
            if at == begin or text[at - 1] == _COMMA or text[at - 1] == _OPEN:
                stop = at + size
                is_whole = stop == end or text[stop] == _COMMA or text[stop] == _CLOSE
                is_there = is_whole and _is_at(text, at, stop, types, bounds[n], bounds[n + 1])
            at += 1
        if not is_there:
            return False
    return True


@kernel(nogil=True)
def _mark(rows: Array, starts: Array, fitting: Array, held: Array) -> None:
    for n in range(len(fitting)):
        if fitting[n]:
            for k in range(starts[n], starts[n + 1]):
                held[rows[k]] = True


# Building.


def bounds_of(text: Array, offsets: Array, rows: Array) -> tuple[Array, Array]:
    """Where the lists of these rows begin and end, without their parentheses: int64."""
    begins, ends = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    _bounds_of(text, offsets, rows, begins, ends)
    return as_readonly(begins), as_readonly(ends)


@kernel(nogil=True)
def _bounds_of(text: Array, offsets: Array, rows: Array, begins: Array, ends: Array) -> None:
    for n in range(len(rows)):
        at = offsets[rows[n]]
        ends[n] = offsets[rows[n] + 1] - 1
        while at < ends[n] and text[at] != _OPEN:
            at += 1
        begins[n] = at + 1 if at < ends[n] else ends[n]


def build_lists(text: Array, offsets: Array, rows: int) -> ParameterLists:
    """The dictionary of the rows' lists: Arrow's, a million rows at a time."""
    pieces = [np.arange(first, min(first + _PIECE_ROWS, rows)) for first in range(0, max(1, rows), _PIECE_ROWS)]
    encoded = pa.chunked_array([_encoded(text, offsets, piece) for piece in pieces]).unify_dictionaries()
    numbers = np.concatenate([values(chunk.indices) for chunk in encoded.chunks])
    lists = encoded.chunk(0).dictionary
    starts = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(lists)))]).astype(np.int64)
    ordered = np.empty(rows, np.uint32)
    _order(numbers, starts[:-1].copy(), ordered)
    _, bounds, data = lists.buffers()
    text, list_offsets = np.frombuffer(data or b"\0", np.uint8), np.frombuffer(bounds, np.int64, len(lists) + 1)
    return ParameterLists(as_readonly(text), as_readonly(list_offsets), as_readonly(starts), as_readonly(ordered))


def _encoded(text: Array, offsets: Array, rows: Array) -> pa.DictionaryArray:
    """The lists of these rows."""
    begins, ends = bounds_of(text, offsets, rows)
    bounds = np.concatenate([[0], np.cumsum(ends - begins)])
    lists = np.empty(bounds[-1], np.uint8)
    _copy(text, begins, bounds, lists)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(lists)]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers).dictionary_encode()


@kernel(nogil=True)
def _order(numbers: Array, ends: Array, ordered: Array) -> None:
    for row in range(len(numbers)):
        ordered[ends[numbers[row]]] = row
        ends[numbers[row]] += 1


@kernel(nogil=True)
def _copy(text: Array, begins: Array, offsets: Array, lists: Array) -> None:
    for n in range(len(begins)):
        for k in range(offsets[n + 1] - offsets[n]):
            lists[offsets[n] + k] = text[begins[n] + k]


def warm() -> None:
    """Compile or load the kernels."""
    text = as_readonly(np.frombuffer(b"warm(uint256)", np.uint8))
    offsets = as_readonly(np.array([0, len(text)]))
    build_lists(text, offsets, 1).with_shape(Shape(("uint256",), types=("uint256",)))
    bounds_of(text, offsets, np.zeros(1, np.int64))
