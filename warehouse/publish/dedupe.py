"""Which rows of a batch are new: the first row of each text that neither the table nor staging has.

The keys of the batch go into a hash table (``key_table.py``), which shows the rows that repeat an earlier one. The keys
of the stored rows are then looked up in it, as threads read them.

Stored rows that cannot be in the batch are left out where that is cheap: a map of the first 24 hash bits that occur in
the batch is compared with a file's hash column, and only the texts of the rows that match are hashed again for their
full keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import Keys, keys_of
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.key_table import Found, KeyTable, parts_of
from sigdir.warehouse.publish.spill import Ids, Spill
from sigdir.warehouse.staging.rows import StagedRow
from sigdir.warehouse.table.parallel import ordered_map
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
    parts = parts_of(spill.rows)
    for part in range(parts):
        table = KeyTable(words, parts, part)
        for rows, first in table.enter():
            text_ids[rows] = -1 - first
            keep[rows] = False
        for rows, ids in _known_rows(table, spill, snapshot, staged, threads):
            text_ids[rows] = ids
            keep[rows] = False
    return keep


def _known_rows(
    table: KeyTable, spill: Spill, snapshot: Snapshot, staged: list[StagedRow], threads: int
) -> Iterator[Found]:
    """The rows of a table whose texts are stored, with their ids."""
    if staged:
        joined = b"".join(row.digest for row in staged)
        keys = keys_of(np.frombuffer(joined, np.uint8).reshape(-1, 32))
        yield table.find(keys, np.array([row.id for row in staged], np.int64))
    if not snapshot.files[spill.collection]:
        return
    seen = _hash_map(spill)
    with ThreadPoolExecutor(threads) as pool:
        yield from ordered_map(
            pool,
            lambda group: table.find(*keys_of_group(spill.collection, group, seen)),
            row_groups(file.path for file in snapshot.files[spill.collection]),
            ahead=2 * threads,
        )


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
    """The ids of a row group. They rise, so where none is left out the footer's statistics say them all."""
    metadata = file.metadata.row_group(group)
    ids = metadata.column(0).statistics
    if ids is not None and ids.has_min_max and ids.max - ids.min == metadata.num_rows - 1:
        return np.arange(ids.min, ids.max + 1, dtype=np.int64)
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
