"""The tables of the staging file."""

from __future__ import annotations

import sqlite3

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.table.fields import FIELDS, PARTITION
from sigdir.warehouse.table.identity import FORMAT

_STAGED = {field.name: field.type.sqlite for field in (PARTITION, *FIELDS) if field.is_staged} | {"digest": "BLOB"}

STAGED_COLUMNS = tuple(_STAGED)
"""The columns of a staged row. ``digest`` is all of the text's keccak-256, and a checksum of the row."""

_TABLES = (
    # version and entry are those of ``NotedEntry``.
    "CREATE TABLE about (format INTEGER NOT NULL, warehouse TEXT NOT NULL, version INTEGER NOT NULL, entry TEXT NOT NULL)",
    """
CREATE TABLE sequence (
    collection TEXT PRIMARY KEY,
    last_id INTEGER NOT NULL,
    last_created_at INTEGER NOT NULL
) WITHOUT ROWID
""",
    "CREATE TABLE imports (last_id INTEGER NOT NULL)",
    f"""
CREATE TABLE staged (
    {", ".join(f"{name} {type} NOT NULL" for name, type in _STAGED.items())},
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
""",
    "CREATE UNIQUE INDEX staged_text ON staged (collection, text_signature)",
    """
CREATE TRIGGER advance AFTER INSERT ON staged BEGIN
    UPDATE sequence SET last_id = NEW.id, last_created_at = NEW.created_at WHERE collection = NEW.collection;
END
""",
    # What POSTs say of texts beyond naming them, and that texts were POSTed which were stored already.
    """
CREATE TABLE sighted (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
""",
    "CREATE TABLE unfinished (run TEXT PRIMARY KEY) WITHOUT ROWID",
    """
CREATE TABLE reserved (
    run TEXT NOT NULL,
    collection TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    PRIMARY KEY (run, collection)
) WITHOUT ROWID
""",
)


def create(connection: sqlite3.Connection, id: str) -> None:
    """Make the tables of a new file."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?, -1, '')", (FORMAT, id))
    connection.execute("INSERT INTO imports VALUES (0)")
    for collection in COLLECTIONS:
        connection.execute("INSERT INTO sequence VALUES (?, 0, 0)", (collection,))
