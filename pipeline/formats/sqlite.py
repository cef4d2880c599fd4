"""SQLite databases of signatures: mythril's ``signatures`` table, or any table with such columns.

The file is opened read-only and as immutable: nothing is written beside it, no lock is taken, and what
stands only in a write-ahead log is not seen. Tables are read one after the other by name; an entry's
number counts through all of them.

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
from sigdir.pipeline.formats.csv_rows import HASH_COLUMNS, TEXT_COLUMNS
from sigdir.pipeline.formats.hashes import collection_of, parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY

_TEXT_COLUMNS = ("text_sig", *TEXT_COLUMNS)
_HASH_COLUMNS = ("byte_sig", *HASH_COLUMNS)
_MAGIC = b"SQLite format 3\0"
_TABLE = re.compile(rf"CREATE TABLE [^;]*\b(?:{'|'.join(_TEXT_COLUMNS)})\b".encode(), re.IGNORECASE)


def looks_like(source: Source) -> bool:
    """A database of other things may lie in a folder; the texts that define its tables come first in the file."""
    return source.head.startswith(_MAGIC) and (source.asked or _TABLE.search(source.head) is not None)


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    with source.on_disk() as path:
        try:
            address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
            with closing(sqlite3.connect(address, uri=True)) as database:
                database.execute("PRAGMA trusted_schema = off")  # no functions that the file brings
                database.text_factory = bytes  # which need not be UTF-8
                number = 0
                for query in _queries(database, source):
                    for text, written, kind in database.execute(query):
                        number += 1
                        yield _entry(text, written, kind == b"blob", number)
        except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
            raise BadInput(source.name, f"broken SQLite: {error}") from None


def _queries(database: sqlite3.Connection, source: Source) -> list[str]:
    """One for each table with a text column: text, hash, and what SQLite holds the hash as."""
    queries = []
    # Virtual tables would load what their definition names.
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
    for (table,) in database.execute(tables).fetchall():
        columns = database.execute("SELECT name FROM pragma_table_info(?)", [table.decode("utf-8", "replace")])
        names = {name.decode("utf-8", "replace").lower() for (name,) in columns}
        text = next((name for name in _TEXT_COLUMNS if name in names), None)
        written = next((name for name in _HASH_COLUMNS if name in names), "NULL")
        if text is not None:
            quoted = table.decode("utf-8", "replace").replace('"', '""')
            queries.append(f'SELECT {text}, {written}, typeof({written}) FROM "{quoted}"')
    if not queries:
        raise BadInput(source.name, f"no table has a column {', '.join(_TEXT_COLUMNS[:-1])} or {_TEXT_COLUMNS[-1]}")
    return queries


def _entry(text: Any, written: Any, is_blob: bool, number: int) -> Entry:
    if not isinstance(text, bytes):
        return Entry(str(text).encode(), number, reject_reason=BAD_ENTRY)
    if written is None:
        return Entry(text, number)
    declared = _digest(written, is_blob)
    if declared is None:
        return Entry(text, number, reject_reason=BAD_ENTRY)
    return Entry(text, number, collection_of(declared), declared)


def _digest(value: Any, is_blob: bool) -> bytes | None:
    """4 or 32 bytes, of a blob or of hex digits; None where it is neither."""
    if not isinstance(value, bytes):
        return None
    if is_blob and len(value) in (4, 32):
        return value
    return parse_hash(value.decode("latin-1"))
