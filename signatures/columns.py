"""Texts, hashes and keys as columns: the rows between the kernels and the files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import Collection
from sigdir.signatures.sightings import Sightings

KEY_BYTES = 16

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
class Keys:
    """Keys as two columns of uint64, of one length."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]


def keys_of(digests: npt.NDArray[np.uint8]) -> Keys:
    """The keys of digests, uint8 of shape (rows, 32)."""
    words = np.ascontiguousarray(digests[:, :KEY_BYTES]).view(np.uint64)
    return Keys(words[:, 0], words[:, 1])


@dataclass(frozen=True, slots=True)
class Rows:
    """Accepted rows of one collection: canonical text, stored hash, key.

    ``hash`` is uint8 of shape (rows, width of the collection's hash), ``keys`` uint64 of (rows, 2). ``sightings`` is
    None if the source says nothing but the text about any row.
    """

    text: pa.StringArray
    hash: npt.NDArray[np.uint8]
    keys: npt.NDArray[np.uint64]
    sightings: Sightings | None = None

    @classmethod
    def of(
        cls,
        collection: Collection,
        text: pa.StringArray,
        digests: npt.NDArray[np.uint8],
        sightings: Sightings | None = None,
    ) -> Rows:
        """From texts and their digests, uint8 of shape (rows, 32)."""
        width = collection.hash_bytes
        stored = digests if width == 32 else np.ascontiguousarray(digests.view(np.uint32)[:, :1]).view(np.uint8)
        return cls(text, stored, np.ascontiguousarray(digests.view(np.uint64)[:, :2]), sightings)
