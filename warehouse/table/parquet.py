"""Parquet files: the columns of data files, rejects files and evidence files; writing data files; reading any."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers, text
from sigdir.signatures.collections import Collection
from sigdir.signatures.interruption import check, each
from sigdir.warehouse.table.errors import UnreadableWarehouse, first_line
from sigdir.warehouse.table.fields import STORED, DataFile
from sigdir.warehouse.table.files import sync

_TYPES = {str(type): type for type in (pa.int64(), pa.timestamp("us", tz="UTC"), pa.string(), pa.binary())}

FILE_SCHEMA: Final = pa.schema([pa.field(field.name, _TYPES[field.type.arrow], nullable=False) for field in STORED])
"""A data file's columns."""

REJECT_SCHEMA: Final = pa.schema(
    [
        pa.field("collection", pa.string()),
        pa.field("text", pa.string()),
        pa.field("reason", pa.dictionary(pa.int8(), pa.string())),
        pa.field("position", pa.int32()),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("line", pa.int64()),
    ]
)
"""A rejects file. ``position`` is the column (from 1, in bytes of the text) where the problem
was found, 0 where the entry as a whole is wrong. ``line`` counts lines from 1, or entries where the
input has no lines (a JSON document, Parquet). Bytes that are not UTF-8 are written as ``\\xNN``."""

SIGHTING_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("import_id", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("witness", pa.int8(), nullable=False),
        pa.field("contracts", pa.int32(), nullable=False),
        pa.field("verified", pa.bool_(), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("contract", pa.dictionary(pa.int32(), pa.string())),
        pa.field("contract_key", pa.int64()),
        pa.field("display", pa.string()),
        pa.field("declaration", pa.string()),
    ]
)
"""An evidence file: a row a sighting. ``id`` is the text's id in the file's collection, ``source`` the source's number
in the manifest, ``import_id`` 0 for a POST. ``kind`` and ``witness`` are the numbers of ``signatures/evidence.py``.
``contracts`` is the source's own count of contracts that it does not name, ``file`` the input's name, null where it is
the source's label, ``contract_key`` the eight bytes of the contract's key as a number, ``display`` how a call is shown to whoever signs it,
as JSON. Declarations are plain: a
dictionary of a million of them is written again with each row group, which took half of an import's time."""


ROW_GROUP_ROWS = 100_000
"""DuckDB skips and parallelises by row group. With groups of 8 k rows, reading a page costs twice as much."""

# Measured on 5 M realistic rows (CPU seconds, MB). Plain text and hash with zstd 1: 0.80, 96. The hash as
# lengths and bytes apart: 0.87, 74; this is what we write. lz4: 0.75, 127. Level 3 costs 8 % time for 3 % of
# size. Checksums cost nothing that could be measured. No bloom filters: DuckDB 1.5 reads those of bytes wrongly, and finds
# no row by a hash that is there.
_OPTIONS: dict[str, Any] = {
    "compression": {name: "none" if name == "hash" else "zstd" for name in FILE_SCHEMA.names},
    "compression_level": {name: 1 for name in FILE_SCHEMA.names if name != "hash"},
    "use_dictionary": ["import_id"],
    "column_encoding": {
        "id": "DELTA_BINARY_PACKED",
        "created_at": "DELTA_BINARY_PACKED",
        "hash": "DELTA_LENGTH_BYTE_ARRAY",
    },
    "write_statistics": ["id", "created_at", "hash", "import_id"],
    "write_page_index": True,
    "write_page_checksum": True,
    "version": "2.6",
}


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows to write: canonical texts and their stored hashes, both columns of one length."""

    text: pa.StringArray
    hash: pa.BinaryArray


def rows_table(rows: NewRows, ids: np.ndarray[Any, Any], created_at: np.ndarray[Any, Any], import_id: int) -> pa.Table:
    """Assemble the columns of a data file; ``ids`` and ``created_at`` are int64."""
    columns = {
        "id": numbers(ids),
        "created_at": numbers(created_at).view(pa.timestamp("us", tz="UTC")),
        "text_signature": rows.text,
        "hash": rows.hash,
        "import_id": numbers(np.full(len(ids), import_id, np.int64)),
    }
    return pa.table(columns, schema=FILE_SCHEMA)


def write_data_file(path: Path, collection: Collection, tables: Iterable[pa.Table]) -> DataFile:
    """Write and sync one data file, which no commit names yet, from tables whose ids rise. At least one row must come."""
    import pyarrow.parquet as pq  # 11 ms with its file systems, which reading the log and SQL do without

    with pq.ParquetWriter(path, FILE_SCHEMA, **_OPTIONS) as writer:
        for group in row_groups(tables):
            writer.write_table(group, row_group_size=group.num_rows)
    sync(path)
    return described(path, collection, sha256_of(path))


def described(path: Path, collection: Collection, sha256: str | None = None) -> DataFile:
    """A data file of ours by its own statistics; raises UnreadableWarehouse."""
    import pyarrow.parquet as pq

    places = [FILE_SCHEMA.get_field_index(name) for name in ("id", "created_at")]
    with naming(path):
        about = pq.read_metadata(path)
        first, last = about.row_group(0), about.row_group(about.num_row_groups - 1)
        first_id, first_created_at = (first.column(at).statistics.min_raw for at in places)
        last_id, last_created_at = (last.column(at).statistics.max_raw for at in places)
    size = path.stat().st_size
    return DataFile(
        path, collection, about.num_rows, size, first_id, last_id, first_created_at, last_created_at, sha256
    )


def file_bytes(tables: Iterable[pa.Table]) -> Iterator[bytes]:
    """The bytes of a data file, a row group at a time (3 MB), without writing a file."""
    import pyarrow.parquet as pq

    written = io.BytesIO()

    def taken() -> bytes:
        """What was written since the last call; the writer counts its bytes itself."""
        found = written.getvalue()
        written.seek(0)
        written.truncate()
        return found

    with pq.ParquetWriter(written, FILE_SCHEMA, **_OPTIONS) as writer:
        for group in row_groups(tables):
            writer.write_table(group, row_group_size=group.num_rows)
            yield taken()
    yield taken()


def sha256_of(path: Path) -> str:
    """The digest of a whole file, in hex.

    The checksums of pages do not cover the headers and the footer, by which readers skip rows.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn errors of reading a Parquet file into UnreadableWarehouse, naming the file.

    A damaged footer causes LookupError and ValueError too.
    """
    check()
    try:
        yield
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        raise UnreadableWarehouse(f"{path}: {first_line(error)}") from error


_PIECE_ROWS = 1 << 14
_ORDINARY_GROUP_BYTES = 16 << 20
_PIECE_ROWS_OF_LONG_TEXTS = 1 << 8  # 16 MB, where each text has 64 KiB


def batches_in(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Rows of a Parquet file in their order, the checksums of its pages checked; raises UnreadableWarehouse."""
    import pyarrow.parquet as pq

    # By default pyarrow reads the whole file before the first row: 76 MB of memory instead of 3.
    with naming(path), pq.ParquetFile(path, page_checksum_verification=True, pre_buffer=False) as parquet:
        for group in range(parquet.num_row_groups):
            size = parquet.metadata.row_group(group).total_byte_size
            rows = _PIECE_ROWS if size <= _ORDINARY_GROUP_BYTES else _PIECE_ROWS_OF_LONG_TEXTS
            yield from each(parquet.iter_batches(rows, [group], columns=columns, use_threads=False))


def require_whole(path: Path, sha256: str | None) -> None:
    """Raise UnreadableWarehouse where a file is missing, or not as it was written; None where that is not recorded."""
    with naming(path):
        if sha256 not in (None, sha256_of(path)):
            raise UnreadableWarehouse(f"{path}: damaged: these are not the bytes that were written")


def row_groups(tables: Iterable[pa.Table]) -> Iterable[pa.Table]:
    """Cut a stream of tables into row groups of one size, the last one up to half as large again."""
    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        check()
        held.append(table)
        rows += table.num_rows
        while rows >= ROW_GROUP_ROWS * 3 // 2:
            joined = pa.concat_tables(held)
            yield joined.slice(0, ROW_GROUP_ROWS)
            held = [joined.slice(ROW_GROUP_ROWS)]
            rows -= ROW_GROUP_ROWS
    if rows:
        yield pa.concat_tables(held)


# Rejects files: the rejected candidates of one import.


class RejectsWriter:
    """Writes the rejects of a run as they come; the file is created with the first of them.

    ``finish`` returns a digest by which a later run finds out that it rejects the same rows of the same files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self._digest = hashlib.sha256()
        self._writer: Any = None

    def append(self, rows: pa.Table) -> None:
        """Add rows with the columns of REJECT_SCHEMA."""
        if not rows.num_rows:
            return
        if self._writer is None:
            import pyarrow.parquet as pq

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
    import pyarrow.compute as pc

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
