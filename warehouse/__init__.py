"""Data at rest: the table, its log, the staging file, the index that servers map, and SQL over the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import Busy, CommitConflict, QueryError, UnreadableWarehouse, WarehouseError
from sigdir.warehouse.log import history
from sigdir.warehouse.paths import existing
from sigdir.warehouse.snapshot import Snapshot, read_snapshot

if TYPE_CHECKING:
    from sigdir.warehouse.sql.engine import Database, Result

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


class Warehouse:
    """A warehouse at one version. Open it again, or ``refresh``, to see a later one.

    ``version`` opens an older version as it was. ``files`` are files of your own, by their names in SQL.
    ``unsafe`` lets SQL do whatever the engine can; otherwise it reads the warehouse and those files and
    nothing else. ``as_served`` leaves out the rows of the suppress list. Raises UnreadableWarehouse, also where there is no such folder.
    """

    def __init__(
        self, path: str | Path, version: int | None = None, *, unsafe: bool = False,
        files: Mapping[str, str | Path] | None = None, memory_limit: str = "1GB", as_served: bool = False,
    ) -> None:  # fmt: skip
        self.paths = existing(Path(path))
        self._wanted, self._as_served = version, as_served
        self._options: dict[str, Any] = {
            "unsafe": unsafe, "files": files, "memory_limit": memory_limit,
        }  # fmt: skip
        self.refresh()

    def refresh(self) -> None:
        """Move to the newest version, or stay at the given one; raises UnreadableWarehouse."""
        self.snapshot: Snapshot = read_snapshot(self.paths, self._wanted)
        if self._as_served:
            from sigdir.warehouse.index.visible import Visible  # numba, which only servers need
            from sigdir.warehouse.suppressed import read

            self.snapshot = Visible(self.paths, read(self.paths)).snapshot(self.snapshot)
        self.__dict__.pop("database", None)

    @property
    def version(self) -> int:
        """The version that this object shows; -1 where nothing was published yet."""
        return self.snapshot.version

    def count(self, collection: Collection) -> int:
        """Rows of a collection in this version. POSTed rows count once they are folded."""
        return self.snapshot.count(collection)

    @cached_property
    def database(self) -> Database:
        """The engine that runs ``sql``, made at its first use; raises UnreadableWarehouse or QueryError."""
        from sigdir.warehouse.sql.engine import Database  # DuckDB takes 0.1 s to load; a server never uses it

        return Database(self.paths, self.snapshot, **self._options)

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run SQL over the views signatures, event_signatures, collisions, names, parameters, imports and rejects.

        Raises QueryError. ``result.arrow()``, ``result.df()`` and ``result.rows()`` give the rows.
        """
        return self.database.sql(query, parameters)

    def history(self) -> list[dict[str, Any]]:
        """The summaries of all commits up to this version, oldest first."""
        return history(self.paths, self.version) if self.version >= 0 else []
