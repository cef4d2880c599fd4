"""The table macro search(fragment): the rows that the API's ``text_signature=`` finds.

::

    sigdir sql "FROM search('balanceOf')"

A fragment is found in any case. With ``*`` or ``?``, which no text has, it is a pattern that the whole text fits, and case
counts, as in OpenChain's search. What is or has a parameter list apart, or a keyword, is a search by structure, of names
and parameters (``signatures/search_terms.py``). Each has at most 256 characters. The engine scans the texts, 10 M in 0.3 s: to load
the servers' index would take longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures import standards
from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.candidates import as_readonly, bytes_of
from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.search_terms import BadSearch, SearchTerms, Shape, parse_terms
from sigdir.warehouse.sql.views import add_function, quoted
from sigdir.warehouse.table.fields import MAX_SEARCHED

if TYPE_CHECKING:  # loads pyarrow.parquet, which other queries do without
    from sigdir.warehouse.sql.ranking import Ranking

NAME = "search"
_FITS = "search_fits"

_STRIPPED = quoted(" \t\n\r\v\f\x1c\x1d\x1e\x1f")
_STRUCTURED = r"\s\(|\)\s|^\(.*\)$|[a-z]:\S"
_WANTED = f"trim(fragment::VARCHAR, {_STRIPPED})"
_TOO_LONG = f"error('{NAME}() takes at most {MAX_SEARCHED} characters, and these are ' || length({_WANTED}))"
# All of this is a constant where the fragment is one. A regular expression that is none is compiled again for each row.
_HAS_FRAGMENT = f"""CASE
    WHEN length({_WANTED}) > {MAX_SEARCHED} THEN {_TOO_LONG}::BOOLEAN
    WHEN strlen({_WANTED}) <> length({_WANTED}) THEN false
    WHEN regexp_matches({_WANTED}, {quoted(_STRUCTURED)}) THEN {_FITS}(text_signature, {_WANTED})
    WHEN regexp_matches({_WANTED}, '[*?]')
    THEN regexp_full_match(text_signature, replace(replace(regexp_escape({_WANTED}), '\\*', '.*'), '\\?', '.'))
    ELSE contains(lower(text_signature), lower({_WANTED})) END"""


def fits_terms(texts: pa.ChunkedArray, queries: pa.ChunkedArray) -> pa.Array:
    """Which texts have the name and the parameters that a query asks for; raises ValueError."""
    from sigdir.warehouse.index.parameter_lists import bounds_of, fits  # numba takes 0.5 s to load
    from sigdir.warehouse.index.search import are_like

    bounds, data = bytes_of(texts.combine_chunks())
    offsets, data = as_readonly(bounds.astype(np.int64)), as_readonly(data)
    begins, ends = bounds_of(data, offsets, np.arange(len(texts)))
    held = np.zeros(len(texts), np.bool_)
    for query in queries.unique().to_pylist():  # a constant, as a rule
        terms = parse_terms(query)
        if terms._replace(name="", shape=Shape(), understood=()) != SearchTerms():
            raise BadSearch(f"{NAME}() takes a name, parameters, type: and params: alone; the views have the rest", 1)
        fitting = fits(data, begins, ends, terms.shape)
        if terms.name:
            fitting &= are_like(data, offsets[:-1], begins - 1, terms.name, any_case=True)
        held |= fitting & (queries.to_numpy(zero_copy_only=False) == query)
    return pa.array(held)


def weights_of(
    reader: Any, ids: pa.ChunkedArray, hashes: pa.ChunkedArray, texts: pa.ChunkedArray, queries: pa.ChunkedArray
) -> pa.Array:  # fmt: skip
    """What orders texts that a search finds, the best lowest, as on the search page; ``reader`` is a SummaryReader."""
    from sigdir.warehouse.evidence.contracts import uses_of_hashes
    from sigdir.warehouse.evidence.summaries import weights
    from sigdir.warehouse.index.search import match_weights  # numba takes 0.5 s to load

    bounds, data = bytes_of(texts.combine_chunks())
    digests = np.frombuffer(b"".join(hashes.to_pylist()), np.uint8).reshape(len(hashes), -1)
    of_rows = weights(reader.of(values(ids))[0], uses_of_hashes(reader.evidence, digests))
    canonical = standards.canonical()
    is_standard = np.array(
        [canonical.get(hash) == text for hash, text in zip(hashes.to_pylist(), texts.to_pylist(), strict=True)]
    )
    found = np.empty(len(texts), np.uint64)
    for query in queries.unique().to_pylist():
        rows = np.flatnonzero(queries.to_numpy(zero_copy_only=False) == query)
        known = np.flatnonzero(is_standard[rows])
        found[rows] = match_weights(data, bounds.astype(np.int64), rows, _piece(query), of_rows[rows], known)
    return numbers(found)


def _piece(query: str) -> str:
    if re.search(_STRUCTURED, query):
        return parse_terms(query).piece
    return "" if "*" in query or "?" in query else query


def create_search(connection: duckdb.DuckDBPyConnection, ranking: Callable[[], Ranking]) -> None:
    """Add ``search`` to a connection that has the views of the rows."""
    add_function(connection, _FITS, fits_terms, ["VARCHAR", "VARCHAR"], "BOOLEAN")
    rows = []
    for collection in COLLECTIONS:
        weigh, reader = f"{NAME}_weight_{collection.view_name}", ranking().readers[collection]
        add_function(
            connection, weigh, partial(weights_of, reader), ["BIGINT", "BLOB", "VARCHAR", "VARCHAR"], "UBIGINT"
        )
        rows.append(
            f"SELECT '{collection}' AS collection, id, text_signature, hex_signature, created_at, hash,"
            f" {weigh}(id, hash, text_signature, {_WANTED}) AS weight FROM {collection.view_name} WHERE {_HAS_FRAGMENT}"
        )
    connection.execute(f"CREATE MACRO {NAME}(fragment) AS TABLE {' UNION ALL '.join(rows)}")
