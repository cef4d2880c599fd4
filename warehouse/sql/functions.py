"""SQL functions over whole columns: keccak256, selector, topic0, canonical.

::

    Warehouse("data").sql("SELECT selector('f(uint)')")

Each runs the code of an import. Hashes are written as in the views: 0x and lower case. A text that the grammar
refuses has no canonical form, selector or topic; the answer is NULL, as it is for NULL. Such functions are run on
other people's lists, and one bad line should not end the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sigdir.signatures.arrow import Array, validity
from sigdir.signatures.columns import bytes_of

if TYPE_CHECKING:
    from sigdir.signatures.grammar_rows import Normalised


_HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)


def keccak256(texts: pa.ChunkedArray) -> pa.StringArray:
    """The hash of each text as it stands: 0x and 64 hex digits."""
    from sigdir.signatures.keccak_rows import (
        keccak256_rows,
    )  # numba takes 0.5 s to load, and most queries do not need it

    bounds, data = _bytes(texts)
    return _where(_is_valid(texts), hex_texts(keccak256_rows(data, bounds)))


def canonical(texts: pa.ChunkedArray) -> pa.StringArray:
    """The canonical text of each function, error or event; NULL where it has none."""
    from sigdir.signatures.collections import FUNCTIONS
    from sigdir.signatures.grammar import OK

    found = _normalised(texts, FUNCTIONS)
    return _where((found.reasons == OK) & _is_valid(texts), found.texts())


def selector(texts: pa.ChunkedArray) -> pa.StringArray:
    """The selector of each function or error, however it is written: 0x and 8 hex digits; NULL for an event."""
    from sigdir.signatures.collections import FUNCTIONS

    return _hashed(texts, FUNCTIONS, 4)


def topic0(texts: pa.ChunkedArray) -> pa.StringArray:
    """The topic of each event, however it is written: 0x and 64 hex digits; NULL for a function or error."""
    from sigdir.signatures.collections import EVENTS

    return _hashed(texts, EVENTS, 32)


def create_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """Add the functions to a connection, by their names here."""
    for function in (keccak256, selector, topic0, canonical):
        connection.create_function(
            function.__name__, function, ["VARCHAR"], "VARCHAR",
            type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL,
        )  # fmt: skip


def _hashed(texts: pa.ChunkedArray, collection: int, width: int) -> pa.StringArray:
    """The first bytes of the canonical text's hash, for texts of the collection and those that state none."""
    from sigdir.signatures.grammar import OK
    from sigdir.signatures.keccak_rows import keccak256_rows

    found = _normalised(texts, collection)
    digests = keccak256_rows(found.data, found.offsets)
    good = (found.reasons == OK) & (found.collections == collection)
    return _where(good & _is_valid(texts), hex_texts(digests[:, :width]))


def _normalised(texts: pa.ChunkedArray, default: int) -> Normalised:
    from sigdir.signatures.collections import UNKNOWN
    from sigdir.signatures.grammar_rows import normalise_rows

    bounds, data = _bytes(texts)
    return normalise_rows(data, bounds[:-1], bounds[1:], np.full(len(bounds) - 1, UNKNOWN, np.uint8), default)


def _bytes(texts: pa.ChunkedArray) -> tuple[Array, Array]:
    """Offsets (int32, rows + 1) and bytes (uint8) of the texts; a null is an empty text."""
    import pyarrow.compute as pc  # takes 30 ms, and most queries call none of these functions

    return bytes_of(pc.fill_null(texts, "").combine_chunks())


def _is_valid(texts: pa.ChunkedArray) -> Array:
    """Which texts are not null, a flag a row."""
    import pyarrow.compute as pc

    valid: Array = pc.is_valid(texts).to_numpy()
    return valid


def hex_texts(digests: Array, is_valid: npt.NDArray[np.bool_] | None = None) -> pa.StringArray:
    """Digests, uint8 of (rows, width), as 0x and hex digits; null where they are not valid."""
    rows, width = digests.shape
    out = np.empty((rows, 2 + 2 * width), np.uint8)
    out[:, 0], out[:, 1] = b"0x"
    out[:, 2:] = _HEX_PAIRS[digests].view(np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * out.shape[1]
    bitmap = None if is_valid is None else validity(is_valid)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(out), bitmap)


def _where(kept: Array, texts: pa.StringArray) -> pa.StringArray:
    import pyarrow.compute as pc

    return texts if kept.all() else pc.if_else(pa.array(kept), texts, pa.scalar(None, pa.string()))
