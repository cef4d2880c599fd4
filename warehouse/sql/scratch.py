"""Tables that a job keeps in the engine while it runs: joined and grouped within its memory limit, spilled beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType

import duckdb
import pyarrow as pa

from sigdir.signatures.interruption import waiting
from sigdir.warehouse.table.errors import QueryError


class ScratchTables(AbstractContextManager["ScratchTables"]):
    """Raises QueryError where the engine fails, as with a full disk."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def execute(self, statement: str) -> None:
        with _failures(self._connection):
            self._connection.execute(statement)

    def append(self, rows: pa.Table, statement: str) -> None:
        """Run an INSERT that reads these rows under the name ``rows``."""
        with _failures(self._connection):
            self._connection.register("rows", rows)
            self._connection.execute(statement)
            self._connection.unregister("rows")

    def number(self, query: str) -> int:
        """The one number that a query gives."""
        with _failures(self._connection):
            ((found,),) = self._connection.execute(query).fetchall()
        return int(found or 0)

    def batches(self, query: str, rows: int) -> Iterator[pa.RecordBatch]:
        """The result of a query in batches of at most ``rows``."""
        with _failures(self._connection):
            yield from self._connection.sql(query).to_arrow_reader(rows)


@contextmanager
def _failures(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    try:
        with waiting(connection.interrupt):
            yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise QueryError(f"tables of the import: {str(error).partition(chr(10))[0]}") from error
