"""Lookups of one hash in all files of a view, compared with a scan of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View
from tests.serve.support import view_of

Array = npt.NDArray[Any]

_LAST = 2**32 - 1


def segment_of(prefixes: list[int], width: int = 4) -> Segment:
    """A segment with these prefixes, row by row; in 32 bytes the last one is the row number."""
    rows = len(prefixes)
    hash = np.zeros((rows, width), np.uint8)
    hash[:, :4] = np.array(prefixes, ">u4").reshape(-1, 1).view(np.uint8)
    if width > 4:
        hash[:, -1] = np.arange(rows) % 256
    nothing = np.zeros(rows, np.int64)
    return Segment.of(
        rows, nothing, nothing, np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8), hash, sorted_hashes(hash)
    )


def found(view: View, digest: bytes) -> list[tuple[int, list[int]]]:
    return [(id(segment), rows.tolist()) for segment, rows in view.with_hash(SIGNATURES, digest)]


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda n: n * 42_949, id="even"),
        pytest.param(lambda n: n, id="all at the beginning"),
        pytest.param(lambda n: _LAST - n, id="all at the end"),
        pytest.param(lambda _: 7, id="all alike"),
        pytest.param(lambda n: 2**31 + n % 3, id="three in the middle"),
        pytest.param(lambda n: 1 << n % 32, id="doubling"),
    ],
)
def test_uneven_prefixes(shape: Any) -> None:
    """Lookups among 100,000 unevenly spread prefixes find the rows of the sorted column."""
    order = np.sort(np.array([shape(n) for n in range(100_000)], np.uint32))
    view = view_of([segment_of(order.tolist()), segment_of([5])])
    for prefix in {0, 1, 5, 7, 2**31, 2**31 + 1, _LAST, *order[::9973].tolist()}:
        first, last = (int(np.searchsorted(order, prefix, side)) for side in ("left", "right"))
        expected = [list(range(first, last))] if first < last else []
        rows = [rows for _, rows in found(view, int(prefix).to_bytes(4, "big"))]
        assert rows == ([*expected, [0]] if prefix == 5 else expected)
