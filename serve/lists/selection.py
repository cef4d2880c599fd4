"""The rows of a view that pass a filter, segment by segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sigdir.serve.lists.query import Filter
from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import Collection
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.view import View


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a segment that pass a filter.

    ``rows`` are their numbers, rising. If it is None, they are ``first`` up to ``last``, exclusive.
    """

    segment: Segment
    first: int
    last: int
    rows: Array | None = None

    @property
    def count(self) -> int:
        return self.last - self.first if self.rows is None else len(self.rows)

    def oldest(self, start: int, stop: int) -> Array:
        """Numbers of the selected rows ``start`` up to ``stop``, exclusive, counted from the oldest."""
        if self.rows is None:
            return np.arange(self.first + start, self.first + stop)
        return self.rows[start:stop]

    def newest(self, start: int, stop: int) -> Array:
        """The same, counted from the newest."""
        if self.rows is None:
            return np.arange(self.last - 1 - start, self.last - 1 - stop, -1)
        return np.ascontiguousarray(self.rows[::-1][start:stop])

    def count_up_to(self, id: int) -> int:
        """How many of the selected rows have this id or a lower one."""
        row = int(self.segment.ids[: self.segment.rows].searchsorted(id, side="right"))
        if self.rows is None:
            return min(max(row, self.first), self.last) - self.first
        return int(self.rows.searchsorted(row))


def selections_of(view: View, collection: Collection, wanted: Filter | None) -> list[Selection]:
    """The rows that pass a filter, oldest segment first. With a filter no selection is empty."""
    if wanted is None:
        return [Selection(segment, 0, segment.rows) for segment in view.segments[collection]]
    if wanted.is_whole_hash(collection.hash_bytes):
        found = view.with_hash(collection, bytes.fromhex(wanted.hex or ""))
        return [Selection(segment, 0, segment.rows, rows) for segment, rows in found]
    selections = [_select(segment, collection, wanted) for segment in view.segments[collection]]
    return [selection for selection in selections if selection is not None and selection.count]


def _select(segment: Segment, collection: Collection, wanted: Filter) -> Selection | None:
    """Apply a filter to one segment; None if no row has its hash."""
    if wanted.never:
        return None
    rows: Array | None = None
    if wanted.hex is not None or wanted.hashes is not None:
        rows = _with_hash(segment, collection.hash_bytes, wanted)
        if not len(rows):
            return None
    first, last = segment.time_range(wanted.first, wanted.last)
    if wanted.text is not None:
        found = segment.with_text(wanted.text)
        rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
    if rows is not None and (first > 0 or last < segment.rows):
        rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]
    return Selection(segment, first, last, rows)


def _with_hash(segment: Segment, width: int, wanted: Filter) -> Array:
    """The rows that pass the conditions on the hash, rising."""
    rows: Array | None = None
    if wanted.hex is not None:
        if len(wanted.hex) == 2 * width:
            rows = segment.with_hash(bytes.fromhex(wanted.hex))
        else:
            rows = segment.with_hex(wanted.hex) if len(wanted.hex) < 2 * width else NO_ROWS
    if wanted.hashes is not None:
        fitting = [segment.with_hash(hash) for hash in wanted.hashes if len(hash) == width]
        found = np.sort(np.concatenate([NO_ROWS, *fitting]))
        rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
    return NO_ROWS if rows is None else rows


def needs_scan(wanted: Filter | None, collection: Collection) -> bool:
    """Whether the text or hash of every row has to be compared."""
    if wanted is None or wanted.never:
        return False
    return wanted.text is not None or (wanted.hex is not None and len(wanted.hex) != 2 * collection.hash_bytes)
