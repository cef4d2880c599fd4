"""Parquet with a column of signatures, as in our own data files. The tables of Sourcify's export are read by
``sourcify.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Table
from sigdir.pipeline.source import UNPACKED_RATIO, Source
from sigdir.signatures.candidates import BATCH_ROWS, Entry
from sigdir.signatures.grammar import BAD_ENTRY, MAX_TEXT_BYTES
from sigdir.warehouse.table.errors import first_line

_BATCH_BYTES = 1 << 25
_UNCHECKED_BYTES = 1 << 30
_PAGE_BYTES = 1 << 27
"""The largest page once it is unpacked; a text has at most 64 KiB, and writers end pages at 1 MiB."""
_OTHER_VALUE = object()
"""Stands for a value that is neither text nor a number."""


def looks_like(source: Source) -> bool:
    return source.head.startswith(b"PAR1")


def entries(source: Source) -> Iterator[Entry]:
    with open_table(source) as table:
        yield from rows_of(table)


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file."""

    source: Source
    stored: BinaryIO
    file: pq.ParquetFile

    @property
    def names(self) -> list[str]:
        names: list[str] = self.file.schema_arrow.names
        return names

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns in batches of bounded size. Raises BadInput for what would take too much memory."""
        for name in columns:
            if self.names.count(name) > 1:
                raise BadInput(self.source.name, f"several columns are named {name}")
        _check_pages(self.source, self.stored, self.file.metadata, columns)
        return _batches(self.stored, self.file, columns)

    def head(self) -> Table:
        """The names of the columns and the first rows. Of pages that take much memory nothing is read."""
        fields = [field for field in self.file.schema_arrow if self.names.count(field.name) == 1]
        plain = [field.name for field in fields if _is_plain(field.type) and self._is_small(field.name)]
        if not plain:
            return Table(self.names, [(_OTHER_VALUE,) * len(self.names)], self.source.columns)
        rows: list[tuple[Any, ...]] = []
        for batch in _batches(self.stored, self.file, plain):
            shown = batch.slice(0, SAMPLE_ROWS - len(rows))
            columns = {name: _values(shown.column(name)) for name in plain}
            nothing = [_OTHER_VALUE] * shown.num_rows
            rows += zip(*(columns.get(name, nothing) for name in self.names), strict=True)
            if len(rows) == SAMPLE_ROWS:
                break
        return Table(self.names, rows, self.source.columns)

    def _is_small(self, name: str) -> bool:
        columns = (column for group in _groups(self.file.metadata) for column in _columns(group))
        of_name = (column for column in columns if column.path_in_schema == name)
        return all(largest_page(self.stored, column) <= _PAGE_BYTES for column in of_name)


@contextmanager
def open_table(source: Source) -> Iterator[ParquetTable]:
    """Raises BadInput for what is no Parquet, here and while it is read."""
    with Path(source.on_disk()).open("rb") as stored:
        try:
            yield ParquetTable(source, stored, pq.ParquetFile(stored))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadInput(source.name, f"broken Parquet: {first_line(error)}") from None


def rows_of(table: ParquetTable) -> Iterator[Entry]:
    source, names = table.source, table.names
    columns = table.head().sure_columns(source)
    batches = table.batches([names[at] for at in columns.read])
    most_bytes = max(_UNCHECKED_BYTES, UNPACKED_RATIO * table.stored.seek(0, os.SEEK_END))
    number = total = 0
    for batch in batches:
        texts, kinds, *hashes = (
            _values(batch.column(names[at])) if at is not None else [None] * batch.num_rows
            for at in (columns.text, columns.kind, *columns.hashes)
        )
        for text, kind, *written in zip(texts, kinds, *hashes, strict=True):
            number += 1
            if not isinstance(text, bytes):
                yield Entry(b"", number, reject_reason=BAD_ENTRY)
            else:
                total += len(text)
                yield columns.entry(text, number, written, kind)
        if total > most_bytes:
            reason = f"its texts have over {UNPACKED_RATIO:,} times its size"
            raise BadInput(source.name, reason, f"row {number:,}")


def _check_pages(source: Source, stored: BinaryIO, metadata: pq.FileMetaData, columns: list[str]) -> None:
    """Refuse pages that would take too much memory, and chunks that are read twice."""
    left = stored.seek(0, os.SEEK_END)
    for number, group in enumerate(_groups(metadata), 1):
        for column in _columns(group):
            left -= column.total_compressed_size
            if left < 0 or column.total_compressed_size < 0:
                raise BadInput(source.name, "its column chunks overlap", f"row group {number:,}")
            if column.path_in_schema in columns and (size := largest_page(stored, column)) > _PAGE_BYTES:
                reason = f"a page of {size >> 20:,} MiB in column {column.path_in_schema}; write smaller pages"
                raise BadInput(source.name, reason, f"row group {number:,}")


def _batches(stored: BinaryIO, file: pq.ParquetFile, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """The columns in batches of bounded size, however large the rows are.

    Text and hashes are read as dictionaries, because a value that occurs 60,000 times in a page would
    be copied 60,000 times. Arrow cannot read delta encodings so. The size of the row groups decides the number of
    rows of a batch. A row group is as large as the format allows. The statistics of the columns are not read: Arrow
    ends the process if they are broken.
    """
    groups = _groups(file.metadata)
    size_of_row = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // max(1, size_of_row)))
    delta = {
        column.path_in_schema
        for group in groups
        for column in _columns(group)
        if any(encoding.startswith("DELTA") for encoding in column.encodings)
    }
    repeating = [name for name in columns if name not in delta and _is_bytes(file.schema_arrow.field(name).type)]
    reopened = pq.ParquetFile(
        stored, metadata=file.metadata, read_dictionary=repeating, page_checksum_verification=True
    )
    yield from reopened.iter_batches(rows, columns=columns)


def _groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    return [metadata.row_group(number) for number in range(metadata.num_row_groups)]


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(number) for number in range(group.num_columns)]


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    )  # fmt: skip


def _values(column: pa.Array) -> list[Any]:
    """The values: numbers, and bytes. Text too is bytes, because a string column may hold invalid UTF-8.

    A value of another type is _OTHER_VALUE. If the column would be too large, values that are longer than any
    text may be are cut.
    """
    if not pa.types.is_dictionary(column.type):
        return _plain_values(column)
    values, indices = column.dictionary, column.indices
    if not _is_bytes(values.type):
        return _plain_values(values.take(indices))
    lengths = pc.binary_length(values).take(indices)
    if (pc.sum(lengths.cast(pa.int64())).as_py() or 0) <= _BATCH_BYTES:
        return _plain_values(values.take(indices))
    cut = [value and value[: MAX_TEXT_BYTES + 1] for value in _plain_values(values)]
    return [cut[at] if at is not None else None for at in indices.to_pylist()]


def _plain_values(column: pa.Array) -> list[Any]:
    kind = column.type
    if _is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
        return values
    if _is_number(kind):
        found: list[int | float | None] = column.to_pylist()
        return found
    return [_OTHER_VALUE if is_valid else None for is_valid in column.is_valid().to_pylist()]


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column has one value a row that is text, a hash or a number."""
    of_values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_bytes(of_values) or pa.types.is_fixed_size_binary(of_values) or _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


# The sizes of a Parquet column's pages, which only the page headers tell.
#
# Arrow unpacks a page as a whole, and each value of it is copied four times before it can be cut. A value of 500 MB
# took 2.6 GB. So the headers are read first: a few hundred bytes for each megabyte of an ordinary file.
#
# Source: parquet.thrift, ``PageHeader`` (2: uncompressed_page_size, 3: compressed_page_size), and Thrift's compact
# protocol, in which the headers are written.


_FIRST_READ, _MOST_READ = 1 << 10, 1 << 24
"""How much is read of a header at first and at most; statistics in it may be long."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3
_VARINT_BYTES = 10


def largest_page(file: BinaryIO, column: pq.ColumnChunkMetaData) -> int:
    """The bytes of the column chunk's largest page once it is unpacked. Raises ValueError if a header is broken."""
    if not column.num_values:  # of an empty row group; writers give no place to its pages, and Arrow reads none
        return 0
    at = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < at:
        at = column.dictionary_page_offset
    end = at + column.total_compressed_size
    largest = 0
    while at < end:
        length, fields = _header(file, at, end)
        unpacked, packed = fields.get(_UNPACKED_SIZE, -1), fields.get(_PACKED_SIZE, -1)
        if unpacked < 0 or packed < 0:
            raise ValueError("a page header without sizes")
        largest = max(largest, unpacked)
        at += length + packed
    return largest


def _header(file: BinaryIO, at: int, end: int) -> tuple[int, dict[int, int]]:
    """The length of the header at a position, and its integers by field number."""
    size = _FIRST_READ
    while True:
        file.seek(at)
        data = file.read(min(size, end - at))
        try:
            return _struct(data, 0)
        except IndexError:
            if len(data) < size or size >= _MOST_READ:
                raise ValueError("a page header that does not end") from None
        size *= 16


def _struct(data: bytes, at: int) -> tuple[int, dict[int, int]]:
    """The position after a struct, and its integers by field number. Raises IndexError if ``data`` is too short."""
    found: dict[int, int] = {}
    field = 0
    while kind := data[at] & 15:
        step = data[at] >> 4
        at += 1
        if step:
            field += step
        else:
            field, at = _integer(data, at)
        if kind in _INTEGERS:
            found[field], at = _integer(data, at)
        elif kind == _STRUCT:
            at = _nested_struct(data, at)
        elif kind == _BINARY:
            length, at = _varint(data, at)
            at += length
        elif kind in (_TRUE, _FALSE, _BYTE, _DOUBLE):
            at += {_BYTE: 1, _DOUBLE: 8}.get(kind, 0)
        else:
            raise ValueError(f"a page header with a value of type {kind}")
    return at + 1, found


def _nested_struct(data: bytes, at: int) -> int:
    try:
        return _struct(data, at)[0]
    except RecursionError:
        raise ValueError("a page header that is nested too deeply") from None


def _integer(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    raise ValueError("a number of over ten bytes in a page header")
