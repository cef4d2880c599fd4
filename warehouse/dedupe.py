"""Which rows of a batch are new: the first row of each text that neither the table nor staging has.

DuckDB does the set operations and spills to disk under its memory limit, in three queries. Each returns only
the rows to drop, with the ids of their texts, and is skipped where nothing is left to ask:

1. Which rows of the batch are stored already, with which ids? A join with the keys of the stored rows.
2. Do any of the others share the first half of their key? An aggregation over one number, at half the cost
   of one over whole keys with their first row. For a list of distinct texts this is the last query.
3. Of those that do, which are not the first row of their whole key?

Stored rows that cannot be in the batch are left out of the first query where that is cheap: a map of the first
24 hash bits that occur in the batch is compared with a file's hash column, and only the texts of the rows that
match are hashed again for their full keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import Keys, keys_of
from sigdir.signatures.keccak import keccak256_column
from sigdir.warehouse.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.evidence.spill import Ids, TextIds
from sigdir.warehouse.parallel import ordered_map
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.spill import SpilledRows
from sigdir.warehouse.staging.rows import StagedRow

Flags = npt.NDArray[np.bool_]

# The map of hash bits takes 16 MiB, so that it stays in a processor's cache. A batch of 100 k rows sets 0.6 % of it.
_MAP_BITS = 24
# In a batch of more rows, most stored rows match the map anyway and testing them gains nothing.
MAP_ROWS = 8_000_000


def new_rows(
    spill: SpilledRows,
    snapshot: Snapshot,
    staged: list[StagedRow],
    connection: duckdb.DuckDBPyConnection,
    threads: int,
    text_ids: TextIds | None = None,
) -> Flags:
    """A flag for each row of the spill: True where its text is new and this is its first row.

    ``text_ids`` gets for every other row the id of its stored text, or the number of the first row with its text.
    """
    keep = np.ones(spill.rows, np.bool_)
    queries = _Queries(connection)
    text_ids = text_ids or TextIds(None, spill.rows)
    if not spill.rows:
        return keep
    if staged or snapshot.files[spill.collection]:
        known = _known_texts(spill, snapshot, staged, threads)
        queries.register("known", _KEY_AND_ID, ([keys.high, keys.low, ids] for keys, ids in known))
        queries.register("batch", _NUMBERED_KEY, _kept(spill, keep))
        queries.drop(keep, text_ids, "SELECT number, id FROM batch JOIN known USING (high, low)")
    queries.register("highs", _HALF_KEY, ([keys.high[keep[rows]]] for rows, keys in _slices(spill)))
    shared = queries.column("SELECT high FROM highs GROUP BY high HAVING count(*) > 1")
    if len(shared):
        queries.register("shared", _HALF_KEY, [[shared]])
        queries.register("batch", _NUMBERED_KEY, _kept(spill, keep))
        queries.drop(
            keep,
            text_ids,
            "SELECT number, -1 - min(number) OVER same AS id FROM batch SEMI JOIN shared USING (high)"
            " WINDOW same AS (PARTITION BY high, low ORDER BY number) QUALIFY row_number() OVER same > 1",
        )
    return keep


class _Queries:
    """Queries over columns that stream into DuckDB as it reads them."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._failed: WarehouseError | None = None

    def register(self, name: str, schema: pa.Schema, columns: Iterable[list[npt.NDArray[Any]]]) -> None:
        batches = self._noting(pa.record_batch(chunk, schema=schema) for chunk in columns if len(chunk[0]))
        self._connection.register(name, pa.RecordBatchReader.from_batches(schema, batches))

    def _noting(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; an error is kept, because DuckDB passes on only its text."""
        try:
            yield from batches
        except WarehouseError as error:
            self._failed = error
            raise

    def chunks(self, query: str) -> Iterator[list[npt.NDArray[Any]]]:
        """The columns of a query's result, a part at a time."""
        try:
            for batch in self._connection.sql(query).to_arrow_reader(1 << 18):
                yield [column.to_numpy() for column in batch.columns]
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._failed or UnreadableWarehouse(f"deduping: {str(error).partition(chr(10))[0]}") from error

    def column(self, query: str) -> npt.NDArray[Any]:
        return np.concatenate([np.empty(0, np.uint64), *(chunk for (chunk,) in self.chunks(query))])

    def drop(self, keep: Flags, text_ids: TextIds, query: str) -> None:
        """Clear the flags of the row numbers that a query gives, and note the ids that it gives with them."""
        dropped = []  # all of them first: the query reads `keep` while it runs
        for numbers, ids in self.chunks(query):
            text_ids.set(numbers, ids)
            dropped.append(numbers)
        for numbers in dropped:
            keep[numbers] = False


_HALF_KEY = pa.schema([("high", pa.uint64())])
_KEY = pa.schema([("high", pa.uint64()), ("low", pa.uint64())])
_KEY_AND_ID = pa.schema([*_KEY, ("id", pa.int64())])
_NUMBERED_KEY = pa.schema([*_KEY, ("number", pa.int64())])


def _slices(spill: SpilledRows) -> Iterator[tuple[slice, Keys]]:
    for first, keys in spill.keys():
        yield slice(first, first + len(keys.high)), keys


def _kept(spill: SpilledRows, keep: Flags) -> Iterator[list[npt.NDArray[Any]]]:
    """The keys of the rows that are kept, with their row numbers."""
    for rows, keys in _slices(spill):
        chosen = np.flatnonzero(keep[rows])
        yield [keys.high[chosen], keys.low[chosen], chosen + rows.start]


def _known_texts(
    spill: SpilledRows, snapshot: Snapshot, staged: list[StagedRow], threads: int
) -> Iterator[tuple[Keys, Ids]]:
    """The keys and ids of all stored rows that may be in the batch."""
    if staged:
        joined = b"".join(row.digest for row in staged)
        yield keys_of(np.frombuffer(joined, np.uint8).reshape(-1, 32)), np.array([row.id for row in staged], np.int64)
    seen = hash_map(spill)
    with ThreadPoolExecutor(threads) as pool:
        yield from ordered_map(
            pool,
            lambda group: keys_of_group(spill.collection, group, seen),
            row_groups(snapshot, spill.collection),
            ahead=2 * threads,
        )


class RowGroup(NamedTuple):
    """One row group of a data file; ``metadata`` is the file's."""

    path: Path
    number: int
    metadata: pq.FileMetaData | None = None


def row_groups(snapshot: Snapshot, collection: Collection) -> Iterator[RowGroup]:
    for file in snapshot.files[collection]:
        with naming(file.path):
            metadata = pq.read_metadata(file.path)
        for number in range(metadata.num_row_groups):
            yield RowGroup(file.path, number, metadata)


def keys_of_group(collection: Collection, row_group: RowGroup, seen: Flags | None) -> tuple[Keys, Ids]:
    """The keys and ids of one row group, without the rows that the map (``hash_map``) rules out."""
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
    return keys_of(keccak256_column(text.filter(pa.array(possible)))), ids[possible]


def _stored_ids(file: pq.ParquetFile, group: int) -> Ids:
    ids: Ids = file.read_row_group(group, columns=["id"]).column(0).to_numpy()
    return ids


def _stored_hashes(file: pq.ParquetFile, group: int, collection: Collection) -> npt.NDArray[np.uint8]:
    """The hash column of a row group, uint8 of shape (rows, width of the collection's hash)."""
    width = collection.hash_bytes
    column = file.read_row_group(group, columns=["hash"]).column(0)
    fixed = column.cast(pa.binary(width)).combine_chunks()
    return np.frombuffer(fixed.buffers()[1], np.uint8)[: len(fixed) * width].reshape(-1, width)


def hash_map(spill: SpilledRows) -> Flags | None:
    """For each value of a hash's first bits, whether the batch has one that begins so; None if most have."""
    if spill.rows >= MAP_ROWS:
        return None
    seen = np.zeros(1 << _MAP_BITS, np.bool_)
    for _, keys in spill.keys():
        seen[keys.high & np.uint64((1 << _MAP_BITS) - 1)] = True
    return seen
