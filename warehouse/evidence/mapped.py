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
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from sigdir.signatures.arrow import Array
from sigdir.warehouse.log.manifest import MappedFile
from sigdir.warehouse.table.files import FileLock, make_folder, sync
from sigdir.warehouse.table.parquet import require_whole
from sigdir.warehouse.table.paths import index_lock, index_part

Columns = Mapping[str, Array]

Shapes = Mapping[str, tuple[str, int, int | None]]
"""For each column its dtype, its rows, and its width: how many values a row has, None for one."""

_ALIGNMENT = 8
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
    """The bytes of a file as a plain array: numpy's memmap class costs a microsecond a slice."""
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


# Folders in the cache, derived from data files: built under another name, checked by their bytes.
#
# A folder has its final name only when it is complete and synced, and it never changes. ``checksums.json`` has the CRC-32 of
# each of its files: it finds damage, and is no defence against someone who can write there. Reading and comparing takes
# 0.3 ms a megabyte, with sha256 0.9. A folder is used only if its files are as they were written; otherwise whoever needs it
# builds it again. A flipped bit in a column would let a known text be POSTed again, give a wrong answer, or point outside of
# the columns, which kills the process. So each worker reads all columns once.

_PIECE_BYTES = 1 << 18


def checksum_of(path: Path) -> int:
    """The CRC-32 of a file; raises OSError."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
    return found


CHECKSUMS = "checksums.json"


BROKEN = (OSError, ValueError, EOFError)
"""What opening a folder raises that is missing, or not as it was written."""

Opened = TypeVar("Opened")


def opened(folders: Iterable[Path], open: Callable[[Path], Opened]) -> Opened | None:
    """What ``open`` gives of the first of these folders that is there and whole; None for none."""
    for folder in folders:
        with suppress(*BROKEN):
            return open(folder)
    return None


def build(folder: Path, index: Path, open: Callable[[Path], Opened], write: Callable[[Path], Iterable[str]]) -> Opened:
    """Make a folder unless another process was faster, and give what ``open`` gives of it.

    ``write`` fills a folder and gives the names of its files. Folders of one ``index`` are built, opened and removed one
    after the other.
    """
    make_folder(folder.parent)
    with FileLock(index_lock(index), is_needed=False):
        found = opened([folder], open)
        if found is not None:
            return found
        part = index_part(folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
        part.mkdir()
        try:
            checksums = {name: checksum_of(part / name) for name in write(part)}
            (part / CHECKSUMS).write_text(json.dumps(checksums))
            # Without this a power loss could leave files of the right size without their bytes, unnoticed.
            for file in (*part.iterdir(), part):
                sync(file)
            part.rename(folder)
            return open(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def require_written(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError or OSError where a file is not as it was written."""
    checksums = json.loads((folder / CHECKSUMS).read_bytes())
    for name in names:
        if not isinstance(checksums, dict) or checksums.get(name) != checksum_of(folder / name):
            raise ValueError(f"{folder / name} is not as it was written")
