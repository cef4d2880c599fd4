"""SQLite databases of signatures: mythril's ``signatures`` table, or any table with a text column.

The file is opened read-only and immutable: SQLite writes no file next to it, takes no lock, and does not
read a write-ahead log. Tables are read in name order; entries are numbered through all of them.

Source: ``mythril/support/signatures.py``, ``signatures(byte_sig VARCHAR(10), text_sig VARCHAR(255))``.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Columns, Table, encoded
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.grammar import BAD_ENTRY

_MAGIC = b"SQLite format 3\0"
_TABLE = re.compile(rb"CREATE TABLE [^;]*+", re.IGNORECASE)
_COLUMN = re.compile(rb"\b(?:text_sig|text_signature|signature)\b", re.IGNORECASE)


def looks_like(source: Source) -> bool:
    """A database in a folder may hold other things, so its table definitions are checked; they come first in the file."""
    if not source.head.startswith(_MAGIC):
        return False
    return source.explicit or any(_COLUMN.search(table) for table in _TABLE.findall(source.head))


def entries(source: Source) -> Iterator[Entry]:
    try:
        address = f"file:{quote(os.path.abspath(source.on_disk()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = off")  # run no functions that the file defines
            # Text may be invalid UTF-8; blobs stay bytes.
            database.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
            number = 0
            for query, columns in _queries(database, source):
                for text, kind, *written in database.execute(query):
                    number += 1
                    raw = encoded(text) if isinstance(text, str) else text
                    if isinstance(raw, bytes):
                        yield columns.entry(raw, number, written, kind)
                    else:
                        yield Entry(str(raw).encode(), number, reject_reason=BAD_ENTRY)
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise BadInput(source.name, f"broken SQLite: {error}") from None


def _queries(database: sqlite3.Connection, source: Source) -> list[tuple[str, Columns]]:
    """One query for each table with a column of signatures: the text, the kind and the hashes."""
    from sigdir.warehouse.sql.views import identifier  # DuckDB takes 0.1 s to load

    queries = []
    heads = []
    # A virtual table would load the module that its definition names.
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    for (table,) in database.execute(tables).fetchall():
        rows = database.execute(f"SELECT * FROM {identifier(table)} LIMIT {SAMPLE_ROWS}")
        head = Table([name for name, *_ in rows.description], rows.fetchall(), source.columns)
        heads.append(head)
        columns = head.columns(is_named=True)
        if columns is not None:
            read = (columns.text, columns.kind, *columns.hashes)
            names = ", ".join("NULL" if at is None else identifier(head.names[at]) for at in read)
            queries.append((f"SELECT {names} FROM {identifier(table)}", columns))
    if not queries:
        raise max(heads, key=lambda head: len(head.names), default=Table([], [])).refusal(source)
    return queries
