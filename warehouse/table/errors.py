"""The errors of data at rest. Every message is one line that a user can read."""

from __future__ import annotations

from sigdir.signatures.errors import SigdirError


class WarehouseError(SigdirError):
    """The base of all errors of this layer."""


class UnreadableWarehouse(WarehouseError):
    """The folder or a part of it cannot be used: missing, unreadable, damaged, or of another format."""


class NoWarehouse(UnreadableWarehouse):
    """There is none yet."""


class VacuumedEvidence(UnreadableWarehouse):
    """A file that names a version's evidence is gone: it was vacuumed, or lost."""


class DiskFull(UnreadableWarehouse):
    """There is no space to write to it."""


class Busy(WarehouseError):
    """Another process holds the lock, and the caller did not want to wait."""


class CommitConflict(WarehouseError):
    """Another process committed on the same version first; nothing was published."""


class QueryError(WarehouseError):
    """The SQL or its parameters are wrong; the message is the engine's."""


def first_line(error: Exception | str) -> str:
    """An error's first line; what a damaged file makes an error quote may have any character that ends a line."""
    return " ".join(str(error).partition("\n")[0].split())
