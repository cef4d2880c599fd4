"""Lookups of one hash in all files of a view, compared with a scan of every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def by_scan(segments: list[Segment], digest: bytes) -> list[tuple[int, list[int]]]:
    """The same, by a scan of every row."""
    expected = []
    for segment in segments:
        rows = [row for row in range(segment.rows) if segment.hash[row].tobytes() == digest]
        if rows:
            expected.append((id(segment), rows))
    return expected


prefixes = st.one_of(
    st.integers(0, _LAST),
    st.sampled_from([0, 1, 2**31, _LAST - 1, _LAST]),
    st.integers(0, 20),  # mined prefixes, all at one end
    st.integers(0xA9059C00, 0xA9059CFF),
)


@given(st.lists(st.lists(prefixes, max_size=60), max_size=6), st.lists(prefixes, max_size=8), st.sampled_from([4, 32]))
def test_a_hash_is_found_in_every_file(held: list[list[int]], others: list[int], width: int) -> None:
    """In any number of files, also none and empty ones, a lookup finds all rows with the hash and no others."""
    segments = [segment_of(rows, width) for rows in held]
    view = view_of(segments)
    digests = {segment.hash[row].tobytes() for segment in segments for row in range(segment.rows)}
    digests |= {prefix.to_bytes(4, "big") + bytes(width - 4) for prefix in others}
    for digest in digests:
        assert found(view, digest) == by_scan(segments, digest)


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
