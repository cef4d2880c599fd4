"""Which rows of a batch are new: the first row of each text that neither the table nor staging has.

The key of a text is its fingerprint, so no known text is hashed by Keccak. The keys of the batch go into a hash table,
``KeyTable``, which shows the rows that repeat an earlier one. The keys of the stored rows are then looked up in it, as
threads read them. Of a row group that has none of a small batch's hashes the texts are not read.

Invariants of the table
    An entry is one uint64: 24 bits of the key above, the number of the row and one below; 0 is an empty place. The
    first row of each key has an entry. Keys are compared as a whole before two rows count as the same.
    A table is made in parts, each of the keys that end in the same bits: threads fill one part each. Memory does not
    grow with the batch: there are as many parts at a time as hold PART_ROWS rows.

Theory. Open addressing with at most three of four places taken. The place of a key is its first bits, which are random,
so nobody can choose texts that share one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import Array, strings, values
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.fingerprints import fingerprints_of
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.signatures.kernels import kernel, pointer
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.spill import Ids, Spill, numbers_in
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table.parallel import for_each, ordered_map
from sigdir.warehouse.table.parquet import naming

Flags = npt.NDArray[np.bool_]


def new_rows(spill: Spill, snapshot: Snapshot, staged: list[StagedRow], threads: int, text_ids: Ids) -> Flags:
    """A flag for each row of the spill: True where its text is new and this is its first row.

    ``text_ids`` gets for the first row of a stored text its id, and for a row that repeats another ``-1 - n``, where
    ``n`` is the number of the first row with its text. Raises UnreadableWarehouse.
    """
    keep = np.ones(spill.rows, np.bool_)
    if not spill.rows:
        return keep
    words = _keys_of(spill, threads)
    at_once = 1 << (min(threads, _MAX_AT_ONCE).bit_length() - 1)  # a power of two, as the parts are
    parts = parts_of(spill.rows) * at_once

    def filled(number: int) -> KeyTable:
        table = KeyTable(words, parts, number)
        for rows, first in table.enter():
            text_ids[rows] = -1 - first
            keep[rows] = False
        return table

    for part in range(0, parts, at_once):
        tables = for_each(filled, range(part, part + at_once), threads)
        for rows, ids in _known_rows(tables, spill, snapshot, staged, threads):
            text_ids[rows] = ids
            keep[rows] = False
        del tables  # before the next ones are made
    return keep


_MAX_AT_ONCE = 8
"""Threads that fill parts of the table. Each reads all keys."""

_BATCHES_AT_ONCE = 16


def _keys_of(spill: Spill, threads: int) -> npt.NDArray[np.uint64]:
    """The keys of all rows in their order, of shape (rows, 2), in a file beside the texts."""
    found = numbers_in(spill.texts_path.with_suffix(".keys"), np.dtype(np.uint64), spill.rows, 2)
    bounds = spill.first_rows().tolist()

    def fill(first: int) -> None:
        for number, text in enumerate(spill.texts(first, min(first + _BATCHES_AT_ONCE, spill.batches())), first):
            found[bounds[number] : bounds[number + 1]] = fingerprints_of(text)

    for_each(fill, range(0, spill.batches(), _BATCHES_AT_ONCE), threads)
    return found


def _known_rows(
    tables: Sequence[KeyTable], spill: Spill, snapshot: Snapshot, staged: list[StagedRow], threads: int
) -> Iterator[Found]:
    """The rows of some parts of the table whose texts are stored, with their ids."""
    if staged:
        words = fingerprints_of(strings([row.text for row in staged]))
        ids = np.array([row.id for row in staged], np.int64)
        yield from (table.find(words, ids) for table in tables)
    hashes = _FewHashes.of(spill) if spill.rows <= _FEW_ROWS else None

    def find(group: RowGroup) -> list[Found]:
        text, ids = stored_texts(group, hashes)
        words = fingerprints_of(text)
        return [table.find(words, ids) for table in tables]

    groups = row_groups(file.path for file in snapshot.files[spill.collection])
    with ThreadPoolExecutor(threads) as pool:
        yield from chain.from_iterable(ordered_map(pool, find, groups, ahead=2 * threads))


class RowGroup(NamedTuple):
    """One row group of a data file; ``metadata`` is the file's."""

    path: Path
    number: int
    metadata: pq.FileMetaData


def row_groups(files: Iterable[Path]) -> Iterator[RowGroup]:
    for path in files:
        with naming(path):
            metadata = pq.read_metadata(path)
        for number in range(metadata.num_row_groups):
            yield RowGroup(path, number, metadata)


def stored_texts(row_group: RowGroup, hashes: _FewHashes | None) -> tuple[pa.StringArray, Ids]:
    """The texts and ids of one row group; no row if it has none of the hashes."""
    path, group, metadata = row_group
    with naming(path), pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as file:
        if hashes is not None and not hashes.any_in(file.read_row_group(group, columns=["hash"])["hash"]):
            return strings([]), np.empty(0, np.int64)
        rows = file.read_row_group(group, columns=["id", "text_signature"])
    return rows["text_signature"].combine_chunks(), values(rows["id"])


_FEW_ROWS = 1 << 14
"""Of more rows most row groups have a hash, by chance."""
_SEEN_BITS = 24
_SEEN_MASK = np.uint32((1 << _SEEN_BITS) - 1)


class _FewHashes(NamedTuple):
    """The first four bytes of the hashes of a small batch. ``seen`` has a flag for each value of their last bits."""

    hashes: Array
    seen: Flags

    @classmethod
    def of(cls, spill: Spill) -> Self:
        hashes = np.concatenate([keccak256_column(text).view(np.uint32)[:, 0] for text in spill.texts()])
        seen = np.zeros(1 << _SEEN_BITS, np.bool_)
        seen[hashes & _SEEN_MASK] = True
        return cls(hashes, seen)

    def any_in(self, column: pa.ChunkedArray) -> bool:
        """Whether one of the stored hashes begins with one of these."""
        stored = column.cast(pa.binary(len(column[0].as_py()))).combine_chunks().buffers()[1]
        first = np.frombuffer(stored, np.uint32).reshape(len(column), -1)[:, 0]
        return bool(np.isin(first[self.seen[first & _SEEN_MASK]], self.hashes).any())


# The table.

PART_ROWS = 1 << 26
"""At most so many rows are in the parts that there are at a time, which take 1 GiB then."""

_CHUNK_ROWS = 1 << 19
_TAG_SHIFT = 40


class Found(NamedTuple):
    """Numbers of rows, and the match of each: the id of a stored text, or the first row with the same text."""

    rows: Ids
    matches: Ids


class KeyTable:
    """The rows of a part of a batch. ``enter`` its rows, then ``find`` other keys among them; threads may share it then.

    ``words`` are the batch's keys, uint64 of shape (rows, 2). The part has the keys whose last bits are ``part``.
    """

    def __init__(self, words: Array, parts: int = 1, part: int = 0) -> None:
        self._words = as_readonly(words)
        self._mask, self._part = np.uint64(parts - 1), np.uint64(part)
        rows = len(words) if parts == 1 else sum(self._rows_of(chunk) for chunk in self._chunks())
        bits = max((rows * 4 // 3).bit_length(), 4)
        self._shift = np.uint64(64 - bits)
        self._slots = np.zeros(1 << bits, np.uint64)

    def _chunks(self) -> Iterator[slice]:
        for first in range(0, len(self._words), _CHUNK_ROWS):
            yield slice(first, min(first + _CHUNK_ROWS, len(self._words)))

    def _rows_of(self, chunk: slice) -> int:
        return int(np.count_nonzero(self._words[chunk, 1] & self._mask == self._part))

    def enter(self) -> Iterator[Found]:
        """Enter all rows. Gives the rows whose key an earlier row has, with the number of the first one."""
        for chunk in self._chunks():
            size = chunk.stop - chunk.start
            rows, first = np.empty(size, np.int64), np.empty(size, np.int64)
            found = _enter(
                self._slots, self._words, chunk.start, chunk.stop, self._shift, self._mask, self._part, rows, first
            )  # fmt: skip
            yield Found(rows[:found], first[:found])

    def find(self, keys: Array, ids: Ids) -> Found:
        """The first row of each key that the part has, with the key's id."""
        rows, matches = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        found = _find(
            as_readonly(self._slots), self._words, as_readonly(keys), as_readonly(ids), self._shift, self._mask,
            self._part, rows, matches,
        )  # fmt: skip
        return Found(rows[:found], matches[:found])


def parts_of(rows: int) -> int:
    """How many parts the table of so many rows has: a power of two."""
    return 1 << (max(rows - 1, 0) // PART_ROWS).bit_length()


@kernel(nogil=True)
def _place_of(slots: Any, last: Any, words: Any, high: Any, low: Any, shift: Any) -> tuple[Any, Any]:
    """The place of a key, and the row that has it; -1 where the place is empty.

    ``slots`` and ``words`` are pointers, two words a row: with arrays it takes twice as long.
    """
    at = high >> shift
    tag = high << np.uint64(_TAG_SHIFT)
    while slots[at] != 0:
        entry = slots[at] ^ tag
        if entry >> np.uint64(_TAG_SHIFT) == 0:
            row = np.int64(entry) - 1
            if words[2 * row] == high and words[2 * row + 1] == low:
                return at, row
        at = (at + np.uint64(1)) & last
    return at, -1


@kernel(nogil=True)
def _enter(
    slots: Array, words: Array, start: int, stop: int, shift: Any, mask: Any, part: Any, rows: Array, first: Array
) -> int:  # fmt: skip
    """Enter the rows ``start`` up to and without ``stop``; returns how many have an earlier one with the same key."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for row in range(start, stop):
        high, low = words[row, 0], words[row, 1]
        if low & mask != part:
            continue
        at, other = _place_of(pointer(slots), last, pointer(words), high, low, shift)
        if other < 0:
            slots[at] = high << np.uint64(_TAG_SHIFT) | np.uint64(row + 1)
        else:
            rows[found], first[found] = row, other
            found += 1
    return found


@kernel(nogil=True)
def _find(
    slots: Array, words: Array, keys: Array, ids: Array, shift: Any, mask: Any, part: Any, rows: Array, what: Array
) -> int:  # fmt: skip
    """Look keys up; returns how many have a row."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for key in range(len(keys)):
        high, low = keys[key, 0], keys[key, 1]
        if low & mask != part:
            continue
        _, row = _place_of(pointer(slots), last, pointer(words), high, low, shift)
        if row >= 0:
            rows[found], what[found] = row, ids[key]
            found += 1
    return found
