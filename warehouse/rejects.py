"""Rejected candidates on their way into a rejects file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from warehouse.schema import REJECT_SCHEMA


class RejectsWriter:
    """Writes the rejects of a run as they come; the file is made with the first of them.

    ``digest`` afterwards tells whether two runs rejected the same rows of the same files.
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
        fields = [rows[name].cast(pa.string()) for name in ("file", "line", "reason", "position", "text")]
        joined = pc.binary_join_element_wise(*fields, "\n", "\0").combine_chunks()
        self._digest.update(joined.buffers()[2])

    def close(self) -> None:
        """Let go of the file, finished or not."""
        if self._writer is not None and self._writer.is_open:
            self._writer.close()

    def finish(self) -> str | None:
        """Close the file and give the digest (hex) of its rows; None where there are none."""
        if self._writer is None:
            return None
        self._writer.close()
        return self._digest.hexdigest()
