"""The table function search(fragment): the rows that the API's ``text_signature=`` finds, from the same index.

::

    sigdir sql "FROM search('balanceOf')"

A fragment is found in any case. With ``*`` or ``?``, which no text has, it is a pattern that the whole text fits, and case
counts, as in OpenChain's search. Either has at most 256 characters. Files whose index nobody has built are scanned by the engine; nothing is built or written.

Theory. The engine has no table functions in Python. So ``_search_rows`` gives the numbers of all rows as one list, which
the macro unnests, and each column is a function of such a number: it is called for 2,048 rows at a time, and only
for columns that the query uses. So a count takes 8 bytes a match, and LIMIT ends early.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.views import quoted, read_parquet
from sigdir.warehouse.table.fields import fields, sql_of
from sigdir.warehouse.table.paths import Paths, index_name

if TYPE_CHECKING:  # the index loads numba, 0.5 s, and most queries search nothing
    from sigdir.warehouse.index.segment import Segment

Array = npt.NDArray[Any]

NAME = "search"

_COLUMNS = {
    field.name: field.type.sql for field in fields(("collection", "id", "text_signature", "created_at", "hash"))
}


def create_search(connection: duckdb.DuckDBPyConnection, paths: Paths, snapshot: Snapshot) -> None:
    """Add ``search`` to a connection, over the files of one version."""
    segments: list[tuple[Collection, Segment]] = []
    parts: list[str] = []
    for collection in COLLECTIONS:
        scanned = []
        for file in snapshot.files[collection]:
            segment = _mapped(paths, file)
            if segment is None:
                scanned.append(str(file.path))
            else:
                segments.append((collection, segment))
        if scanned:
            parts.append(_scan(collection, scanned))
    _register(connection, _Indexed(segments))
    columns = ", ".join(f"_search_{name}(place) AS {name}" for name in _COLUMNS)
    parts.append(f"SELECT {columns} FROM (SELECT unnest(_search_rows(fragment::VARCHAR)) AS place)")
    connection.execute(
        f"CREATE MACRO {NAME}(fragment) AS TABLE"
        f" SELECT collection, id, text_signature, {sql_of('hex_signature')}, created_at, hash"
        f" FROM ({' UNION ALL '.join(parts)})"
    )


def _mapped(paths: Paths, file: DataFile) -> Segment | None:
    """A data file's index; None where it is missing or damaged."""
    from sigdir.warehouse.index.build import open_index

    for cache in (paths.index_cache(file.path), paths.kept_cache):
        folder = cache / index_name(file.collection, file.path)
        with suppress(OSError, ValueError, EOFError):
            return open_index(folder, file.rows)
    return None


_STRIPPED = quoted(" \t\n\r\v\f\x1c\x1d\x1e\x1f")
_WANTED = f"trim(fragment::VARCHAR, {_STRIPPED})"
# All of this is a constant where the fragment is one. A regular expression that is none is compiled again for each row.
_HAS_FRAGMENT = f"""strlen({_WANTED}) = length({_WANTED}) AND CASE
    WHEN regexp_matches({_WANTED}, '[*?]')
    THEN regexp_full_match(text_signature, replace(replace(regexp_escape({_WANTED}), '\\*', '.*'), '\\?', '.'))
    ELSE contains(lower(text_signature), lower({_WANTED})) END"""


def _scan(collection: Collection, files: Sequence[str]) -> str:
    return f"SELECT '{collection}' AS collection, {', '.join([*_COLUMNS][1:])} FROM {read_parquet(files)} WHERE {_HAS_FRAGMENT}"


def _register(connection: duckdb.DuckDBPyConnection, indexed: _Indexed) -> None:
    # As a constant of the plan a list of ten million rows would take the engine a gigabyte. A volatile function is none.
    connection.create_function(
        "_search_rows", indexed.rows, ["VARCHAR"], "BIGINT[]", type=PythonUDFType.ARROW,
        null_handling=FunctionNullHandling.SPECIAL, side_effects=True,
    )  # fmt: skip
    for name, kind in _COLUMNS.items():
        connection.create_function(
            f"_search_{name}", partial(indexed.column, name), ["BIGINT"], kind, type=PythonUDFType.ARROW
        )


def _wanted(fragment: str | None) -> str | None:
    """A fragment as the API takes it; None where no text has it."""
    from sigdir.warehouse.index.search import MAX_CHARACTERS

    fragment = fragment.strip() if fragment is not None else None
    if fragment is not None and len(fragment) > MAX_CHARACTERS:
        raise ValueError(f"{NAME}() takes at most {MAX_CHARACTERS} characters, and these are {len(fragment)}")
    return fragment if fragment is not None and fragment.isascii() and "\0" not in fragment else None


class _Indexed:
    """The rows of mapped files, numbered from 0, file after file."""

    def __init__(self, segments: Sequence[tuple[Collection, Segment]]) -> None:
        self._segments = [segment for _, segment in segments]
        self._firsts = np.cumsum([0, *(segment.rows for segment in self._segments)])
        self._names = pa.array([str(collection) for collection, _ in segments], pa.string())
        tables = [_columns(segment) for segment in self._segments]
        self._columns = {name: [table[name] for table in tables] for name in _COLUMNS if name != "collection"}

    def rows(self, fragments: pa.ChunkedArray) -> pa.Array:
        """The rows that each fragment finds, a list a fragment."""
        found = [self._with(fragment) for fragment in fragments.to_pylist()]
        ends = np.cumsum([0, *map(len, found)])
        return pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.concatenate([np.empty(0, np.int64), *found])))

    def _with(self, entered: str | None) -> Array:
        fragment = _wanted(entered)
        if fragment is None:
            return np.empty(0, np.int64)
        is_pattern = "*" in fragment or "?" in fragment
        found = [np.empty(0, np.int64)]
        for segment, first in zip(self._segments, self._firsts[:-1].tolist(), strict=True):
            rows = segment.like(fragment, segment.rows) if is_pattern else segment.with_text(fragment)
            found.append(rows + first)
        return np.concatenate(found)

    def column(self, name: str, rows: pa.ChunkedArray) -> pa.Array:
        """One column's values of these rows, in their order."""
        numbers = rows.to_numpy()
        where = self._firsts.searchsorted(numbers, side="right") - 1
        if name == "collection":
            return self._names.take(pa.array(where))
        order = np.argsort(where, kind="stable")
        pieces = []
        for segment in np.unique(where).tolist():
            here = order[np.searchsorted(where[order], segment) : np.searchsorted(where[order], segment, side="right")]
            values = self._columns[name][segment].take(pa.array(numbers[here] - self._firsts[segment]))
            pieces.append(values.cast(pa.binary()) if name == "hash" else values)
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(places))


def _columns(segment: Segment) -> dict[str, pa.Array]:
    """The columns of a segment as Arrow arrays over the mapped bytes."""
    rows, width = segment.rows, segment.hash.shape[1]
    hashes = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(segment.hash[:rows])])
    texts = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(segment.offsets), pa.py_buffer(segment.text))
    return {
        "id": pa.array(segment.ids[:rows]),
        "text_signature": texts,
        "created_at": pa.array(segment.created_at[:rows]).view(pa.timestamp("us", "UTC")),
        "hash": hashes,
    }
