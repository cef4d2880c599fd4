"""Data at rest: the table, the staging file, SQL over both. Imports neither sibling floor.

::

    import warehouse

    house = warehouse.open("data")
    house.version, house.count("signatures")
    house.sql("SELECT text_signature FROM signatures WHERE hash = unhex(?)", ["a9059cbb"]).df()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse.errors import Busy, Overtaken, QueryError, Unusable, WarehouseError
from warehouse.paths import existing
from warehouse.schema import COLLECTIONS, Collection
from warehouse.snapshot import Snapshot, history, read_snapshot

if TYPE_CHECKING:
    from warehouse.query import Database, Function, Result

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

    def __init__(
        self, path: str | Path, version: int | None = None, *, unsafe: bool = False,
        functions: Mapping[str, Function] | None = None, files: Mapping[str, str | Path] | None = None,
        memory_limit: str = "1GB",
    ) -> None:  # fmt: skip
        self.paths = existing(Path(path))
        self._asked = version
        self._options: dict[str, Any] = {
            "unsafe": unsafe, "functions": functions, "files": files, "memory_limit": memory_limit,
        }  # fmt: skip
        self.refresh()

    def refresh(self) -> None:
        """Move to the newest version (or stay at the one that was asked for); raises Unusable."""
        self.snapshot: Snapshot = read_snapshot(self.paths, self._asked)
        self.__dict__.pop("database", None)

    @property
    def version(self) -> int:
        """The version that everything here belongs to; -1 where nothing was published yet."""
        return self.snapshot.version

    def count(self, collection: Collection) -> int:
        """Rows of a collection in this version. POSTed rows count once they are folded."""
        return self.snapshot.count(collection)

    @cached_property
    def database(self) -> Database:
        """The engine behind ``sql``, made when it is first asked for; raises Unusable or QueryError."""
        from warehouse.query import Database  # DuckDB takes 0.1 s to load, and a server has no use for it

        return Database(self.paths, self.snapshot, **self._options)

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run SQL over the views signatures, event_signatures, collisions, names, parameters, imports and rejects.

        Raises QueryError. ``result.arrow()``, ``result.df()`` and ``result.rows()`` give the rows.
        """
        return self.database.sql(query, parameters)

    def history(self) -> list[dict[str, Any]]:
        """What every commit up to this version says of itself, oldest first."""
        return history(self.paths, self.version) if self.version >= 0 else []


def open(
    path: str | Path, version: int | None = None, *, unsafe: bool = False,
    functions: Mapping[str, Function] | None = None, files: Mapping[str, str | Path] | None = None,
    memory_limit: str = "1GB",
) -> Warehouse:  # fmt: skip
    """Open the warehouse in a folder, which may be empty; raises Unusable, also where there is no such folder.

    ``version`` opens an older version as it was. ``files`` are files of your own by the names that SQL
    finds them under. ``functions`` are what the floors above add: ``sigdir.open`` passes selector, topic0,
    keccak256 and canonical. ``unsafe`` lets SQL do whatever the engine can, where it otherwise reads
    the warehouse and those files and nothing else.
    """
    return Warehouse(path, version, unsafe=unsafe, functions=functions, files=files, memory_limit=memory_limit)
