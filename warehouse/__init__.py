"""Data at rest: the table, the staging file, SQL over both. Imports neither sibling floor.

::

    import warehouse

    house = warehouse.open("data")
    house.version, house.count("signatures")
    house.sql("SELECT text_signature FROM signatures WHERE hash = unhex(?)", ["a9059cbb"]).df()
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse.errors import Busy, Overtaken, QueryError, Unusable, WarehouseError
from warehouse.paths import Paths
from warehouse.schema import COLLECTIONS, Collection
from warehouse.snapshot import Snapshot, history, read_snapshot

if TYPE_CHECKING:
    from warehouse.query import Database, Result

__all__ = [
    "COLLECTIONS",
    "Busy",
    "Collection",
    "Overtaken",
    "QueryError",
    "Unusable",
    "Warehouse",
    "WarehouseError",
    "open",
]


class Warehouse:
    """A warehouse at one version. Open it again, or ``refresh``, to see a later one."""

    def __init__(self, path: str | Path, version: int | None = None, *, unsafe: bool = False) -> None:
        self.paths = Paths(Path(path).absolute())
        self._unsafe = unsafe
        self._asked = version
        self.refresh()

    def refresh(self) -> None:
        """Move to the newest version (or stay at the one that was asked for); raises Unusable."""
        self.snapshot: Snapshot = read_snapshot(self.paths, self._asked)
        self.__dict__.pop("_database", None)

    @property
    def version(self) -> int:
        """The version that everything here belongs to; -1 where nothing was published yet."""
        return self.snapshot.version

    def count(self, collection: Collection) -> int:
        """Rows of a collection in this version. POSTed rows count once they are folded."""
        return self.snapshot.count(collection)

    @cached_property
    def _database(self) -> Database:
        from warehouse.query import Database  # DuckDB takes 0.1 s to load, and a server has no use for it

        return Database(self.paths, self.snapshot, unsafe=self._unsafe)

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run SQL over the views signatures, event_signatures, imports and rejects.

        Raises QueryError. ``result.arrow()`` and ``result.df()`` give the rows.
        """
        return self._database.sql(query, parameters)

    def history(self) -> list[dict[str, Any]]:
        """What every commit up to this version says of itself, oldest first."""
        return history(self.paths, self.version) if self.version >= 0 else []


def open(path: str | Path, version: int | None = None, *, unsafe: bool = False) -> Warehouse:
    """Open the warehouse in a folder, which may be empty or missing; raises Unusable.

    ``version`` opens an older version as it was. ``unsafe`` lets SQL do whatever the engine can,
    where it otherwise reads the warehouse and nothing else.
    """
    return Warehouse(path, version, unsafe=unsafe)
