"""A warehouse at one version: what ``sigdir.open`` gives, and what the command line asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.table.errors import QueryError
from sigdir.warehouse.table.fields import number_or_time
from sigdir.warehouse.table.paths import Paths, existing

if TYPE_CHECKING:
    from sigdir.warehouse.log.snapshot import Snapshot
    from sigdir.warehouse.sql.engine import Database, Result


class Warehouse:
    """A warehouse at one version. Open it again, or ``refresh``, to see a later one.

    ``as_of`` opens an older version as it was: a version's number, or a time, which is UTC where it has no zone; also
    the text of either, as `--as-of` takes it.
    ``files`` are tables of your own, by their names in SQL: paths of files, pandas or polars DataFrames, Arrow tables
    or streams. ``unsafe`` lets SQL do whatever the engine can; otherwise it reads the warehouse and those tables and
    nothing else. ``served``, a server's paths, leaves out the rows of the suppress list. As a context manager it frees
    the engine at the end. Raises UnreadableWarehouse, also where the folder holds no warehouse.
    """

    def __init__(
        self, path: str | Path, as_of: int | datetime | str | None = None, *, unsafe: bool = False,
        files: Mapping[str, Any] | None = None, memory_limit: str = "1GB", served: Paths | None = None,
    ) -> None:  # fmt: skip
        self.paths = served or existing(Path(path))
        self._as_of, self._is_served = number_or_time(as_of), served is not None
        self._options: dict[str, Any] = {
            "unsafe": unsafe, "files": files, "memory_limit": memory_limit,
        }  # fmt: skip
        self.refresh()
        if files:
            _ = self.database  # a table that cannot be read fails here, not at the first query

    def refresh(self) -> None:
        """Move to the newest version, or to the one that ``as_of`` names; raises UnreadableWarehouse."""
        from sigdir.warehouse.log.snapshot import read_snapshot  # and pyarrow, which a server's parent never uses

        self.snapshot: Snapshot = read_snapshot(self.paths, self._as_of)
        if self._is_served:
            from sigdir.warehouse.index.visible import Visible  # numba, which only servers need
            from sigdir.warehouse.table.suppressed import read

            self.snapshot = Visible(self.paths, read(self.paths)).snapshot(self.snapshot)
        self.__dict__.pop("database", None)

    def close(self) -> None:
        """Free the engine. Results that were not fetched can no longer be read; the next query opens it again."""
        database: Database | None = self.__dict__.pop("database", None)
        if database is not None:
            database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def version(self) -> int:
        """The version that this object shows; -1 where nothing was published yet."""
        return self.snapshot.version

    def count(self, collection: Collection | str) -> int:
        """Rows of a collection in this version, by its name or its view's. POSTed rows count once they are folded.

        Raises QueryError for another name.
        """
        for each in COLLECTIONS:
            if collection in (each, each.view_name):
                return self.snapshot.count(each)
        names = ", ".join(f"{each}" for each in COLLECTIONS)
        raise QueryError(f"{collection!r} is no collection; the collections are {names}")

    @cached_property
    def database(self) -> Database:
        """The engine that runs ``sql``, made at its first use; raises UnreadableWarehouse or QueryError."""
        from sigdir.warehouse.sql.engine import Database  # DuckDB takes 0.1 s to load; a server's workers never use it

        return Database(self.paths, self.snapshot, **self._options)

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run SQL over the views signatures, event_signatures, sightings, evidence, declarations, ranked, collisions,
        standards, names, parameters, imports, rejects, contracts and interfaces.

        Raises QueryError. ``result.df()``, ``result.pl()``, ``result.arrow()``, ``result.reader()`` and
        ``result.rows()`` give the rows; ``result.fetchall()`` is ``rows()`` by DuckDB's name.
        """
        return self.database.sql(query, parameters)

    def history(self) -> list[dict[str, Any]]:
        """The summaries of all commits up to this version, oldest first."""
        from sigdir.warehouse.log.manifest import history

        return history(self.paths, self.version) if self.version >= 0 else []
