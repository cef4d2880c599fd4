"""Consecutive rows of a collection as columns in memory, and what finds rows in them.

Invariants
    Rows stand oldest first: ids and times both rise with the row, so both are found by binary search.
    A segment never changes. Its arrays are read-only, so a kernel is compiled for one kind of array.

The order of a data file's hashes: which rows have a hash that begins with four given bytes.

Invariants
    An order is one uint64 a row, sorted: the first four bytes of the row's hash above, the row number below.
    Entries with the same four bytes therefore stand side by side, their rows rising.

Theory. Binary search finds the first entry of a prefix; its entries are read from there until the prefix changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.kernels import kernel
from sigdir.signatures.rank import Summary
from sigdir.signatures.search_terms import Shape
from sigdir.warehouse.evidence.summaries import LISTED, SightingCounts, Summaries
from sigdir.warehouse.index.grams import Grams
from sigdir.warehouse.index.parameter_lists import ParameterLists, bounds_of, fits
from sigdir.warehouse.index.search import (
    are_like,
    fixed_pieces,
    has_wildcards,
    rows_like,
    rows_with_hex,
    rows_with_text,
)
from sigdir.warehouse.table.fields import MAX_SEARCHED, moment

PREFIX_SHIFT = np.uint64(32)
ROW_MASK = np.uint64(0xFFFF_FFFF)

_SORTED_ROWS = 1 << 17


def sorted_hashes(hash: Array) -> Array:
    """The order of these hashes, uint8 of shape (rows, width): uint64 of rows."""
    order = np.empty(len(hash), np.uint64)
    sort_hashes(hash, order)
    return order


def sort_hashes(hash: Array, order: Array) -> None:
    """Fill ``order``, which may be a mapped file, with the order of these hashes.

    One sort of plain numbers takes 0.25 s for 10 M rows, an argsort of the prefixes 1.2 s.
    """
    for at in range(0, len(hash), _SORTED_ROWS):
        prefix = np.ascontiguousarray(hash[at : at + _SORTED_ROWS, :4]).view(">u4").reshape(-1)
        piece = order[at : at + len(prefix)]
        np.left_shift(prefix, PREFIX_SHIFT, out=piece, dtype=np.uint64)
        piece |= np.arange(at, at + len(prefix), dtype=np.uint64)
    order.sort()


# Holds the GIL: the search takes a microsecond, and to release the GIL and reacquire it on a busy server, once a
# file, would be half of a lookup's time. numpy's searchsorted releases it.
@kernel()
def prefix_range(order: Array, prefix: int) -> tuple[int, int]:
    """The half-open range of the entries with these four bytes, a number below 2**32."""
    key = np.uint64(prefix) << PREFIX_SHIFT
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) >> 1
        if order[middle] < key:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < len(order) and order[last] ^ key <= ROW_MASK:
        last += 1
    return low, last


@kernel(nogil=True)
def prefix_ranges(order: Array, prefixes: Array) -> tuple[Array, Array]:
    """The ranges of many prefixes (uint32): where each begins and ends, int64. Fastest where they rise."""
    first, last = np.empty(len(prefixes), np.int64), np.empty(len(prefixes), np.int64)
    for number in range(len(prefixes)):
        first[number], last[number] = prefix_range(order, prefixes[number])
    return first, last


def digits_range(order: Array, prefix: int, digits: int) -> tuple[int, int]:
    """The half-open range of the entries whose hash begins with so many hex digits, at most eight."""
    shift = 64 - 4 * digits
    first, last = np.uint64(prefix << shift), np.uint64(((prefix + 1) << shift) - 1)
    return int(np.searchsorted(order, first)), int(np.searchsorted(order, last, side="right"))


_PIECE_ROWS = 1 << 20
NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Segment:
    """``rows`` rows as columns. Arrays may be mapped from a file, and may be longer than ``rows``."""

    rows: int
    ids: Array  # int64
    created_at: Array  # int64, microseconds since 1970, UTC
    offsets: Array  # int64, rows + 1
    text: Array  # uint8
    hash: Array  # uint8, rows x width of the collection's hash
    hashes: Array | Mapping[bytes, list[int]]
    """The rows by the first four bytes of their hash: for a data file their order, as ``sort_hashes`` makes it.

    For staged rows it is a dict of rising rows, which can grow; it may know rows that were added after this
    segment was made.
    """
    summaries: Summaries | None = None
    """What the sources say of the rows; None for staged rows, of which one list is known."""
    grams: Grams | None = None
    """Finds rows by a piece of their name; without them, as for staged rows, every byte is scanned."""

    lists: ParameterLists | None = None
    """Finds rows by their parameters; without it, as for staged rows, every row is looked at."""

    imports: tuple[Array, Array] | None = None
    """The rows at which another import begins, and the imports' numbers; None where all rows were POSTed."""

    @classmethod
    def of(
        cls, rows: int, ids: Array, created_at: Array, offsets: Array, text: Array, hash: Array,
        hashes: Array | Mapping[bytes, list[int]], grams: Grams | None = None,
    ) -> Segment:  # fmt: skip
        """A segment over read-only views of these arrays."""
        if isinstance(hashes, np.ndarray):
            hashes = as_readonly(hashes)
        return cls(
            rows, as_readonly(ids), as_readonly(created_at), as_readonly(offsets), as_readonly(text),
            as_readonly(hash), hashes, grams=grams,
        )  # fmt: skip

    def with_digits(self, prefix: int, digits: int) -> Array:
        """The rows of a file whose hashes begin with so many hex digits."""
        order = self.hashes
        assert isinstance(order, np.ndarray), "staged rows are not in the order of their hashes"
        first, last = digits_range(order, prefix, digits)
        return (order[first:last] & ROW_MASK).astype(np.int64)

    def text_at(self, row: int) -> str:
        return self.text[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    def import_at(self, row: int) -> int:
        """The number of the import that a row is of; 0 for a POSTed one."""
        if self.imports is None:
            return 0
        rows, numbers = self.imports
        return int(numbers[rows.searchsorted(row, side="right") - 1])

    def texts_of(self, first: int, last: int) -> pa.StringArray:
        """The texts of the rows ``first`` up to ``last``, which have less than 2 GiB."""
        begin, end = self.offsets[first], self.offsets[last]
        offsets = (self.offsets[first : last + 1] - begin).astype(np.int32)
        return pa.StringArray.from_buffers(last - first, pa.py_buffer(offsets), pa.py_buffer(self.text[begin:end]))

    def summary_at(self, row: int) -> Summary:
        """What the sources say of a row's text."""
        return self.counts_at(row).summary(
            int(self.ids[row]), self.text_at(row), self.declaration_at(row), self.import_at(row),
            moment(int(self.created_at[row])),
        )  # fmt: skip

    def counts_at(self, row: int) -> SightingCounts:
        return LISTED if self.summaries is None else self.summaries.at(row)

    def declaration_at(self, row: int) -> str:
        """The commonest declaration of a row's text; "" for none."""
        return "" if self.summaries is None else self.summaries.declaration_at(row)

    def spans(self, first: int, last: int, most_rows: int, most_bytes: int) -> Iterator[tuple[int, int]]:
        """The rows ``first`` up to ``last`` in half-open ranges of at most so many rows and bytes of text.

        A text longer than ``most_bytes`` has a range of its own.
        """
        while first < last:
            end = (
                int(np.searchsorted(self.offsets[: self.rows + 1], self.offsets[first] + most_bytes, side="right")) - 1
            )
            stop = min(last, first + most_rows, max(first + 1, end))
            yield first, stop
            first = stop

    def row_of_id(self, id: int) -> int | None:
        row = int(np.searchsorted(self.ids[: self.rows], id))
        return row if row < self.rows and int(self.ids[row]) == id else None

    def time_range(self, first: int | None, last: int | None) -> tuple[int, int]:
        """The rows with ``first <= created_at <= last``, as a half-open range; None is no bound."""
        times = self.created_at[: self.rows]
        start = 0 if first is None else int(times.searchsorted(first))
        return start, max(start, self.rows if last is None else int(times.searchsorted(last, side="right")))

    @property
    def is_staged(self) -> bool:
        """Whether these are rows of the staging database and not of a data file."""
        return not isinstance(self.hashes, np.ndarray)

    def with_hash(self, digest: bytes) -> Array:
        """The rows with exactly this hash, rising: int64."""
        found = rows_with_hash((self,), digest)
        return found[0][1] if found else NO_ROWS

    def with_whole_hash(self, rows: Array, digest: bytes) -> Array:
        """Those of ``rows`` with exactly this hash; its first four bytes are known to be theirs."""
        if len(digest) == 4:
            return rows
        same: Array = (self.hash[rows] == np.frombuffer(digest, np.uint8)).all(axis=1)
        return rows[same]

    def with_hashes(self, hashes: Array) -> tuple[Array, Array]:
        """The numbers of these hashes, or first bytes of hashes, uint8 of (hashes, width), that rows have, and the rows.

        Numbers rise, and so do the rows of each. It is fastest where the hashes rise.
        """
        prefixes = np.ascontiguousarray(hashes[:, :4]).view(">u4")[:, 0].astype(np.uint32)
        order, first, last = self._with_prefixes(prefixes)
        counts = last - first
        numbers = np.repeat(np.arange(len(hashes)), counts)
        places = np.arange(len(numbers)) + (first - np.cumsum(counts) + counts)[numbers]
        rows = (order[places] & ROW_MASK).astype(np.int64)
        same = (self.hash[rows][:, : hashes.shape[1]] == hashes[numbers]).all(axis=1)
        return numbers[same], rows[same]

    def _with_prefixes(self, prefixes: Array) -> tuple[Array, Array, Array]:
        """``order, first, last``: the rows of prefix ``n`` are the low halves of ``order[first[n]:last[n]]``, rising."""
        if isinstance(self.hashes, np.ndarray):
            return self.hashes, *prefix_ranges(self.hashes, prefixes)
        raw = prefixes.astype(">u4").tobytes()
        found = [self.hashes.get(raw[at : at + 4], ()) for at in range(0, len(raw), 4)]
        rows = [[row for row in known if row < self.rows] for known in found]
        last = np.cumsum([len(known) for known in rows], dtype=np.int64)
        order = np.array([row for known in rows for row in known], np.uint64)
        return as_readonly(order), np.concatenate([[0], last[:-1]]).astype(np.int64), last

    def with_hex(self, digits: str) -> Array:
        """The rows whose hash has these hex digits (lower-case) anywhere, rising."""
        return rows_with_hex(self.hash, self.rows, digits)

    def with_text(self, fragment: str) -> Array:
        """The rows whose text has the fragment, whatever its case, rising."""
        if len(fragment) > MAX_SEARCHED:  # the kernels compare a byte so many times at most
            wanted, rows = fragment.encode().lower(), self.with_text(fragment[:MAX_SEARCHED])
            return np.array([row for row in rows.tolist() if wanted in self.text_at(row).encode().lower()], np.int64)
        candidates = self._candidates(fragment)
        if candidates is None:
            return np.concatenate([NO_ROWS, *rows_with_text(self.text, self.offsets, self.rows, fragment)])
        if has_wildcards(fragment):
            return NO_ROWS  # here they are characters, which no text has
        return rows_like(self.text, self.offsets, candidates, f"*{fragment}*", self.rows, any_case=True)

    def like(self, pattern: str, limit: int) -> Array:
        """The first ``limit`` rows whose whole text fits the pattern, rising; case counts."""
        pieces = fixed_pieces(pattern)
        candidates = self._candidates(*pieces)
        if candidates is None:
            candidates = rows_with_text(self.text, self.offsets, self.rows, max(pieces, key=len))
        return rows_like(self.text, self.offsets, candidates, pattern, limit)

    def with_shape(self, shape: Shape, rows: Array | None = None) -> Array:
        """The rows, of ``rows`` or of all, whose parameters fit, rising."""
        if rows is None and self.lists is not None:
            return self.lists.with_shape(shape)
        rows = np.arange(self.rows) if rows is None else rows
        kept: Array = rows[fits(self.text, *bounds_of(self.text, self.offsets, rows), shape)]
        return kept

    def with_name(self, pattern: str) -> Array:
        """The rows whose whole name fits a pattern, whatever its case, rising."""
        pieces = fixed_pieces(f"{pattern}(")
        candidates = self._candidates(*pieces)
        if candidates is None:
            candidates = (np.arange(at, min(at + _PIECE_ROWS, self.rows)) for at in range(0, self.rows, _PIECE_ROWS))
        found = [NO_ROWS]
        for rows in candidates:
            lists, _ = bounds_of(self.text, self.offsets, rows)
            found.append(rows[are_like(self.text, self.offsets[rows], lists - 1, pattern, any_case=True)])
        return np.concatenate(found)

    def _candidates(self, *fragments: str) -> Iterator[Array] | None:
        """The rows among which are all that have the fragments; None where they must be scanned."""
        return self.grams.candidates(*fragments) if self.grams is not None else None


def rows_with_hash(segments: Iterable[Segment], digest: bytes) -> list[tuple[Segment, Array]]:
    """The rows with exactly this hash, rising (int64), of each segment that has any, in the segments' order.

    One loop for all: most files do not have the hash, and a method call for each would double the time.
    """
    prefix, found = int.from_bytes(digest[:4], "big"), []
    for segment in segments:
        hashes = segment.hashes
        if isinstance(hashes, np.ndarray):
            first, last = prefix_range(hashes, prefix)
            if first == last:
                continue
            rows = (hashes[first:last] & ROW_MASK).astype(np.int64)
        else:
            rows = np.array([row for row in hashes.get(digest[:4], ()) if row < segment.rows], np.int64)
        rows = segment.with_whole_hash(rows, digest)
        if len(rows):
            found.append((segment, rows))
    return found
