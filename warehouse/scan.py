"""A data file from end to end: its rows in pieces, and its digest. Nothing is mapped, no index is needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.errors import Unusable
from warehouse.mapped import Segment, index_name
from warehouse.parquet import bytes_of
from warehouse.schema import HASH_BYTES, Collection

_PIECE_ROWS = 1 << 14


def pieces(collection: Collection, file: Path) -> Iterator[Segment]:
    """A data file's rows, oldest first, as segments that cannot be searched by hash; raises Unusable."""
    width = HASH_BYTES[collection]
    try:
        # Left to itself pyarrow brings in the whole file before the first row: 76 MB of memory instead of 3.
        with pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=False) as parquet:
            columns = ["id", "created_at", "text_signature", "hash"]
            for batch in parquet.iter_batches(_PIECE_ROWS, columns=columns, use_threads=False):
                bounds, text = bytes_of(batch.column(2))
                starts, hash = bytes_of(batch.column(3))
                yield Segment.of(
                    batch.num_rows,
                    batch.column(0).to_numpy(),
                    batch.column(1).view(pa.int64()).to_numpy(),
                    bounds.astype(np.int64),
                    text,
                    hash[starts[0] : starts[-1]].reshape(-1, width),
                    {},
                )
    except (OSError, pa.ArrowException) as error:
        raise Unusable(f"{file}: {' '.join(str(error).split())}") from error


def digest_name(index: str) -> str:
    """The file in the cache that keeps a data file's sha256, by the name of its index."""
    return f"{index}.sha256"


def known_digest(cache: Path, collection: Collection, file: Path) -> str | None:
    """The sha256 of a data file as it was computed once, in hex; None where it was not."""
    with suppress(OSError):
        return (cache / digest_name(index_name(collection, file))).read_text()
    return None


def digest(cache: Path, collection: Collection, file: Path) -> str:
    """The sha256 of a data file in hex, computed once and kept; raises OSError.

    A data file never changes and its name is never used again, so neither does what is kept.
    """
    known = known_digest(cache, collection, file)
    if known is not None:
        return known
    with file.open("rb") as data:
        found = hashlib.file_digest(data, "sha256").hexdigest()
    kept = cache / digest_name(index_name(collection, file))
    written = kept.with_name(f".{kept.name}.{os.getpid()}")
    with suppress(OSError):  # on a full disk it is computed again
        written.write_text(found)
        written.rename(kept)
    return found
