"""A hash's rows in the order of their rank, from the mapped columns.

The order of several texts may need the names of all texts, which takes 60 ms for a million rows once, and 40 us later.
So it is kept as long as its view is used.
"""

from __future__ import annotations

import threading
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from sigdir.signatures import rank
from sigdir.signatures.collections import Collection
from sigdir.signatures.rank import Summary, as_standard
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

LISTED_KEY = rank.key_of(Summary(0, ""))
"""The key of a text that one list names, which is all that is known of a staged one."""


class RankedRow(NamedTuple):
    """A row of a hash. ``sigdir.signatures.rank`` reads its ``key``: ``witness_of``, ``is_verified``, ``is_mined``, ..."""

    segment: Segment
    row: int
    key: int


def ranked_rows(view: View, collection: Collection, digest: bytes, names: Names) -> list[RankedRow]:
    """The rows with exactly this hash, the best first. ``names`` are the server's."""
    found = view.with_hash(collection, digest)
    if _is_one_row(found):  # all but one in ten thousand; a loop would take twice as long
        segment, row = found[0][0], int(found[0][1][0])
        return [RankedRow(segment, row, row_key(segment, row, digest))]
    if not found:
        return []
    kept = _kept_orders.of(view).get((collection, digest))
    if kept is not None:
        return list(kept)
    rows = [RankedRow(segment, row, row_key(segment, row, digest)) for segment, rows in found for row in rows.tolist()]
    ordered = _ordered(view, collection, digest, rows, names)
    _kept_orders.keep(view, collection, digest, ordered)
    return ordered


def is_order_known(view: View, collection: Collection, digest: bytes) -> bool:
    """Whether ``ranked_rows`` takes microseconds: the hash has at most one text, or its order is kept."""
    found = view.with_hash(collection, digest)
    return not found or _is_one_row(found) or (collection, digest) in _kept_orders.of(view)


def _is_one_row(found: Found) -> bool:
    return len(found) == 1 and len(found[0][1]) == 1


Found = list[tuple[Segment, npt.NDArray[np.int64]]]
Order = tuple[RankedRow, ...]


class _KeptOrders:
    """The orders of hashes with several texts, of each view that is in use. Safe for threads."""

    def __init__(self) -> None:
        self._orders: WeakKeyDictionary[View, dict[tuple[Collection, bytes], Order]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, view: View) -> dict[tuple[Collection, bytes], Order]:
        with self._lock:
            return self._orders.setdefault(view, {})

    def keep(self, view: View, collection: Collection, digest: bytes, order: list[RankedRow]) -> None:
        if sum(len(row.segment.text_at(row.row)) + _ROW_CHARACTERS for row in order) <= _KEPT_CHARACTERS:
            orders = self.of(view)
            if len(orders) >= _KEPT_HASHES:
                orders.clear()
            orders[collection, digest] = tuple(order)


_KEPT_HASHES, _KEPT_CHARACTERS, _ROW_CHARACTERS = 4096, 4096, 100
_kept_orders = _KeptOrders()


def row_key(segment: Segment, row: int, digest: bytes) -> int:
    """The key of a row with this hash, without regard to the other texts of the hash."""
    if segment.ranks is not None:
        return int(segment.ranks[row])
    is_standard = digest in canonical() and canonical()[digest] == segment.text_at(row)
    return as_standard(LISTED_KEY) if is_standard else LISTED_KEY


def _ordered(view: View, collection: Collection, digest: bytes, rows: list[RankedRow], names: Names) -> list[RankedRow]:
    texts = [_summary(row) for row in rows]

    def is_shared(name: str) -> bool:
        return len(names.rows(view, collection, name, 2)) > 1

    marked = [
        row._replace(key=rank.as_mined(row.key)) if rank.looks_mined(digest, text, texts, is_shared) else row
        for row, text in zip(rows, texts, strict=True)
    ]
    marked.sort(key=lambda row: rank.rank_of(row.key), reverse=True)  # stable: equal ones stay oldest first
    return marked


def _summary(row: RankedRow) -> Summary:
    """What ranks, of a row."""
    segment, number, key = row
    return Summary(
        int(segment.ids[number]), segment.text_at(number), rank.witness_of(key), rank.kinds_of(key),
        rank.sources_of(key), rank.contracts_of(key), verified=rank.is_verified(key),
    )  # fmt: skip
