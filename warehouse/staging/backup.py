"""A backup's staging file."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sigdir.signatures.collections import Collection
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.staging.rows import HighWaterMark
from sigdir.warehouse.staging.transaction import Transaction
from sigdir.warehouse.staging.writer import copy_database
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import sync


def drop_published_rows(path: Path, high_water: Mapping[Collection, HighWaterMark]) -> int:
    """Make a copied staging file fit the snapshot of a backup; returns how many rows it still has.

    The sequences are recorded a second time: a difference later shows that the copy was written to.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("DELETE FROM unfinished")  # the copy has no files of unfinished runs
            staging = Transaction(connection)
            for collection, last in high_water.items():
                staging.forget(collection, last.id)
                connection.execute(
                    "UPDATE sequence SET last_id = max(last_id, ?), last_created_at = max(last_created_at, ?)"
                    " WHERE collection = ?",
                    (last.id, last.created_at, collection),
                )
            connection.execute("DROP TABLE IF EXISTS backup")
            connection.execute("CREATE TABLE backup AS SELECT * FROM sequence")
            (rows,) = connection.execute("SELECT count(*) FROM staged").fetchone()
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    return int(rows)


def is_as_backed_up(path: Path) -> bool:
    """Whether a staging file is a backup's and has given out no id since; raises UnreadableWarehouse."""
    with open_read_only(path) as staging:
        return staging.is_as_backed_up()


def replace_by(path: Path, copy: Path) -> None:
    """Give a staging file the content of another in one transaction, synced; raises UnreadableWarehouse."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            copy_database(connection, path)
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    sync(path)
