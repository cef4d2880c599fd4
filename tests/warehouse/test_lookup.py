"""Lookups of one hash in all files of a view, compared with a scan of every row."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.segment import Segment
from tests.serve.support import view_of

_LAST = 2**32 - 1


def segment_of(prefixes: list[int]) -> Segment:
    """A segment with these prefixes, row by row."""
    rows = len(prefixes)
    hash = np.array(prefixes, ">u4").view(np.uint8).reshape(-1, 4)
    nothing = np.zeros(rows, np.int64)
    return Segment.of(
        rows, nothing, nothing, np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8), hash, sorted_hashes(hash)
    )


SHAPES: dict[str, Callable[[int], int]] = {
    "even": lambda n: n * 42_949,
    "all at the beginning": lambda n: n,
    "all at the end": lambda n: _LAST - n,
    "all alike": lambda _: 7,
    "three in the middle": lambda n: 2**31 + n % 3,
    "doubling": lambda n: 1 << n % 32,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_uneven_prefixes(shape: str) -> None:
    """Lookups among 100,000 unevenly spread prefixes find the rows of the sorted column."""
    order = np.sort(np.array([SHAPES[shape](n) for n in range(100_000)], np.uint32))
    view = view_of([segment_of(order.tolist()), segment_of([5])])
    for prefix in {0, 1, 5, 7, 2**31, 2**31 + 1, _LAST, *order[::9973].tolist()}:
        first, last = (int(np.searchsorted(order, prefix, side)) for side in ("left", "right"))
        expected = [list(range(first, last))] if first < last else []
        found = view.with_hash(SIGNATURES, int(prefix).to_bytes(4, "big"))
        assert [rows.tolist() for _, rows in found] == ([*expected, [0]] if prefix == 5 else expected)
