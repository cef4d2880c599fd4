"""Tables that a job keeps in the engine while it runs: joined and grouped within its memory limit, spilled beyond it.

Those of sightings say which count, and write files again without some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.guard import of_row
from sigdir.warehouse.sql.views import add_function, read_parquet
from sigdir.warehouse.table.errors import QueryError
from sigdir.warehouse.table.parquet import ROW_GROUP_ROWS, SIGHTING_SCHEMA, require_whole


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
        fields = duckdb.struct_type({one.name: _SQL_TYPES[one.type] for one in result})
        add_function(self._connection, name, function, types, fields, takes_null=True)

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
        reason = of_row(str(error)).partition("Possible fixes")[
            0
        ]  # arguments of DuckDB's functions, which nobody can give here
        raise QueryError(" ".join(reason.split())[:_MOST_CHARACTERS]) from error


MEMORY = "512MB"
"""For the tables of a job that writes evidence; above it, they are spilled."""

_COLUMNS = ", ".join(SIGHTING_SCHEMA.names)


def live_sightings(files: Sequence[EvidenceFile], sources: str, columns: str = "") -> str:
    """The query of the sightings that count, by a table of sources with the imports from which on theirs do."""
    return f"""
    SELECT s.*{columns} FROM {read_parquet(file.path for file in files)} AS s
    JOIN {sources} AS o ON o.source = s.source AND s.import_id >= o.import_id"""


class SightingTables(ScratchTables):
    """A view ``live`` of the sightings of some files that count, and a table ``sources``.

    A sighting is named by ``file_index`` and ``file_row_number``. Raises UnreadableWarehouse, QueryError.
    """

    def __init__(
        self, manifest: Manifest, files: Sequence[EvidenceFile], threads: int, spill: Path | None = None
    ) -> None:
        for file in files:
            require_whole(file.path, file.sha256)
        super().__init__(connect(MEMORY, threads, spill))
        pairs = np.array([(one.number, one.import_id) for one in manifest.sources.values()], np.int64).reshape(-1, 2)
        sources = pa.table({"source": numbers(pairs[:, 0]), "import_id": numbers(pairs[:, 1])})
        self.append(sources, "CREATE TABLE sources AS FROM rows")
        self.execute(f"CREATE VIEW live AS {live_sightings(files, 'sources', ', file_index, file_row_number')}")

    def without(self, gone: str, order: str, where: str = "true") -> Iterator[pa.Table]:
        """The sightings of ``live`` that are not in a table and fulfil a condition, in an order."""
        query = f"""SELECT {_COLUMNS} FROM live ANTI JOIN {gone} USING (file_index, file_row_number)
            WHERE {where} ORDER BY {order}"""
        for batch in self.batches(query, ROW_GROUP_ROWS):
            yield pa.Table.from_batches([batch]).cast(SIGHTING_SCHEMA)

    def counts(self, rows: str) -> dict[Any, int]:
        """How many sightings of each source what stands behind FROM has."""
        return dict(self.rows(f"SELECT source, count(*) FROM {rows} GROUP BY source"))
