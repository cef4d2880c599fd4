"""The tables of the staging file."""

from __future__ import annotations

import sqlite3

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.identity import FORMAT

_TABLES = (
    "CREATE TABLE about (format INTEGER NOT NULL, warehouse TEXT NOT NULL, version INTEGER NOT NULL)",
    # The digest of the log's newest entry, which no other entry has: see ``log/chain.py``.
    "CREATE TABLE newest_entry (version INTEGER NOT NULL, sha256 TEXT NOT NULL)",
    """
CREATE TABLE sequence (
    collection TEXT PRIMARY KEY,
    last_id INTEGER NOT NULL,
    last_created_at INTEGER NOT NULL
) WITHOUT ROWID
""",
    "CREATE TABLE imports (last_id INTEGER NOT NULL)",
    """
CREATE TABLE staged (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    text_signature TEXT NOT NULL,
    digest BLOB NOT NULL,
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
    connection.execute("INSERT INTO about VALUES (?, ?, -1)", (FORMAT, id))
    connection.execute("INSERT INTO imports VALUES (0)")
    for collection in COLLECTIONS:
        connection.execute("INSERT INTO sequence VALUES (?, 0, 0)", (collection,))
