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
from typing import Any
from urllib.parse import quote

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.csv import HASH_COLUMNS, TEXT_COLUMNS
from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY

_TEXT_COLUMNS = ("text_sig", *TEXT_COLUMNS)
_HASH_COLUMNS = ("byte_sig", *HASH_COLUMNS)
_MAGIC = b"SQLite format 3\0"
_TABLE = re.compile(rb"CREATE TABLE [^;]*+", re.IGNORECASE)
_COLUMN = re.compile(rf"\b(?:{'|'.join(_TEXT_COLUMNS)})\b".encode(), re.IGNORECASE)


def looks_like(source: Source) -> bool:
    """A database in a folder may hold other things, so its table definitions are checked; they come first in the file."""
    if not source.head.startswith(_MAGIC):
        return False
    return source.explicit or any(_COLUMN.search(table) for table in _TABLE.findall(source.head))


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    with source.on_disk() as path:
        try:
            address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
            with closing(sqlite3.connect(address, uri=True)) as database:
                database.execute("PRAGMA trusted_schema = off")  # run no functions that the file defines
                database.text_factory = bytes  # text may be invalid UTF-8
                number = 0
                for query in _queries(database, source):
                    for text, hash_value, kind in database.execute(query):
                        number += 1
                        yield _entry(text, hash_value, kind == b"blob", number)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise BadInput(source.name, f"broken SQLite: {error}") from None


def _queries(database: sqlite3.Connection, source: Source) -> list[str]:
    """One query for each table with a text column: the text, the hash, and the hash's storage type."""
    queries = []
    # A virtual table would load the module that its definition names.
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    for (table,) in database.execute(tables).fetchall():
        columns = database.execute("SELECT name FROM pragma_table_info(?)", [table.decode("utf-8", "replace")])
        names = {name.decode("utf-8", "replace").lower() for (name,) in columns}
        text = next((name for name in _TEXT_COLUMNS if name in names), None)
        hash_value = next((name for name in _HASH_COLUMNS if name in names), "NULL")
        if text is not None:
            quoted = table.decode("utf-8", "replace").replace('"', '""')
            queries.append(f'SELECT {text}, {hash_value}, typeof({hash_value}) FROM "{quoted}"')
    if not queries:
        raise BadInput(source.name, f"no table has a column {', '.join(_TEXT_COLUMNS[:-1])} or {_TEXT_COLUMNS[-1]}")
    return queries


def _entry(text: Any, hash_value: Any, is_blob: bool, number: int) -> Entry:
    if not isinstance(text, bytes):
        return Entry(str(text).encode(), number, reject_reason=BAD_ENTRY)
    if hash_value is None:
        return Entry(text, number)
    return entry_with_hash(text, number, _digest(hash_value, is_blob))


def _digest(value: Any, is_blob: bool) -> bytes | None:
    """4 or 32 bytes from a blob or from hex digits; None for anything else."""
    if not isinstance(value, bytes):
        return None
    if is_blob and len(value) in (4, 32):
        return value
    return parse_hash(value.decode("latin-1"))
