"""Rows by the name in their text: `transfer` of `transfer(address,uint256)`.

The order of a data file's names is one uint64 a row, sorted: a hash of the name above, the row number below. It is
made in memory at the first request, 60 ms for a million rows, and kept as long as the file's columns are.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.kernels import kernel
from sigdir.warehouse.index.hash_order import PREFIX_SHIFT, ROW_MASK, prefix_range

Array = npt.NDArray[Any]


class NameOrder:
    """The order of a data file's names, made when it is first asked for. Safe for threads."""

    def __init__(self) -> None:
        self._order: Array | None = None
        self._lock = threading.Lock()

    def rows(self, text: Array, offsets: Array, rows: int, name: str, limit: int) -> list[int]:
        """The first ``limit`` rows, rising, whose text is this name and a parameter list. The columns are the file's."""
        with self._lock:
            if self._order is None:
                self._order = name_order(text, offsets, rows)
        wanted, found = np.frombuffer(f"{name}(".encode(), np.uint8), np.empty(limit, np.int64)
        numbers: list[int] = found[: _find(text, offsets, self._order, wanted, found)].tolist()
        return numbers


def name_order(text: Array, offsets: Array, rows: int) -> Array:
    """The rows by a hash of their name: uint64, hash << 32 | row, sorted."""
    order = _keys(text, offsets, rows)
    order.sort()
    return order


@kernel(nogil=True)
def _hash_of_name(text: Array, at: int, end: int) -> Any:
    """FNV-1a of the bytes in front of the first parenthesis, 32 bits."""
    value = np.uint64(0x811C9DC5)
    while at < end and text[at] != 0x28:
        value = ((value ^ np.uint64(text[at])) * np.uint64(0x01000193)) & ROW_MASK
        at += 1
    return value


@kernel(nogil=True)
def _keys(text: Array, offsets: Array, rows: int) -> Array:
    out = np.empty(rows, np.uint64)
    for row in range(rows):
        out[row] = (_hash_of_name(text, offsets[row], offsets[row + 1]) << PREFIX_SHIFT) | np.uint64(row)
    return out


# Holds the GIL, as ``prefix_range`` does: this takes a microsecond.
@kernel()
def _find(text: Array, offsets: Array, order: Array, wanted: Array, rows: Array) -> int:
    """Fill ``rows`` with those whose text begins with ``wanted``, a name and its parenthesis; returns their number."""
    low, last = prefix_range(order, _hash_of_name(wanted, 0, len(wanted)))
    count = 0
    while low < last and count < len(rows):
        row = np.int64(order[low] & ROW_MASK)
        at, end = offsets[row], offsets[row + 1]
        k = 0
        while k < len(wanted) and at + k < end and text[at + k] == wanted[k]:
            k += 1
        if k == len(wanted):  # hashes may collide
            rows[count] = row
            count += 1
        low += 1
    return count


def warm(text: Array, offsets: Array) -> None:
    """Load the kernels before any request waits for them. The columns are as a segment has them."""
    NameOrder().rows(text, offsets, 1, "warm", 1)
