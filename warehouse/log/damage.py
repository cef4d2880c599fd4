"""How damage of a file of the log is found, and reported: by its name, in one line, with what to do.

Each file of ours, entry or checkpoint, has in FIELD the sha256 of its bytes without the 64 digits themselves. So a
flipped bit is found by whoever reads the file. Another whole file in its place is not found by it.

Delta lets a writer put anything into an entry's ``commitInfo`` and into the metadata of a checkpoint's footer. Files of
other programs have no digest.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths

FIELD = "sigdirSha256"


def new_mark() -> str:
    """What stands in the place of the digits until they are known: no other part of a file is like it."""
    return secrets.token_hex(32)


def with_digest(raw: bytes, mark: str) -> bytes:
    """The bytes of a file with its digest in the place of the mark."""
    return raw.replace(mark.encode(), _digest(raw, mark).encode())


def is_whole(raw: bytes, digest: str) -> bool:
    """Whether the bytes of a file are those that were written; ``digest`` is the one that it holds."""
    return _digest(raw, digest) == digest


def _digest(raw: bytes, digits: str) -> str:
    return hashlib.sha256(raw.replace(digits.encode(), b"")).hexdigest()


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
