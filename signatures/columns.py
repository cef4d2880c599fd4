"""Texts and hashes as columns: the rows between the kernels and the files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array, validity
from sigdir.signatures.sightings import Sightings

HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two digits of each byte."""


def as_readonly(array: Array) -> Array:
    """A read-only view of an array.

    numba compiles a kernel once for writable arrays and once for read-only ones, the grammar 20 s each time. What
    is mapped from a file or comes from Arrow is read-only, so a kernel is given all its inputs as such.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets and bytes of a string or binary column that has rows, and no nulls.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
    """
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    # A column of nothing but empty texts may have no data buffer at all.
    return bounds, np.frombuffer(data or b"", np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """Accepted rows of one collection: canonical texts, and what their source says about them.

    ``sightings`` is None if the source says nothing but the text about any row.
    """

    text: pa.StringArray
    sightings: Sightings | None = None


def binary_column(rows: Array, is_valid: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """Values of one size, uint8 of (rows, size), as a column; those that are not valid are null."""
    count, size = rows.shape
    bitmap = None if is_valid is None else validity(is_valid)
    fixed = pa.Array.from_buffers(pa.binary(size), count, [bitmap, pa.py_buffer(np.ascontiguousarray(rows))])
    return fixed.cast(pa.binary())


def fixed_bytes(column: pa.Array, size: int) -> Array:
    """The values of a column of bytes without nulls, all of one size."""
    if not len(column):
        return np.empty(0, f"S{size}")
    offsets, data = column.buffers()[1:]
    start = int(np.frombuffer(offsets, np.int32)[column.offset])
    return np.frombuffer(data, np.uint8)[start : start + size * len(column)].view(f"S{size}")
