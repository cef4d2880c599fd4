"""A data file read from start to end, in pieces. Nothing is mapped and no index is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import values
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import bytes_of
from sigdir.signatures.interruption import each
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.table.parquet import naming

_PIECE_ROWS = 1 << 14
_ORDINARY_GROUP_BYTES = 16 << 20
_PIECE_ROWS_OF_LONG_TEXTS = 1 << 8  # 16 MB, where each text has 64 KiB

SEGMENT_COLUMNS = ("id", "created_at", "text_signature", "hash")
"""The columns of data files that a segment has."""


def batches(file: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a data file, oldest rows first, the pages' checksums checked; raises UnreadableWarehouse."""
    # By default pyarrow reads the whole file before the first row: 76 MB of memory instead of 3.
    with naming(file), pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False) as parquet:
        for group in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(group).total_byte_size
            rows = _PIECE_ROWS if size <= _ORDINARY_GROUP_BYTES else _PIECE_ROWS_OF_LONG_TEXTS
            yield from each(parquet.iter_batches(rows, [group], columns=list(columns), use_threads=False))


def pieces(collection: Collection, file: Path) -> Iterator[Segment]:
    """A data file's rows, oldest first, as segments that cannot be searched by hash; raises UnreadableWarehouse."""
    for batch in batches(file, SEGMENT_COLUMNS):
        bounds, text = bytes_of(batch["text_signature"])
        first = int(bounds[0])
        with naming(file):
            yield Segment.of(
                batch.num_rows,
                values(batch["id"]),
                values(batch["created_at"].view(pa.int64())),
                bounds.astype(np.int64) - first,
                text[first : bounds[-1]],
                hashes_of(batch["hash"], collection.hash_bytes),
                {},
            )


def hashes_of(column: pa.Array, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """A column of hashes of one width, uint8 of shape (rows, width); raises ValueError where they have another."""
    starts, raw = bytes_of(column)
    if (np.diff(starts) != width).any():
        raise ValueError(f"a hash that is not of {width} bytes")
    return raw[starts[0] : starts[-1]].reshape(len(column), width)
