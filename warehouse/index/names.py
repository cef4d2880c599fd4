"""Rows by the name in their text: `transfer` of `transfer(address,uint256)`.

The order of a segment's names is one uint64 a row, sorted: a hash of the name above, the row number below. It is
made in memory at the first request, 60 ms for a million rows, and kept as long as the segment's file is in the view.
A segment of few rows, and the staged one, is scanned instead.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.kernels import kernel
from sigdir.warehouse.index.hash_order import PREFIX_SHIFT, ROW_MASK, prefix_range
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

Array = npt.NDArray[Any]

_FEW_ROWS = 1 << 14


class Names:
    """Finds the rows of a name in a view. Safe for use by several threads."""

    def __init__(self) -> None:
        self._orders: dict[Path, Array] = {}
        self._lock = threading.Lock()

    def rows(self, view: View, collection: Collection, name: str, limit: int) -> list[tuple[Segment, int]]:
        """The first ``limit`` rows, oldest first, whose text is this name and a parameter list."""
        files = view.snapshot.files[collection]
        found: list[tuple[Segment, int]] = []
        for number, segment in enumerate(view.segments[collection]):
            if segment.rows < _FEW_ROWS or segment.is_staged:
                rows = segment.like(f"{name}(*", limit - len(found)).tolist()
            else:
                order = self._order(view, files[number].path, segment)
                wanted, rows = np.frombuffer(f"{name}(".encode(), np.uint8), np.empty(limit - len(found), np.int64)
                rows = rows[: _find(segment.text, segment.offsets, order, wanted, rows)].tolist()
            found += [(segment, row) for row in rows]
            if len(found) == limit:
                break
        return found

    def _order(self, view: View, file: Path, segment: Segment) -> Array:
        order = self._orders.get(file)
        if order is None:
            with self._lock:
                order = self._orders.get(file)
                if order is None:
                    order = name_order(segment)
                    here = {file.path for files in map(view.snapshot.files.get, COLLECTIONS) for file in files or ()}
                    self._orders = {path: kept for path, kept in self._orders.items() if path in here} | {file: order}
        return order


def name_order(segment: Segment) -> Array:
    """The rows by a hash of their name: uint64, hash << 32 | row, sorted."""
    order = _keys(segment.text, segment.offsets, segment.rows)
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


def warm() -> None:
    """Load the kernels before any request waits for them."""
    text, offsets, wanted = np.frombuffer(b"a()", np.uint8), np.array([0, 3]), np.frombuffer(b"a(", np.uint8)
    numbers = np.zeros(1, np.int64)
    segment = Segment.of(1, numbers, numbers, offsets, text, np.zeros((1, 4), np.uint8), {})
    _find(segment.text, segment.offsets, name_order(segment), wanted, np.empty(1, np.int64))
