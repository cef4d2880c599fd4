"""Arrow arrays and numpy's, without pandas: ``pa.array``, ``pa.scalar`` and ``to_numpy`` load it, 0.25 s of each process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]
"""An array whose kind its user says."""


def numbers(values: npt.NDArray[Any], is_valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Integers or flags; integers are not copied. Without ``is_valid`` none is null."""
    data = np.packbits(values, bitorder="little") if values.dtype == np.bool_ else np.ascontiguousarray(values)
    bitmap = None if is_valid is None else validity(is_valid)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bitmap, pa.py_buffer(data)])


def values(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Integers or flags as numpy has them, integers without a copy; a null is any value."""
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    rows, data = len(column), column.buffers()[1]
    if pa.types.is_boolean(column.type):
        bits = np.unpackbits(np.frombuffer(data or b"", np.uint8), bitorder="little")
        return bits[column.offset : column.offset + rows].view(np.bool_)
    found: npt.NDArray[Any] = np.from_dlpack(
        pa.Array.from_buffers(column.type, rows, [None, data], offset=column.offset)
    )
    return found


def strings(texts: Sequence[str | None]) -> pa.StringArray:
    """Texts, None for a null; together at most 2 GiB."""
    parts = [(text or "").encode() for text in texts]
    return pa.StringArray.from_buffers(
        len(parts), pa.py_buffer(_offsets(map(len, parts))), pa.py_buffer(b"".join(parts)),
        validity(np.array([text is not None for text in texts], np.bool_)),
    )  # fmt: skip


def blobs(parts: Sequence[bytes]) -> pa.BinaryArray:
    """Values of bytes, together at most 2 GiB."""
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(parts), [None, pa.py_buffer(_offsets(map(len, parts))), pa.py_buffer(b"".join(parts))]
    )


def text(value: str) -> pa.StringScalar:
    """A text where a compute function wants a scalar: a plain ``str`` would load pandas."""
    return strings([value])[0]


def validity(is_valid: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """The bitmap of a column whose other values are null; None where none is."""
    return None if is_valid.all() else numbers(is_valid).buffers()[1]


def string_lists(lists: Sequence[Sequence[str]]) -> pa.ListArray:
    """Lists of texts."""
    values = strings([text for each in lists for text in each])
    return pa.ListArray.from_arrays(numbers(_offsets(map(len, lists))), values)


def _offsets(lengths: Any) -> npt.NDArray[np.int32]:
    return np.cumsum([0, *lengths], dtype=np.int32)
