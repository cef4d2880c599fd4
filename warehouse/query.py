"""SQL over one version of the warehouse. DuckDB, in memory, on views over the snapshot's files.

The connection reads the warehouse's own files and nothing else: file access is confined to the
folder, the network is off, and the configuration is locked, so SQL text from anyone may be run.
``unsafe`` lifts all of that for someone who runs SQL of their own.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from warehouse.errors import QueryError, Unusable
from warehouse.files import run_name
from warehouse.parquet import sha256_of
from warehouse.paths import Paths
from warehouse.schema import COLLECTIONS, FILE_SCHEMA, REJECT_SCHEMA, VIEW_NAMES, Collection
from warehouse.snapshot import Snapshot, history

if TYPE_CHECKING:
    import pandas as pd

# One character a byte with the byte's code, as the wire format writes a hash.
_BYTES_SIGNATURE = (
    "array_to_string(list_transform(range(0, octet_length(hash)),"
    " lambda i: chr(('0x' || substr(hex(hash), 2 * i + 1, 2))::INTEGER)), '')"
)

_SOURCE_TYPE = pa.struct(
    [
        ("path", pa.string()),
        ("format", pa.string()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("read", pa.int64()),
        ("imported", pa.int64()),
        ("duplicate", pa.int64()),
        ("rejected", pa.int64()),
    ]
)

IMPORTS_SCHEMA = pa.schema(
    [
        ("import_id", pa.int64()),
        ("version", pa.int64()),
        ("committed_at", pa.timestamp("ms", tz="UTC")),
        ("source", pa.string()),
        ("files", pa.int64()),
        ("read", pa.int64()),
        ("imported", pa.int64()),
        ("duplicate", pa.int64()),
        ("rejected", pa.int64()),
        ("seconds", pa.float64()),
        ("sources", pa.list_(_SOURCE_TYPE)),
        ("rejects_file", pa.string()),
    ]
)


def connect(paths: Paths, memory_limit: str, threads: int, spill: Path | None = None) -> duckdb.DuckDBPyConnection:
    """A bare engine within a memory limit.

    It spills to ``spill``, by default a folder of its own below the system's temporary one: the
    warehouse may be read-only, and importers clear up in its ``tmp``.
    """
    folder = spill or Path(gettempdir()) / f"sigdir-sql-{run_name()}"
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("SET memory_limit = $limit", {"limit": memory_limit})
    except duckdb.Error as error:
        raise QueryError(f"memory limit {memory_limit!r}: {str(error).partition(chr(10))[0]}") from error
    connection.execute("SET threads = $threads", {"threads": threads})
    connection.execute("SET temp_directory = $folder", {"folder": str(folder)})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    return connection


def _require_intact(paths: Paths, snapshot: Snapshot, entries: Sequence[dict[str, Any]]) -> None:
    """Raise Unusable where a data file is not as it was written.

    DuckDB 2.0 looks at no page's checksum, and one flipped byte in four would change an answer unnoticed.
    0.1 s for 10 M rows, once for an opened warehouse.
    """
    written = {name: digest for entry in entries for name, digest in entry.get("sha256", {}).items()}
    files = [file.path for files in snapshot.files.values() for file in files]
    with ThreadPoolExecutor() as pool:
        for path, digest in zip(files, pool.map(sha256_of, files), strict=True):
            if written.get(paths.in_table(path), digest) != digest:
                raise Unusable(f"{path}: damaged: these are not the bytes that were written")


def imports_table(paths: Paths, entries: Sequence[dict[str, Any]]) -> pa.Table:
    """The imports among the log's entries; the columns of IMPORTS_SCHEMA."""
    rows = [
        {
            "import_id": entry["import"],
            "version": entry["version"],
            "committed_at": entry["committed_at"],
            "source": entry.get("source"),
            "files": len(entry["sources"]),
            **{name: entry["totals"][name] for name in ("read", "imported", "duplicate", "rejected")},
            "seconds": entry["seconds"],
            "sources": entry["sources"],
            "rejects_file": str(paths.rejects_file(entry["run"])) if entry["totals"]["rejected"] else None,
        }
        for entry in entries
        if "import" in entry
    ]
    return pa.Table.from_pylist(rows, schema=IMPORTS_SCHEMA)


_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)


def _reads(connection: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Whether a text is at most one statement, and that only reads.

    EXPLAIN ANALYZE runs what it explains, and a SELECT may have a COPY or an INSERT for a common
    table expression, so the parser's tree is looked through.
    """
    explained = _EXPLAIN.match(query)
    query = query[explained.end() :] if explained else query
    if not connection.extract_statements(query):
        return True
    tree = connection.sql("SELECT json_serialize_sql($query::VARCHAR) AS tree", params={"query": query})
    parsed = json.loads(tree.to_arrow_table()["tree"][0].as_py())
    return not parsed["error"] and len(parsed["statements"]) == 1 and not _writes(parsed)


def _writes(tree: Any) -> bool:
    """Whether a part of a parsed query is COPY_QUERY_NODE, INSERT_QUERY_NODE or another of the kind."""
    if isinstance(tree, list):
        return any(map(_writes, tree))
    if not isinstance(tree, dict):
        return False
    return str(tree.get("type")).endswith("_QUERY_NODE") or any(map(_writes, tree.values()))


def _told(rows: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """The batches, the engine's errors while it computes them turned into ours."""
    try:
        yield from rows
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise QueryError(str(error)) from error


class Result:
    """The rows of a query, fetched once in the form that is asked for."""

    def __init__(self, relation: duckdb.DuckDBPyRelation | None) -> None:
        self._relation = relation

    def arrow(self) -> pa.Table:
        """All rows as an Arrow table; raises QueryError."""
        reader = self.reader()
        return pa.Table.from_batches(list(reader), schema=reader.schema)

    def df(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame; raises QueryError."""
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def rows(self) -> list[tuple[Any, ...]]:
        """All rows as Python tuples; raises QueryError."""
        table = self.arrow()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def reader(self, batch_rows: int = 65_536) -> pa.RecordBatchReader:
        """The rows as a stream of batches, computed while they are read; raises QueryError at any."""
        if self._relation is None:
            return pa.RecordBatchReader.from_batches(pa.schema([]), [])
        try:
            rows = self._relation.to_arrow_reader(batch_rows)
        except duckdb.Error as error:
            raise QueryError(str(error)) from error
        return pa.RecordBatchReader.from_batches(rows.schema, _told(rows))

    def __str__(self) -> str:
        try:
            return "" if self._relation is None else str(self._relation)
        except duckdb.Error as error:
            raise QueryError(str(error)) from error


class Database:
    """The views over one snapshot: signatures, event_signatures, imports, rejects."""

    def __init__(
        self, paths: Paths, snapshot: Snapshot, memory_limit: str = "1GB", threads: int | None = None,
        unsafe: bool = False,
    ) -> None:  # fmt: skip
        self._unsafe = unsafe
        self._connection = connect(paths, memory_limit, threads or os.cpu_count() or 1)
        try:
            self._create_views(paths, snapshot)
        except (duckdb.Error, OSError) as error:
            reason = str(error).partition("\n")[0]
            raise Unusable(f"{paths.root}: {reason}") from error
        if not unsafe:
            self._confine(paths)

    def _confine(self, paths: Paths) -> None:
        self._connection.execute("SET allowed_directories = $folders", {"folders": [str(paths.root)]})
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def _create_views(self, paths: Paths, snapshot: Snapshot) -> None:
        for collection in COLLECTIONS:
            self._create_rows_view(collection, snapshot)
        entries = history(paths, snapshot.version) if snapshot.version >= 0 else []
        _require_intact(paths, snapshot, entries)
        imports = imports_table(paths, entries)
        self._connection.register("imports_arrow", imports)
        self._connection.execute("CREATE TABLE imports_table AS FROM imports_arrow")
        self._connection.execute("CREATE VIEW imports AS SELECT * EXCLUDE (rejects_file) FROM imports_table")
        self._connection.unregister("imports_arrow")
        self._create_rejects_view([file for file in imports["rejects_file"].to_pylist() if file])

    def _create_rows_view(self, collection: Collection, snapshot: Snapshot) -> None:
        files = snapshot.parquet_files(collection)
        source = self._files(files, FILE_SCHEMA)
        self._connection.execute(
            f"CREATE VIEW {VIEW_NAMES[collection]} AS SELECT id, created_at, text_signature,"
            f" '0x' || lower(hex(hash)) AS hex_signature, {_BYTES_SIGNATURE} AS bytes_signature,"
            f" hash, import_id FROM {source}"
        )

    def _create_rejects_view(self, files: list[str]) -> None:
        columns = "collection, text, reason, position, file, line"
        if files:
            source = self._files(files, REJECT_SCHEMA, "filename = true")
            self._connection.execute(
                f"CREATE VIEW rejects AS SELECT i.import_id, {columns} FROM {source} r"
                " JOIN imports_table i ON i.rejects_file = r.filename"
            )
        else:
            source = self._files([], REJECT_SCHEMA)
            self._connection.execute(f"CREATE VIEW rejects AS SELECT 0::BIGINT AS import_id, {columns} FROM {source}")

    def _files(self, files: list[str], schema: pa.Schema, options: str = "") -> str:
        """What to select from: the Parquet files, or an empty table of the same columns.

        A view takes no bound parameters, so the names are quoted; they are our own.
        """
        if files:
            names = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
            # A folder above may be called `id=7`, and would be taken for a column.
            return f"read_parquet([{names}], hive_partitioning = false{', ' + options if options else ''})"
        name = "empty_" + "_".join(schema.names)
        self._connection.register(name, schema.empty_table())
        return name

    def sql(self, query: str, parameters: Sequence[Any] | dict[str, Any] | None = None) -> Result:
        """Run one query; raises QueryError. ``parameters`` bind ``?``, ``$1`` or ``$name``.

        Only what reads is run, unless ``unsafe``: the folder that the engine may read from could
        otherwise be written to as well, with COPY or ATTACH.
        """
        try:
            if not self._unsafe and not _reads(self._connection, query):
                raise QueryError("one query that reads, please: SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or SHOW")
            return Result(self._connection.sql(query, params=parameters or None))
        except duckdb.Error as error:
            raise QueryError(str(error)) from error

    def close(self) -> None:
        self._connection.close()
