"""Runs the SQL of strangers: one query at a time, over one version, within its time, rows and bytes.

It runs in a process of its own (``serve/core/budget.py``), on one thread, and the engine is confined
(``warehouse/sql/guard.py``). What the kernel bounds stands there: processor time and the memory of the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from sigdir.pipeline.errors import PipelineError
from sigdir.serve.core.named_queries import NamedQuery, read_queries
from sigdir.serve.core.settings import Settings
from sigdir.serve.core.sql_request import SqlRequest, bound
from sigdir.serve.http.errors import HttpError, detail, field_error
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.sql.guard import OUT_OF_MEMORY
from sigdir.warehouse.sql.time_limit import OverTime, time_limit
from sigdir.warehouse.table.errors import QueryError, UnreadableWarehouse

MAX_ROWS = 1000
MAX_BYTES = 4 << 20
_MAX_CELLS = 200_000
_MEMORY = "256MB"
_KEPT = 2
"""Versions that are open: the newest, and the one that was asked for last. Opening takes 0.1 s and more."""

Answer = TypeVar("Answer")


class Rows(NamedTuple):
    """The rows of a query, at most MAX_ROWS; ``types`` are the engine's, ``truncated`` says that there are more."""

    table: pa.Table
    types: list[str]
    truncated: bool
    version: int


class SqlRunner:
    """The queries of one server."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        """Raises QueryError, OSError where the file of named queries cannot be read."""
        self.seconds = settings.sql_seconds
        self.named: dict[str, NamedQuery] = read_queries(settings.sql_queries) if settings.sql_queries else {}
        self._reader = reader
        self._databases: OrderedDict[str, Any] = OrderedDict()

    def snapshot(self, as_of: int | datetime | None) -> tuple[Snapshot, str]:
        """A version as anybody may see it, and its token; raises HttpError."""
        view = self._reader.current()
        snapshot = view.snapshot
        if as_of is not None:
            try:
                snapshot = self._reader.visible(read_snapshot(self._reader.paths, as_of))
            except UnreadableWarehouse:
                raise _not_kept() from None
        return snapshot, f"{snapshot.version}.{view.suppressed.id}"

    def parameters(self, sql: str, as_of: int | datetime | None) -> set[str]:
        """The parameters of a query; raises HttpError."""
        database, _ = self._database(as_of)
        with _errors():
            found: set[str] = database.parameters(sql)
        return found

    def run(self, request: SqlRequest, finish: Callable[[Rows], Answer]) -> Answer:
        """What ``finish`` makes of the rows, in the time of the query; raises HttpError."""
        database, version = self._database(request.as_of)
        why = f"The query was stopped after {request.seconds:g} s."
        with _errors(), time_limit(database.interrupt, request.seconds, why):
            values = bound(request.values, database.parameters(request.sql))
            result = database.sql(request.sql, values)
            table, truncated = _first_rows(result.reader(MAX_ROWS + 1))
            return finish(Rows(table, result.types, truncated, version))

    def _database(self, as_of: int | datetime | None) -> tuple[Any, int]:
        """The engine over a version, and the version's number; raises HttpError, UnreadableWarehouse."""
        from sigdir.warehouse.sql.engine import Database  # DuckDB takes 0.1 s to load; a server's workers never use it

        snapshot, token = self.snapshot(as_of)
        if token not in self._databases:
            try:
                database = Database(self._reader.paths, snapshot, _MEMORY, 1, strangers=True)
                database.prepare()
            except UnreadableWarehouse:
                if as_of is None:
                    raise
                raise _not_kept() from None
            self._databases[token] = database
            if len(self._databases) > _KEPT:
                self._databases.popitem(last=False)[1].close()
        self._databases.move_to_end(token)
        return self._databases[token], snapshot.version


def _first_rows(batches: pa.RecordBatchReader) -> tuple[pa.Table, bool]:
    """The first MAX_ROWS rows, and whether there are more; raises HttpError where they are too large."""
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if sum(each.nbytes for each in found) > MAX_BYTES or rows * batch.num_columns > _MAX_CELLS:
            raise too_large()
        if rows > MAX_ROWS:
            break
    return pa.Table.from_batches(found, batches.schema).slice(0, MAX_ROWS), rows > MAX_ROWS


def too_large() -> HttpError:
    return detail(413, f"The answer is larger than {MAX_BYTES >> 20} MiB. Ask for fewer rows or columns.")


def _not_kept() -> HttpError:
    return field_error("as_of", "There is no such version, or it is not kept any more.")


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the engine as answers."""
    try:
        yield
    except OverTime as error:
        raise detail(422, str(error)) from None
    except (QueryError, PipelineError) as error:
        if str(error) == OUT_OF_MEMORY:
            raise detail(413, "The query needs more memory than it may have.") from None
        raise field_error("sql", str(error)) from None
    except RecursionError:
        raise field_error("sql", "The query is nested too deeply.") from None
