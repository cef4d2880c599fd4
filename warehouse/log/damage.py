"""How a file of the log that is not as it was written is reported: by its name, in one line, with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths

DAMAGED = (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError)
"""What parsing raises where JSON is not of the expected shape."""

RESTORE = "put this file back from a backup"


def reason_of(error: Exception) -> str:
    """An error's first line; a damaged entry may have any character that ends a line in what the error quotes."""
    return " ".join(str(error).partition("\n")[0].split())


def damaged_entry(path: Path, why: str) -> UnreadableWarehouse:
    """The error for an entry that cannot be used."""
    return UnreadableWarehouse(f"{path}: damaged: {why}; {RESTORE}")


@contextmanager
def naming_damaged(path: Path) -> Iterator[None]:
    """Raise UnreadableWarehouse for what an entry's JSON lacks, with the entry's file."""
    try:
        yield
    except DAMAGED as error:
        raise damaged_entry(path, f"{type(error).__name__}: {reason_of(error)}") from error


def damaged_checkpoint(paths: Paths, file: Path, error: Exception) -> UnreadableWarehouse:
    """The error for a checkpoint that cannot be used."""
    return UnreadableWarehouse(
        f"{file}: damaged: {reason_of(error)}; remove this file and {paths.last_checkpoint.name} beside it,"
        " because the entries have what is in it"
    )
