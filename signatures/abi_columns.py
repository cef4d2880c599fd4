"""The arguments of many calls of one text as columns: the values of ``attempt``, with numpy.

Calls of one selector and one size mostly have one layout: the same offsets and the same lengths in the same places. Then the
n-th value of all of them is one column of a matrix that has a row for each call, and is checked and read at once.
The layout is that of the first row. Rows with another one are read in the next pass, with the first of them as the model.

Invariants
    A row is read only if its bytes are what an encoder makes of its values, and its values are those of ``attempt``.
    What columns cannot read is left to ``attempt``: other layouts after ``_PASSES``, few rows, fixed-point numbers, more
    than ``_MOST_DYNAMIC`` dynamic values, each of which has a column.

A call of two words takes 0.7 us, alone 3.1 (benchmarks/bench_decode.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.abi_decoder import WORD_BYTES, Layout, Reader, frame

Matrix = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.bool_]
Values = tuple[Any, ...]

_PASSES = 8
_FEW = 8  # rows: so few are as fast one by one
_MOST_DYNAMIC = 64


def exact_rows(calls: Sequence[bytes], layout: Layout) -> list[Values | None]:
    """The values of each call's arguments, all of one size; None where columns do not read them."""
    found: list[Values | None] = [None] * len(calls)
    rows = np.frombuffer(b"".join(calls), np.uint8).reshape(len(calls), len(calls[0]) if calls else 0)
    left = np.arange(len(calls))
    for _ in range(_PASSES):
        if len(left) < _FEW:
            break
        fits, values = _pass(rows[left], layout)
        for number, one in zip(left[fits].tolist(), compress(values, fits), strict=True):
            found[number] = one
        fits[0] = True  # the model is read, or no columns read it
        left = left[~fits]
    return found


def _pass(rows: Matrix, layout: Layout) -> tuple[Rows, list[Values]]:
    """Which rows have the layout of the first one, and the values of all of them."""
    source = _Columns(rows)
    try:
        values: list[Values] = frame(source, 0, layout.members, layout.head)
    except _OtherLayout:
        return np.zeros(len(rows), np.bool_), []
    if source.next != rows.shape[1]:
        return np.zeros(len(rows), np.bool_), []
    return source.fits, values


class _OtherLayout(Exception):
    """The first row is not what an encoder makes."""


class _Columns:
    """The rows as ``abi_decoder.frame`` reads them, which of them fit so far, and where the next dynamic value begins."""

    def __init__(self, rows: Matrix) -> None:
        self.rows, self.next, self._dynamic = rows, 0, 0
        self.fits = np.ones(len(rows), np.bool_)

    def take(self, at: int, size: int, step: int = 0) -> None:
        if at + size > self.rows.shape[1]:
            raise _OtherLayout

    def number(self, at: int) -> int:
        """The number that all rows that fit have here."""
        words = self._words(at)
        self.fits &= (words == words[0]).all(axis=1)
        return int.from_bytes(words[0].tobytes())

    def follow(self, at: int, place: int, head: int) -> int:
        """Rows fit where the offset leads to the next place."""
        self._dynamic += 1
        if self._dynamic > _MOST_DYNAMIC:
            raise _OtherLayout
        word = np.frombuffer((self.next - at).to_bytes(WORD_BYTES), np.uint8)
        self.fits &= (self._words(place) == word).all(axis=1)
        return self.next

    def gather(self, columns: list[list[Any]]) -> list[Values]:
        return list(zip(*columns, strict=True)) if columns else [()] * len(self.rows)

    def elements(self, element: Reader, at: int, count: int) -> list[Values]:
        """The elements of all rows are one column."""
        if not count:
            return [()] * len(self.rows)
        block = _Columns(self.rows[:, at : at + count * element.head].reshape(len(self.rows) * count, -1))
        values = element.read(block, 0)
        self.fits &= block.fits.reshape(-1, count).all(axis=1)
        return [tuple(values[first : first + count]) for first in range(0, len(values), count)]

    # Elementary types.

    def _words(self, at: int) -> Matrix:
        return self.rows[:, at : at + WORD_BYTES]

    def _integers(self, at: int, bits: int, signed: bool) -> list[int]:
        words, unused = self._words(at), WORD_BYTES - bits // 8
        sign = words[:, unused : unused + 1] >> 7 if signed else 0
        self.fits &= (words[:, :unused] == sign * np.uint8(0xFF)).all(axis=1)
        return [int.from_bytes(word, signed=signed) for word in _pieces(words)]

    def unsigned(self, at: int, bits: int) -> list[int]:
        return self._integers(at, bits, signed=False)

    def signed(self, at: int, bits: int) -> list[int]:
        return self._integers(at, bits, signed=True)

    def scaled(self, values: list[int], places: int) -> list[Any]:
        raise _OtherLayout

    def flag(self, at: int) -> list[bool]:
        words = self._words(at)
        self.fits &= ~words[:, :31].any(axis=1) & (words[:, 31] < 2)
        return list(map(bool, words[:, 31].tolist()))

    def address(self, at: int) -> list[str]:
        words = self._words(at)
        self.fits &= ~words[:, :12].any(axis=1)
        digits = words[:, 12:].tobytes().hex()
        return ["0x" + digits[first : first + 40] for first in range(0, len(digits), 40)]

    def left_aligned(self, at: int, size: int) -> list[bytes]:
        words = self._words(at)
        self.fits &= ~words[:, size:].any(axis=1)
        return _pieces(words[:, :size])

    def content(self, at: int) -> list[bytes]:
        self.take(at, WORD_BYTES)
        begin, size = at + WORD_BYTES, self.number(at)
        self.next = begin + -(-size // WORD_BYTES) * WORD_BYTES
        self.take(begin, self.next - begin)
        self.fits &= ~self.rows[:, begin + size : self.next].any(axis=1)
        return _pieces(self.rows[:, begin : begin + size])

    def string(self, at: int) -> list[str]:
        return [self._text(row, value) for row, value in enumerate(self.content(at))]

    def _text(self, row: int, value: bytes) -> str:
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            self.fits[row] = False
            return ""


def _pieces(block: Matrix) -> list[bytes]:
    """The rows of a block as bytes."""
    size, data = block.shape[1], block.tobytes()
    if not size:
        return [b""] * len(block)
    return [data[first : first + size] for first in range(0, len(data), size)]
