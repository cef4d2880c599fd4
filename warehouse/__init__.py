"""Data at rest: the table, its log, the staging file, the index that servers map, and SQL over the table.

The subpackages, from the bottom; each imports itself and those before it: ``table``, ``staging``, ``log``, ``evidence``,
``index``, ``sql``, ``transfer``, ``publish``, ``jobs``, ``verify``.
"""

from __future__ import annotations

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.sql.warehouse import Warehouse
from sigdir.warehouse.table.errors import Busy, CommitConflict, QueryError, UnreadableWarehouse, WarehouseError

__all__ = [
    "COLLECTIONS",
    "Busy",
    "Collection",
    "CommitConflict",
    "QueryError",
    "UnreadableWarehouse",
    "Warehouse",
    "WarehouseError",
]
