"""Which rows of a batch are new: the first of each text that the table and staging do not have.

The set work is one aggregation in DuckDB, which spills to disk under its memory limit: known rows
come with the number -1, the batch's with their place in it, and a key whose least number is not
negative is new, at that place.

Known rows are few where that can be told cheaply: the hash column alone says which rows of a file
may be in the batch at all (their first 24 bits are set in a map), and only the texts of those are
hashed anew for their full keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.parallel import ordered_map
from warehouse.schema import EVENT_SIGNATURES, HASH_BYTES, Collection
from warehouse.snapshot import Snapshot
from warehouse.spill import Keys, Spill, keys_of
from warehouse.staging import StagedRow

Digest = Callable[[pa.StringArray], npt.NDArray[np.uint8]]
"""Text column to digests, uint8 of shape (rows, 32). Comes from the pipeline, which hashes."""

# The map of first hash bits: 16 MiB, so that it stays in a processor's cache. A batch of 100 k
# sets 0.6 % of it.
_MAP_BITS = 24
# Above this many rows most known rows are in the map anyway, and testing them is work for nothing.
_MAP_ROWS = 8_000_000


def new_rows(
    spill: Spill,
    snapshot: Snapshot,
    staged: list[StagedRow],
    digest: Digest,
    connection: duckdb.DuckDBPyConnection,
    threads: int,
) -> npt.NDArray[np.bool_]:
    """A flag for each row of the spill: True where it brings a text for the first time."""
    keep = np.zeros(spill.rows, np.bool_)
    if not spill.rows:
        return keep
    schema = pa.schema([("high", pa.uint64()), ("low", pa.uint64()), ("number", pa.int64())])
    connection.register("batch", pa.RecordBatchReader.from_batches(schema, _batch_keys(spill, schema)))
    known = _known_keys(spill, snapshot, staged, digest, threads)
    connection.register("known", pa.RecordBatchReader.from_batches(schema, _numbered(known, schema)))
    firsts = connection.sql(
        "SELECT min(number) AS number"
        " FROM (SELECT * FROM batch UNION ALL SELECT * FROM known)"
        " GROUP BY high, low HAVING min(number) >= 0"
    )
    for found in firsts.to_arrow_reader(1_000_000):
        keep[found.column(0).to_numpy()] = True
    connection.unregister("batch")
    connection.unregister("known")
    return keep


def _batch_keys(spill: Spill, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for first, keys in spill.keys():
        numbers = np.arange(first, first + len(keys.high), dtype=np.int64)
        yield pa.record_batch([keys.high, keys.low, numbers], schema=schema)


def _numbered(chunks: Iterable[Keys], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for keys in chunks:
        if len(keys.high):
            numbers = np.full(len(keys.high), -1, np.int64)
            yield pa.record_batch([keys.high, keys.low, numbers], schema=schema)


def _known_keys(
    spill: Spill, snapshot: Snapshot, staged: list[StagedRow], digest: Digest, threads: int
) -> Iterator[Keys]:
    """The keys of all rows that are stored already and may be in the batch."""
    if staged:
        joined = b"".join(row.digest for row in staged)
        yield keys_of(np.frombuffer(joined, np.uint8).reshape(-1, 32))
    seen = _hash_map(spill) if spill.rows < _MAP_ROWS else None
    with ThreadPoolExecutor(threads) as pool:
        yield from ordered_map(
            pool,
            lambda group: _group_keys(spill.collection, *group, seen, digest),
            _row_groups(snapshot, spill.collection),
            ahead=2 * threads,
        )


def _row_groups(snapshot: Snapshot, collection: Collection) -> Iterator[tuple[Path, pq.FileMetaData, int]]:
    for file in snapshot.files[collection]:
        metadata = pq.read_metadata(file.path)
        for number in range(metadata.num_row_groups):
            yield file.path, metadata, number


def _group_keys(
    collection: Collection,
    path: Path,
    metadata: pq.FileMetaData,
    group: int,
    seen: npt.NDArray[np.bool_] | None,
    digest: Digest,
) -> Keys:
    """The keys of one row group, without the rows that the map rules out."""
    with pq.ParquetFile(path, metadata=metadata) as file:
        if collection == EVENT_SIGNATURES:  # the stored hash is the digest
            return keys_of(_stored_hashes(file, group, collection))
        possible = None
        if seen is not None:
            hashes = _stored_hashes(file, group, collection).view(np.uint32)[:, 0]
            possible = seen[hashes & np.uint32((1 << _MAP_BITS) - 1)]
            if not possible.any():
                return keys_of(np.empty((0, 32), np.uint8))
        text = file.read_row_group(group, columns=["text_signature"]).column(0).combine_chunks()
    return keys_of(digest(text if possible is None else text.filter(pa.array(possible))))


def _stored_hashes(file: pq.ParquetFile, group: int, collection: Collection) -> npt.NDArray[np.uint8]:
    """The hash column of a row group, uint8 of shape (rows, width of the collection's hash)."""
    width = HASH_BYTES[collection]
    column = file.read_row_group(group, columns=["hash"]).column(0)
    fixed = column.cast(pa.binary(width)).combine_chunks()
    return np.frombuffer(fixed.buffers()[1], np.uint8)[: len(fixed) * width].reshape(-1, width)


def _hash_map(spill: Spill) -> npt.NDArray[np.bool_]:
    """For each value of a hash's first bits, whether the batch has one that begins so."""
    seen = np.zeros(1 << _MAP_BITS, np.bool_)
    for _, keys in spill.keys():
        seen[keys.high & np.uint64((1 << _MAP_BITS) - 1)] = True
    return seen
