"""The table macro search(fragment): the rows that the API's ``text_signature=`` finds.

::

    sigdir sql "FROM search('balanceOf')"

A fragment is found in any case. With ``*`` or ``?``, which no text has, it is a pattern that the whole text fits, and case
counts, as in OpenChain's search. Either has at most 256 characters. The engine scans the texts, 10 M in 0.3 s: to load
the servers' index would take longer.
"""

from __future__ import annotations

import duckdb

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.sql.views import quoted
from sigdir.warehouse.table.fields import MAX_SEARCHED

NAME = "search"

_STRIPPED = quoted(" \t\n\r\v\f\x1c\x1d\x1e\x1f")
_WANTED = f"trim(fragment::VARCHAR, {_STRIPPED})"
_TOO_LONG = f"error('{NAME}() takes at most {MAX_SEARCHED} characters, and these are ' || length({_WANTED}))"
# All of this is a constant where the fragment is one. A regular expression that is none is compiled again for each row.
_HAS_FRAGMENT = f"""CASE
    WHEN length({_WANTED}) > {MAX_SEARCHED} THEN {_TOO_LONG}::BOOLEAN
    WHEN strlen({_WANTED}) <> length({_WANTED}) THEN false
    WHEN regexp_matches({_WANTED}, '[*?]')
    THEN regexp_full_match(text_signature, replace(replace(regexp_escape({_WANTED}), '\\*', '.*'), '\\?', '.'))
    ELSE contains(lower(text_signature), lower({_WANTED})) END"""


def create_search(connection: duckdb.DuckDBPyConnection) -> None:
    """Add ``search`` to a connection that has the views of the rows."""
    rows = " UNION ALL ".join(
        f"SELECT '{collection}' AS collection, id, text_signature, hex_signature, created_at, hash"
        f" FROM {collection.view_name}"
        for collection in COLLECTIONS
    )
    connection.execute(f"CREATE MACRO {NAME}(fragment) AS TABLE FROM ({rows}) WHERE {_HAS_FRAGMENT}")
