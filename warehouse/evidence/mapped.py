"""A file of columns that readers map: contracts and usage beside the sightings, indexes and summaries in the cache.

::

    8 bytes                     how long the next line is
    {"name": [dtype, rows, width], ...}     the columns in their order, padded to 8 bytes
    column after column         each padded to 8 bytes; a row of a column is one value of its dtype, or ``width`` of them

A file never changes once it is named. Whoever opens one compares its digest or checksum first: a flipped bit in a column
that ends ranges would point outside of another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from sigdir.signatures.arrow import Array
from sigdir.signatures.columns import as_readonly
from sigdir.warehouse.log.manifest import MappedFile
from sigdir.warehouse.table.parquet import require_whole

Columns = Mapping[str, Array]

Shapes = Mapping[str, tuple[str, int, int | None]]
"""For each column its dtype, its rows, and its width: how many values a row has, None for one."""

_ALIGNMENT = 8
_SMALL_BYTES = 1 << 14
PIECE_ROWS = 1 << 16


def create_columns(path: Path, shapes: Shapes) -> Columns:
    """Make a file of these columns, to be filled; raises OSError where the disk has no room."""
    head = json.dumps(shapes).encode()
    head += b" " * (-len(head) % _ALIGNMENT)
    places, size = _places(shapes, _ALIGNMENT + len(head))
    with path.open("wb") as file:
        file.write(len(head).to_bytes(_ALIGNMENT, "little") + head)
        file.flush()
        os.posix_fallocate(file.fileno(), 0, size)  # on a full disk this is an error, writing to a hole is a SIGBUS
    return _columns(map_bytes(path, "r+"), shapes, places)


def write_columns(path: Path, columns: Columns) -> None:
    """Make a file of these columns, whose rows have one value each."""
    made = create_columns(path, {name: (column.dtype.str, len(column), None) for name, column in columns.items()})
    for name, column in columns.items():
        made[name][:] = column


def open_columns(file: MappedFile) -> Columns:
    """The columns of a file that a manifest names, mapped; raises UnreadableWarehouse where it is not as it was written."""
    return _opened(file.path, file.sha256)


@lru_cache(maxsize=256)
def _opened(path: Path, sha256: str) -> Columns:
    require_whole(path, sha256)
    return mapped_columns(path)


def mapped_columns(path: Path) -> Columns:
    """The columns of a file that is known to be whole; raises OSError where it is missing."""
    raw = map_bytes(path)
    length = int.from_bytes(raw[:_ALIGNMENT].tobytes(), "little")
    shapes = json.loads(raw[_ALIGNMENT : _ALIGNMENT + length].tobytes())
    return _columns(raw, shapes, _places(shapes, _ALIGNMENT + length)[0])


def map_bytes(path: Path, mode: Literal["r", "r+"] = "r") -> Array:
    """The bytes of a file as a plain array: numpy's memmap class costs a microsecond a slice.

    A mapping holds a descriptor for as long as it lives. A warehouse of many small versions has ten files for each of its
    data files, so what is small is read.
    """
    if mode == "r" and path.stat().st_size <= _SMALL_BYTES:
        return as_readonly(np.fromfile(path, np.uint8))
    return np.asarray(np.memmap(path, np.uint8, mode))


def _places(shapes: Shapes, start: int) -> tuple[list[int], int]:
    """Where each column begins, and the size of the file."""
    places = []
    for dtype, rows, width in shapes.values():
        places.append(start)
        start += rows * (1 if width is None else width) * np.dtype(dtype).itemsize
        start += -start % _ALIGNMENT
    return places, start


def _columns(raw: Array, shapes: Shapes, places: list[int]) -> Columns:
    found: dict[str, Array] = {}
    for (name, (dtype, rows, width)), start in zip(shapes.items(), places, strict=True):
        size = rows * (1 if width is None else width) * np.dtype(dtype).itemsize
        column = raw[start : start + size].view(dtype)
        found[name] = column if width is None else column.reshape(rows, width)
    return found


def numbers_of(packed: Array) -> npt.NDArray[np.int64]:
    """Numbers that are written in as few bytes as the largest needs: uint8 of (rows, bytes); all 0 in no byte."""
    rows, width = packed.shape
    wide = np.zeros((rows, 8), np.uint8)
    wide[:, :width] = packed
    return wide.view("<i8")[:, 0]


def packed_numbers(numbers: Array, width: int) -> Array:
    """The reverse, in so many bytes."""
    return np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(-1, 8)[:, :width]


def bytes_for(largest: int) -> int:
    """The bytes that numbers up to this one need."""
    return (largest.bit_length() + 7) // 8


def rows_between(column: Array, wanted: bytes, first: int = 0, last: int | None = None) -> tuple[int, int]:
    """The rows of a sorted column of bytes, from ``first`` up to ``last``, that have this value, as a half-open range."""
    part, value = column[first:last], np.array([wanted], column.dtype)
    return first + int(part.searchsorted(value)[0]), first + int(part.searchsorted(value, side="right")[0])


def raw_bytes(column: Array) -> npt.NDArray[np.uint8]:
    """The values of a column of bytes as uint8 of (rows, size)."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize)


def pieces_of(column: Array) -> Iterator[slice]:
    """The rows of a column, PIECE_ROWS at a time."""
    for first in range(0, len(column), PIECE_ROWS):
        yield slice(first, min(first + PIECE_ROWS, len(column)))
