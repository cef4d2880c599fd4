"""The sizes of a Parquet column's pages, which only the page headers tell.

Arrow unpacks a page as a whole, and each value of it is copied four times before it can be cut. A value of 500 MB
took 2.6 GB. So the headers are read first: a few hundred bytes for each megabyte of an ordinary file.

Source: parquet.thrift, ``PageHeader`` (2: uncompressed_page_size, 3: compressed_page_size), and Thrift's compact
protocol, in which the headers are written.
"""

from __future__ import annotations

from typing import BinaryIO

import pyarrow.parquet as pq

_FIRST_READ, _MOST_READ = 1 << 10, 1 << 24
"""How much is read of a header at first and at most; statistics in it may be long."""
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_UNPACKED_SIZE, _PACKED_SIZE = 2, 3
_VARINT_BYTES = 10


def largest_page(file: BinaryIO, column: pq.ColumnChunkMetaData) -> int:
    """The bytes of the column chunk's largest page once it is unpacked. Raises ValueError if a header is broken."""
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
