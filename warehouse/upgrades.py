"""The steps from one format of the folder to the next, and the format as the staging file has it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.paths import Paths


def add_evidence(paths: Paths) -> None:
    """From format 1 to 2. Versions that are there have no evidence: their rows count as listed by their imports.

    Staging gets the columns of its evidence when it is opened. Raises UnreadableWarehouse.
    """
    if not paths.staging.exists():
        return
    try:
        with closing(sqlite3.connect(paths.staging, timeout=60, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
                connection.execute("UPDATE about SET format = 2 WHERE format = 1")
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{paths.staging}: {error}") from error


def format_of_staging(paths: Paths) -> int | None:
    """The format that a staging file says, None where it says none. Makes no file."""
    mode = "mode=ro" if paths.staging_wal.exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{paths.staging.as_uri()}?{mode}", uri=True, timeout=60)) as connection:
            (found,) = connection.execute("SELECT format FROM about").fetchone()
            return int(found)
    except (sqlite3.Error, TypeError, ValueError):  # whoever needs the file finds out what is wrong with it
        return None
