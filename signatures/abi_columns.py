"""The arguments of many calls of one text as columns: the values of ``exact_values``, with numpy.

Calls of one selector and one size mostly have one layout: the same offsets and the same lengths in the same places. Then the
n-th value of all of them is one column of a matrix that has a row for each call, and is checked and read at once.
The layout is that of the first row. Rows with another one are read in the next pass, with the first of them as the model.

Invariants
    A row is read only if its bytes are what an encoder makes of its values, and its values are those of ``exact_values``.
    What columns cannot read is left to ``exact_values``: other layouts after ``_PASSES``, few rows, fixed-point numbers.

A call of two words takes 0.7 us, ``exact_values`` 3.1 (benchmarks/bench_decode.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.abi_decoder import WORD_BYTES
from sigdir.signatures.argument_shapes import is_dynamic
from sigdir.signatures.types import Type

Matrix = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.bool_]
Values = tuple[Any, ...]

_PASSES = 8
_FEW = 8  # rows: so few are as fast one by one
_MOST_ELEMENTS = 64  # of dynamic elements, each of which has a column


def exact_rows(calls: Sequence[bytes], types: tuple[Type, ...]) -> list[Values | None]:
    """The values of each call's arguments, all of one size; None where columns do not read them."""
    found: list[Values | None] = [None] * len(calls)
    if any("fixed" in type.text for type in types):
        return found
    rows = np.frombuffer(b"".join(calls), np.uint8).reshape(len(calls), len(calls[0]) if calls else 0)
    left = np.arange(len(calls))
    for _ in range(_PASSES):
        if len(left) < _FEW:
            break
        fits, values = _pass(rows[left], types)
        for number, one in zip(left[fits].tolist(), compress(values, fits), strict=True):
            found[number] = one
        fits[0] = True  # the model is read, or no columns read it
        left = left[~fits]
    return found


def _pass(rows: Matrix, types: tuple[Type, ...]) -> tuple[Rows, list[Values]]:
    """Which rows have the layout of the first one, and the values of all of them."""
    source = _Source(rows)
    try:
        values = _frame(source, 0, types)
    except _OtherLayout:
        return np.zeros(len(rows), np.bool_), []
    if source.next != rows.shape[1]:
        return np.zeros(len(rows), np.bool_), []
    return source.fits, values


class _OtherLayout(Exception):
    """The first row is not what an encoder makes."""


class _Source:
    """The rows, which of them fit so far, and where the content of the next dynamic value begins."""

    def __init__(self, rows: Matrix) -> None:
        self.rows, self.next = rows, 0
        self.fits = np.ones(len(rows), np.bool_)

    def take(self, at: int, size: int) -> Matrix:
        """These bytes of each row; what follows them is next."""
        if at + size > self.rows.shape[1]:
            raise _OtherLayout
        self.next = at + size
        return self.rows[:, at : at + size]

    def number(self, at: int) -> int:
        """The number that all rows that fit have here."""
        words = self.take(at, WORD_BYTES)
        self.fits &= (words == words[0]).all(axis=1)
        return int.from_bytes(words[0].tobytes())

    def expect_offset(self, at: int, offset: int) -> None:
        """Rows fit where this offset stands."""
        word = np.frombuffer(offset.to_bytes(WORD_BYTES), np.uint8)
        self.fits &= (self.rows[:, at : at + WORD_BYTES] == word).all(axis=1)


def _head(type: Type) -> int:
    """The bytes that a type has in its frame."""
    if is_dynamic(type):
        return WORD_BYTES
    if type.members is not None:
        return sum(map(_head, type.members))
    return type.length * _head(type.element) if type.element is not None and type.length is not None else WORD_BYTES


def _frame(source: _Source, at: int, types: Sequence[Type]) -> list[Values]:
    """The values of tuples whose offsets count from ``at``."""
    columns, place = [], at
    source.take(at, sum(map(_head, types)))
    for type in types:
        head = _head(type)
        if is_dynamic(type):
            source.expect_offset(place, source.next - at)
            columns.append(_content(source, type))
        else:
            columns.append(_static(source, source.rows[:, place : place + head], type))
        place += head
    return _together(columns, len(source.rows))


def _together(columns: list[list[Any]], rows: int) -> list[Values]:
    return list(zip(*columns, strict=True)) if columns else [()] * rows


def _content(source: _Source, type: Type) -> list[Any]:
    """The dynamic values that begin at ``source.next``."""
    at = source.next
    if type.members is not None:
        return _frame(source, at, type.members)
    if type.element is not None:
        if type.length is not None:
            return _elements(source, at, type.element, type.length)
        count = source.number(at)
        return _elements(source, at + WORD_BYTES, type.element, count)
    size = source.number(at)
    content = source.take(at + WORD_BYTES, -(-size // WORD_BYTES) * WORD_BYTES)
    source.fits &= ~content[:, size:].any(axis=1)
    values = _pieces(content[:, :size])
    return values if type.text == "bytes" else [_string(source, row, value) for row, value in enumerate(values)]


def _string(source: _Source, row: int, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        source.fits[row] = False
        return ""


def _elements(source: _Source, at: int, element: Type, count: int) -> list[Values]:
    """The elements of arrays whose first heads stand at ``at``."""
    head, rows = _head(element), len(source.rows)
    heads = source.take(at, head * count)
    if not count:
        return [()] * rows
    if not is_dynamic(element):
        return _static_elements(source, heads, element, count)
    if count > _MOST_ELEMENTS:
        raise _OtherLayout
    columns = []
    for number in range(count):
        source.expect_offset(at + number * head, source.next - at)
        columns.append(_content(source, element))
    return _together(columns, rows)


def _static_elements(source: _Source, block: Matrix, element: Type, count: int) -> list[Values]:
    """The arrays of a block of heads: the elements of all rows are one column."""
    rows = _Source(block.reshape(len(block) * count, -1))
    values = _static(rows, rows.rows, element)
    source.fits &= rows.fits.reshape(-1, count).all(axis=1)
    return [tuple(values[first : first + count]) for first in range(0, len(values), count)]


def _static(source: _Source, block: Matrix, type: Type) -> list[Any]:
    """The values of a static type, whose heads are the rows of a block."""
    if type.members is not None:
        columns, place = [], 0
        for member in type.members:
            head = _head(member)
            columns.append(_static(source, block[:, place : place + head], member))
            place += head
        return _together(columns, len(block))
    if type.element is not None and type.length is not None:
        return _static_elements(source, block, type.element, type.length)
    return _words(source, block, type.text)


def _words(source: _Source, words: Matrix, text: str) -> list[Any]:
    """The values of an elementary type; bits that it does not use have to be as the encoder leaves them."""
    if text == "bool":
        source.fits &= ~words[:, :31].any(axis=1) & (words[:, 31] <= 1)
        return list(map(bool, words[:, 31].tolist()))
    if text == "address":
        source.fits &= ~words[:, :12].any(axis=1)
        digits = words[:, 12:].tobytes().hex()
        return ["0x" + digits[first : first + 40] for first in range(0, len(digits), 40)]
    if text.startswith(("bytes", "function")):
        size = 24 if text == "function" else int(text[5:])
        source.fits &= ~words[:, size:].any(axis=1)
        return _pieces(words[:, :size])
    signed, unused = text.startswith("int"), WORD_BYTES - int(text.lstrip("uint")) // 8
    sign = words[:, unused : unused + 1] >> 7 if signed else 0
    source.fits &= (words[:, :unused] == sign * np.uint8(0xFF)).all(axis=1)
    return [int.from_bytes(word, signed=signed) for word in _pieces(words)]


def _pieces(block: Matrix) -> list[bytes]:
    """The rows of a block as bytes."""
    size, data = block.shape[1], block.tobytes()
    if not size:
        return [b""] * len(block)
    return [data[first : first + size] for first in range(0, len(data), size)]
