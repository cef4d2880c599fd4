"""Parquet with a column of signatures, as in our own data files, or with Sourcify's v2 columns.

``signature_hash_32`` is the keccak-256 of functions and events alike, so it does not tell the kinds
apart. The other table of Sourcify's export does, which an import reads together with this one: see ``sourcify.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from types import TracebackType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.pipeline.errors import BadInput, NeedsOthers
from sigdir.pipeline.formats.parquet_pages import largest_page
from sigdir.pipeline.formats.sourcify import COLUMNS, READ_OF_COMPILED, SIGNATURES, SourcifyTables
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Table
from sigdir.pipeline.source import BLOCK_BYTES, PIECE_BLOCKS, UNPACKED_RATIO, Source
from sigdir.signatures.candidates import BATCH_ROWS, Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY, MAX_TEXT_BYTES
from sigdir.warehouse.sql.scratch import ScratchTables

_BATCH_BYTES = 1 << 25
_UNCHECKED_BYTES = 1 << 30
_PAGE_BYTES = 1 << 27
"""The largest page once it is unpacked; a text has at most 64 KiB, and writers end pages at 1 MiB."""
_OTHER_VALUE = object()
"""Stands in a sample for a value that is neither text nor a number."""


def looks_like(source: Source) -> bool:
    return source.head.startswith(b"PAR1")


def read(source: Source) -> Iterator[Candidates]:
    """The candidates of one file alone."""
    with _open_table(source) as table:
        yield from pack(_entries(table), source.number)


def pieces(source: Source) -> list[range]:
    """The pieces of a table that is read by itself, as rows; each but the last has whole batches."""
    with _open_table(source) as table:
        rows = table.file.metadata.num_rows
        if _sourcify_table(table) is not None or not rows:
            return []
        step = max(1, PIECE_BLOCKS * BLOCK_BYTES * rows // max(1, source.size) // BATCH_ROWS) * BATCH_ROWS
        return [range(first, min(first + step, rows)) for first in range(0, rows, step)]


class ParquetFiles(AbstractContextManager["ParquetFiles"]):
    """The Parquet files of one import. The tables of Sourcify's export are read together, after all other inputs."""

    def __init__(self, make_tables: Callable[[], ScratchTables], is_alone: bool = False) -> None:
        self._make_tables = make_tables
        self._is_alone = is_alone
        self._sourcify: SourcifyTables | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sourcify is not None:
            self._sourcify.__exit__(kind, error, trace)

    def add(self, source: Source) -> Iterator[Candidates]:
        """The candidates of a file; none yet if it is a table of Sourcify's."""
        with _open_table(source) as table:
            name = _sourcify_table(table)
            if name is None:
                yield from pack(_entries(table), source.number)
                return
            if self._is_alone:
                raise NeedsOthers(name)
            if self._sourcify is None:
                self._sourcify = SourcifyTables(self._make_tables())
            if name == SIGNATURES:
                self._sourcify.add_texts(source, _entries(table))
            else:
                self._sourcify.add_compiled(source, table.batches(list(READ_OF_COMPILED)))

    def read(self) -> Iterator[Candidates]:
        """The candidates of Sourcify's tables."""
        return self._sourcify.read() if self._sourcify is not None else iter(())


def _sourcify_table(table: _File) -> str | None:
    """Which of Sourcify's tables it is; None for another one."""
    if table.source.columns:
        return None
    return next((name for name, columns in COLUMNS.items() if {*columns} <= {*table.names}), None)


@dataclass(frozen=True)
class _File:
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
        return _batches(self.stored, self.file, columns, self.source.piece)

    def head(self) -> Table:
        """The names of the columns and the first rows. Of pages that take much memory nothing is read."""
        fields = [field for field in self.file.schema_arrow if self.names.count(field.name) == 1]
        plain = [field.name for field in fields if _is_plain(field.type) and self._is_small(field.name)]
        rows: list[tuple[Any, ...]] = []
        for batch in _batches(self.stored, self.file, plain, None) if plain else ():
            shown = batch.slice(0, SAMPLE_ROWS - len(rows))
            columns = {name: _values(shown.column(name)) for name in plain}
            nothing = [_OTHER_VALUE] * shown.num_rows
            rows += zip(*(columns.get(name, nothing) for name in self.names), strict=True)
            if len(rows) == SAMPLE_ROWS:
                break
        return Table(self.names, rows, self.source.columns)

    def _is_small(self, name: str) -> bool:
        groups = [self.file.metadata.row_group(number) for number in range(self.file.metadata.num_row_groups)]
        columns = [group.column(number) for group in groups for number in range(group.num_columns)]
        of_name = (column for column in columns if column.path_in_schema == name)
        return all(largest_page(self.stored, column) <= _PAGE_BYTES for column in of_name)


@contextmanager
def _open_table(source: Source) -> Iterator[_File]:
    """Raises BadInput for what is no Parquet, here and while it is read."""
    with source.seekable() as stored:
        try:
            yield _File(source, stored, pq.ParquetFile(stored))
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).partition("\n")[0]
            raise BadInput(source.name, f"broken Parquet: {reason}") from None


def _entries(table: _File) -> Iterator[Entry]:
    source, names = table.source, table.names
    head = table.head()
    columns = head.columns(is_named=True)
    if columns is None:
        raise head.refusal(source)
    batches = table.batches([names[at] for at in columns.read])
    most_bytes = max(_UNCHECKED_BYTES, UNPACKED_RATIO * table.stored.seek(0, os.SEEK_END))
    number, total = source.piece.start if source.piece is not None else 0, 0
    for batch in batches:
        texts, kinds, *hashes = (
            _bytes(batch.column(names[at])) if at is not None else [None] * batch.num_rows
            for at in (columns.text, columns.kind, *columns.hashes)
        )
        for text, kind, *written in zip(texts, kinds, *hashes, strict=True):
            number += 1
            if text is None:
                yield Entry(b"", number, reject_reason=BAD_ENTRY)
            else:
                total += len(text)
                yield columns.entry(text, number, written, kind)
        if total > most_bytes:
            reason = f"its texts have over {UNPACKED_RATIO:,} times its size"
            raise BadInput(source.name, reason, f"row {number:,}")


def _check_pages(source: Source, stored: BinaryIO, metadata: pq.FileMetaData, columns: list[str]) -> None:
    """Refuse pages that would take too much memory, in what is read of the file, and chunks that are read twice."""
    left = stored.seek(0, os.SEEK_END)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    of_piece, _ = _groups_of(groups, source.piece)
    for group, row_group in enumerate(groups):
        is_read = group in of_piece
        for column in (row_group.column(number) for number in range(row_group.num_columns)):
            left -= column.total_compressed_size
            if left < 0 or column.total_compressed_size < 0:
                raise BadInput(source.name, "its column chunks overlap", f"row group {group + 1:,}")
            is_checked = is_read and column.path_in_schema in columns
            if is_checked and (size := largest_page(stored, column)) > _PAGE_BYTES:
                reason = f"a page of {size >> 20:,} MiB in column {column.path_in_schema}; write smaller pages"
                raise BadInput(source.name, reason, f"row group {group + 1:,}")


def _batches(
    stored: BinaryIO, file: pq.ParquetFile, columns: list[str], piece: range | None
) -> Iterator[pa.RecordBatch]:
    """The columns in batches of bounded size, however large the rows are; of the rows ``piece``, None for all.

    Text and hashes are read as dictionaries, because a value that occurs 60,000 times in a page would
    be copied 60,000 times. Encodings that Arrow cannot read so (delta) are read as plain values from
    the first such page on. The size of the row groups decides the number of rows of a batch. A row group
    is as large as the format allows. The statistics of the columns are not read:
    Arrow ends the process if they are broken.
    """
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    size_of_row = max((group.total_byte_size // max(1, group.num_rows) for group in groups), default=0)
    rows = max(1, min(BATCH_ROWS, _BATCH_BYTES // max(1, size_of_row)))
    repeating = [name for name in columns if _is_bytes(file.schema_arrow.field(name).type)]
    numbers, first = _groups_of(groups, piece)
    last = file.metadata.num_rows if piece is None else piece.stop
    done = first if piece is None else piece.start
    reopened = pq.ParquetFile(
        stored, metadata=file.metadata, read_dictionary=repeating, page_checksum_verification=True
    )
    try:
        for batch in _rows(reopened.iter_batches(rows, row_groups=numbers, columns=columns), first, done, last):
            yield batch
            done += batch.num_rows
    except (pa.ArrowNotImplementedError, OSError) as error:
        if "Not yet implemented" not in str(error):
            raise
        plain = pq.ParquetFile(stored, metadata=file.metadata, page_checksum_verification=True)
        yield from _rows(plain.iter_batches(rows, row_groups=numbers, columns=columns), first, done, last)


def _groups_of(groups: list[pq.RowGroupMetaData], piece: range | None) -> tuple[list[int], int]:
    """The numbers of the row groups that have rows of a piece, and the number of the first row of the first one."""
    ends = list(accumulate(group.num_rows for group in groups))
    if piece is None:
        return list(range(len(groups))), 0
    found = [n for n, end in enumerate(ends) if end > piece.start and end - groups[n].num_rows < piece.stop]
    return found, ends[found[0]] - groups[found[0]].num_rows if found else 0


def _rows(batches: Iterator[pa.RecordBatch], number: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The rows ``first`` up to and without ``last``; the batches begin with row ``number``."""
    for batch in batches:
        inside = batch.slice(max(0, first - number), max(0, last - max(first, number)))
        number += batch.num_rows
        if inside.num_rows:
            yield inside
        if number >= last:
            return


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (
        pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(),
    )  # fmt: skip


def _bytes(column: pa.Array) -> list[bytes | None]:
    """The values as bytes. Text too, because a string column may hold invalid UTF-8.

    A value of another type is None. If the column would be too large, values that are longer than any
    text may be are cut.
    """
    if not pa.types.is_dictionary(column.type):
        return _plain_bytes(column)
    values, indices = column.dictionary, column.indices
    if not _is_bytes(values.type):
        return _plain_bytes(values.take(indices))
    lengths = pc.binary_length(values).take(indices)
    if (pc.sum(lengths.cast(pa.int64())).as_py() or 0) <= _BATCH_BYTES:
        return _plain_bytes(values.take(indices))
    cut = [value and value[: MAX_TEXT_BYTES + 1] for value in _plain_bytes(values)]
    return [cut[at] if at is not None else None for at in indices.to_pylist()]


def _plain_bytes(column: pa.Array) -> list[bytes | None]:
    kind = column.type
    if _is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
        return values
    return [None] * len(column)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column has one value a row that is text, a hash or a number."""
    of_values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _is_bytes(of_values) or pa.types.is_fixed_size_binary(of_values) or _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _values(column: pa.Array) -> list[Any]:
    return column.to_pylist() if _is_number(column.type) else _bytes(column)
