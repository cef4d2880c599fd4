"""Tables that a job keeps in the engine while it runs: joined and grouped within its memory limit, spilled beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sigdir.signatures.interruption import waiting
from sigdir.warehouse.table.errors import QueryError


@dataclass
class ScratchTables:
    """As a context it ends with the block. Raises QueryError where the engine fails, as with a full disk."""

    _connection: duckdb.DuckDBPyConnection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def add_function(
        self, name: str, function: Callable[..., Any], types: Sequence[str], result: pa.StructType
    ) -> None:
        """Let queries call a function of Arrow columns of these SQL types that gives structs. NULL is given too."""
        parameters: list[Any] = list(types)
        fields = duckdb.struct_type({one.name: _SQL_TYPES[one.type] for one in result})
        self._connection.create_function(
            name, function, parameters, fields, type=PythonUDFType.ARROW, null_handling=FunctionNullHandling.SPECIAL
        )

    def columns(self, table: str) -> dict[str, str]:
        """The columns of what stands behind FROM, with their SQL types."""
        with _failures(self._connection):
            relation = self._connection.sql(f"FROM {table}")
            return {name: str(type) for name, type in zip(relation.columns, relation.types, strict=True)}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The result of a query."""
        with _failures(self._connection):
            return self._connection.execute(query).fetchall()

    def number(self, query: str) -> int:
        """The one number that a query gives."""
        ((found,),) = self.rows(query)
        return int(found or 0)

    def batches(self, query: str, rows: int) -> pa.RecordBatchReader:
        """The result of a query in batches of at most ``rows``, computed while they are read."""
        with _failures(self._connection):
            reader = self._connection.sql(query).to_arrow_reader(rows)
        return pa.RecordBatchReader.from_batches(reader.schema, self._each(reader))

    def _each(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with _failures(self._connection):
            yield from reader


_MOST_CHARACTERS = 500
_SQL_TYPES = {pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.int32(): "INTEGER"}


@contextmanager
def _failures(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    try:
        with waiting(connection.interrupt):
            yield
    except (duckdb.Error, pa.ArrowException) as error:
        reason = str(error).partition("Possible fixes")[0]  # they are arguments of functions
        raise QueryError(" ".join(reason.split())[:_MOST_CHARACTERS]) from error
