"""Which rows of a batch are new: the first row of each text that neither the table nor staging has.

The keys of the batch go into a hash table, ``KeyTable``, which shows the rows that repeat an earlier one. The keys of the
stored rows are then looked up in it, as threads read them.

Stored rows that cannot be in the batch are left out where that is cheap: a map of the first 24 hash bits that occur in
the batch is compared with a file's hash column, and only the texts of the rows that match are hashed again for their
full keys.

Invariants of the table
    An entry is one uint64: 24 bits of the key above, the number of the row and one below; 0 is an empty place. The
    first row of each key has an entry. Keys are compared as a whole before two rows count as the same.
    A table is made in parts, each of the keys that end in the same bits: threads fill one part each. Memory does not
    grow with the batch: there are as many parts at a time as hold PART_ROWS rows.

Theory. Open addressing with at most three of four places taken. The place of a key is its first half times a random odd
number, so nobody can choose texts that share one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import Array, numbers, values
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import Keys, as_readonly, keys_of
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.signatures.kernels import kernel, pointer
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.spill import Ids, Spill
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table.parallel import for_each, ordered_map
from sigdir.warehouse.table.parquet import naming

Flags = npt.NDArray[np.bool_]

# The map of hash bits takes 16 MiB, so that it stays in a processor's cache. A batch of 100 k rows sets 0.6 % of it.
_MAP_BITS = 24
# In a batch of more rows, most stored rows match the map anyway and testing them gains nothing.
_MAP_ROWS = 8_000_000


def new_rows(spill: Spill, snapshot: Snapshot, staged: list[StagedRow], threads: int, text_ids: Ids) -> Flags:
    """A flag for each row of the spill: True where its text is new and this is its first row.

    ``text_ids`` gets for the first row of a stored text its id, and for a row that repeats another ``-1 - n``, where
    ``n`` is the number of the first row with its text. Raises UnreadableWarehouse.
    """
    keep = np.ones(spill.rows, np.bool_)
    if not spill.rows:
        return keep
    words = spill.words()
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


def _known_rows(
    tables: Sequence[KeyTable], spill: Spill, snapshot: Snapshot, staged: list[StagedRow], threads: int
) -> Iterator[Found]:
    """The rows of some parts of the table whose texts are stored, with their ids."""
    if staged:
        joined = b"".join(row.digest for row in staged)
        keys = keys_of(np.frombuffer(joined, np.uint8).reshape(-1, 32))
        ids = np.array([row.id for row in staged], np.int64)
        yield from (table.find(keys, ids) for table in tables)
    if not snapshot.files[spill.collection]:
        return
    seen = _hash_map(spill)

    def find(group: RowGroup) -> list[Found]:
        keys, ids = keys_of_group(spill.collection, group, seen)
        return [table.find(keys, ids) for table in tables]

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


def keys_of_group(collection: Collection, row_group: RowGroup, seen: Flags | None) -> tuple[Keys, Ids]:
    """The keys and ids of one row group, without the rows that the map (``_hash_map``) rules out."""
    path, group, metadata = row_group
    with naming(path), pq.ParquetFile(path, metadata=metadata, page_checksum_verification=True) as file:
        if collection == EVENT_SIGNATURES:  # the stored hash is the digest
            return keys_of(_stored_hashes(file, group, collection)), _stored_ids(file, group)
        possible = None
        if seen is not None:
            hashes = _stored_hashes(file, group, collection).view(np.uint32)[:, 0]
            possible = seen[hashes & np.uint32((1 << _MAP_BITS) - 1)]
            if not possible.any():
                return keys_of(np.empty((0, 32), np.uint8)), np.empty(0, np.int64)
        ids = _stored_ids(file, group)
        text = file.read_row_group(group, columns=["text_signature"]).column(0).combine_chunks()
    if possible is None:
        return keys_of(keccak256_column(text)), ids
    return keys_of(keccak256_column(text.filter(numbers(possible)))), ids[possible]


def _stored_ids(file: pq.ParquetFile, group: int) -> Ids:
    """The ids of a row group."""
    return values(file.read_row_group(group, columns=["id"]).column(0))


def _stored_hashes(file: pq.ParquetFile, group: int, collection: Collection) -> npt.NDArray[np.uint8]:
    """The hash column of a row group, uint8 of shape (rows, width of the collection's hash)."""
    width = collection.hash_bytes
    column = file.read_row_group(group, columns=["hash"]).column(0)
    fixed = column.cast(pa.binary(width)).combine_chunks()
    return np.frombuffer(fixed.buffers()[1], np.uint8)[: len(fixed) * width].reshape(-1, width)


def _hash_map(spill: Spill) -> Flags | None:
    """For each value of a hash's first bits, whether the batch has one that begins so; None if most have."""
    if spill.rows >= _MAP_ROWS:
        return None
    seen = np.zeros(1 << _MAP_BITS, np.bool_)
    seen[spill.words()[:, 0] & np.uint64((1 << _MAP_BITS) - 1)] = True
    return seen


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
        self._factor = np.uint64(secrets.randbits(64) | 1)
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
                self._slots, self._words, chunk.start, chunk.stop, self._factor, self._shift, self._mask, self._part,
                rows, first,
            )  # fmt: skip
            yield Found(rows[:found], first[:found])

    def find(self, keys: Keys, ids: Ids) -> Found:
        """The first row of each key that the part has, with the key's id."""
        rows, matches = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        found = _find(
            as_readonly(self._slots), self._words, as_readonly(keys.high), as_readonly(keys.low), as_readonly(ids),
            self._factor, self._shift, self._mask, self._part, rows, matches,
        )  # fmt: skip
        return Found(rows[:found], matches[:found])


def parts_of(rows: int) -> int:
    """How many parts the table of so many rows has: a power of two."""
    return 1 << (max(rows - 1, 0) // PART_ROWS).bit_length()


@kernel(nogil=True)
def _place_of(
    slots: Any, last: Any, words: Any, high: Any, low: Any, factor: Any, shift: Any
) -> tuple[Any, Any]:  # fmt: skip
    """The place of a key, and the row that has it; -1 where the place is empty.

    ``slots`` and ``words`` are pointers, two words a row: with arrays it takes twice as long.
    """
    at = (high * factor) >> shift
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
    slots: Array, words: Array, start: int, stop: int, factor: Any, shift: Any, mask: Any, part: Any, rows: Array,
    first: Array,
) -> int:  # fmt: skip
    """Enter the rows ``start`` up to and without ``stop``; returns how many have an earlier one with the same key."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for row in range(start, stop):
        high, low = words[row, 0], words[row, 1]
        if low & mask != part:
            continue
        at, other = _place_of(pointer(slots), last, pointer(words), high, low, factor, shift)
        if other < 0:
            slots[at] = high << np.uint64(_TAG_SHIFT) | np.uint64(row + 1)
        else:
            rows[found], first[found] = row, other
            found += 1
    return found


@kernel(nogil=True)
def _find(
    slots: Array, words: Array, high: Array, low: Array, ids: Array, factor: Any, shift: Any, mask: Any, part: Any,
    rows: Array, what: Array,
) -> int:  # fmt: skip
    """Look keys up; returns how many have a row."""
    found = 0
    last = np.uint64(len(slots) - 1)
    for key in range(len(high)):
        if low[key] & mask != part:
            continue
        _, row = _place_of(pointer(slots), last, pointer(words), high[key], low[key], factor, shift)
        if row >= 0:
            rows[found], what[found] = row, ids[key]
            found += 1
    return found
