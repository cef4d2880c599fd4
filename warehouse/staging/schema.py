"""The tables of the staging file."""

from __future__ import annotations

import sqlite3

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.identity import FORMAT

_SCRIPT = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL, warehouse TEXT, version INTEGER);
CREATE TABLE IF NOT EXISTS sequence (
    collection TEXT PRIMARY KEY,
    last_id INTEGER NOT NULL,
    last_created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS imports (last_id INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS staged (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    text_signature TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS staged_text ON staged (collection, text_signature);
CREATE TABLE IF NOT EXISTS unfinished (run TEXT PRIMARY KEY) WITHOUT ROWID;
"""

_TRIGGER = """
CREATE TRIGGER IF NOT EXISTS advance AFTER INSERT ON staged BEGIN
    UPDATE sequence SET last_id = NEW.id, last_created_at = NEW.created_at WHERE collection = NEW.collection;
END
"""

# Created apart from the script, like the trigger: files of earlier program versions get both when they are opened.
_RESERVED = """
CREATE TABLE IF NOT EXISTS reserved (
    run TEXT NOT NULL,
    collection TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    PRIMARY KEY (run, collection)
) WITHOUT ROWID
"""

# The digest of the log's newest entry, which no other entry has: see ``log/chain.py``.
_NEWEST_ENTRY = "CREATE TABLE IF NOT EXISTS newest_entry (version INTEGER NOT NULL, sha256 TEXT NOT NULL)"

# What POSTs say of texts beyond naming them, and that texts were POSTed which were stored already.
_SIGHTED = """
CREATE TABLE IF NOT EXISTS sighted (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
"""


def create(connection: sqlite3.Connection, id: str) -> None:
    """Make the tables of a new file."""
    for statement in _SCRIPT.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?, -1)", (FORMAT, id))
    connection.execute("INSERT INTO imports VALUES (0)")
    for collection in COLLECTIONS:
        connection.execute("INSERT INTO sequence VALUES (?, 0, 0)", (collection,))


def create_reserved(connection: sqlite3.Connection) -> None:
    """Make the table of reserved ids in a copy of a file that may be older than it."""
    connection.execute(_RESERVED)


def create_missing(connection: sqlite3.Connection) -> None:
    """Make what files of earlier program versions lack."""
    for statement in (_TRIGGER, _RESERVED, _NEWEST_ENTRY, _SIGHTED):
        connection.execute(statement)
