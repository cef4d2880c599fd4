"""What can go wrong with data at rest. Every message is one line fit for a user."""

from __future__ import annotations

from sigdir.signatures.errors import SigdirError


class WarehouseError(SigdirError):
    """The root of this floor's errors."""


class UnreadableWarehouse(WarehouseError):
    """The folder is not a warehouse we can use: unreadable, damaged, or of a newer format."""


class Busy(WarehouseError):
    """Another process holds the publish lock, and waiting for it was not wanted."""


class CommitConflict(WarehouseError):
    """The table moved under a publisher; nothing was published."""


class QueryError(WarehouseError):
    """The SQL or its parameters are wrong; the message is the engine's."""
