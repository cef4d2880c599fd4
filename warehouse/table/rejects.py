"""Rejects files: the rejected candidates of one import."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.arrow import text
from sigdir.warehouse.table.parquet import REJECT_SCHEMA, batches_in


class RejectsWriter:
    """Writes the rejects of a run as they come; the file is created with the first of them.

    ``finish`` returns a digest by which a later run finds out that it rejects the same rows of the same files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._digest = hashlib.sha256()
        self._writer: pq.ParquetWriter | None = None

    def append(self, rows: pa.Table) -> None:
        """Add rows with the columns of REJECT_SCHEMA."""
        if not rows.num_rows:
            return
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self.path,
                REJECT_SCHEMA,
                compression="zstd",
                compression_level=1,
                use_dictionary=["collection", "reason", "file"],
                write_statistics=["reason", "line"],
                write_page_checksum=True,
            )
        self._writer.write_table(rows.cast(REJECT_SCHEMA))
        self.rows += rows.num_rows
        self._digest.update(_bytes_of(rows))

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._writer is not None and self._writer.is_open:
            self._writer.close()

    def finish(self) -> str | None:
        """Close the file and give the digest (hex) of its rows; None if there are none."""
        if self._writer is None:
            return None
        self._writer.close()
        return self._digest.hexdigest()


def _bytes_of(rows: pa.Table) -> pa.Buffer:
    """The bytes for the digest, the same however the rows are cut into tables."""
    fields = [rows[name].cast(pa.string()) for name in ("file", "line", "reason", "position", "text")]
    return pc.binary_join_element_wise(*fields, text("\n"), text("\0")).combine_chunks().buffers()[2]


def rows_and_digest(path: Path) -> tuple[int, str]:
    """How many rows a rejects file has, and their digest (hex); raises UnreadableWarehouse."""
    rows, digest = 0, hashlib.sha256()
    for table in rejects_in(path):
        rows += table.num_rows
        digest.update(_bytes_of(table))
    return rows, digest.hexdigest()


def rejects_in(path: Path) -> Iterator[pa.Table]:
    """The rows of a rejects file in tables of bounded size; raises UnreadableWarehouse."""
    yield from (pa.table(batch) for batch in batches_in(path) if batch.num_rows)
