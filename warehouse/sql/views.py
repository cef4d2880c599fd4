"""What SQL finds by name: the macros and the views over one snapshot.

The rows are views over the snapshot's Parquet files, so the engine reads the columns and row groups
that a query wants. What the log tells (imports, rejects) is read when a query asks for it: a log of
1,000 versions takes 60 ms, and few queries do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from duckdb.func import PythonUDFType

from sigdir.signatures.collections import (
    COLLECTIONS,
    EVENT_SIGNATURES,
    SIGNATURES,
    Collection,
)
from sigdir.signatures.types import BadTypeList, split_types
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.log import history
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import REJECT_SCHEMA
from sigdir.warehouse.snapshot import Snapshot

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
    ]
)

REJECTS_SCHEMA = pa.schema([("import_id", pa.int64()), *REJECT_SCHEMA])

# One character a byte with the byte's code, as the wire format writes a hash.
_BYTES_SIGNATURE = (
    "array_to_string(list_transform(range(0, octet_length(hash)),"
    " lambda i: chr(('0x' || substr(hex(hash), 2 * i + 1, 2))::INTEGER)), '')"
)

_NO_ROWS = (
    "(SELECT NULL::BIGINT AS id, NULL::TIMESTAMPTZ AS created_at, NULL::VARCHAR AS text_signature,"
    " NULL::BLOB AS hash, NULL::BIGINT AS import_id LIMIT 0)"
)

# Tuples in tuples that the pattern of a parameter follows; RE2 cannot count. The real corpora have up to eight.
_DEPTH = 12


def _parameter_pattern(depth: int) -> str:
    """A regular expression of one type in a canonical list: a word or a tuple, and its arrays."""
    inside = "[^()]*"
    for _ in range(depth):
        inside = rf"(?:[^()]|\({inside}\))*"
    return rf"(?:[^,()]|\({inside}\))+"


# Cut at commas where there is no tuple, by the pattern where there is, and where that is not deep enough in
# Python: 1.4 s for 10 M texts. Lists of the engine's own, cut and joined again, took 11.
_MACROS = f"""
CREATE MACRO signature_name(text) AS split_part(text, '(', 1);
CREATE MACRO parameter_list(text) AS substr(text, strpos(text, '(') + 1, strlen(text) - strpos(text, '(') - 1);
CREATE MACRO parameter_types(text) AS CASE
    WHEN parameter_list(text) = '' THEN []
    WHEN parameter_list(text) NOT LIKE '%(%' THEN string_split(parameter_list(text), ',')
    WHEN strlen(array_to_string(regexp_extract_all(parameter_list(text), '{_parameter_pattern(_DEPTH)}'), ','))
         = strlen(parameter_list(text))
    THEN regexp_extract_all(parameter_list(text), '{_parameter_pattern(_DEPTH)}')
    ELSE deep_types(parameter_list(text)) END;
"""

VIEWS = (*(c.view_name for c in COLLECTIONS), "collisions", "names", "parameters", "imports", "rejects")

MACROS = ("signature_name", "parameter_list", "parameter_types")
"""Of a canonical text: the name, what stands between its parentheses, and that as a list of types."""

_ALL = " UNION ALL ".join(
    f"SELECT '{collection}' AS collection, id, created_at, text_signature FROM {collection.view_name}"
    for collection in COLLECTIONS
)

# The selectors that come twice are found first: a list of texts for each of 10 M would be a gigabyte.
_DERIVED = f"""
CREATE VIEW collisions AS
    SELECT '0x' || lower(hex(hash)) AS hex_signature, count(*) AS texts,
           list(text_signature ORDER BY id) AS text_signatures, hash
    FROM signatures SEMI JOIN (SELECT hash FROM signatures GROUP BY hash HAVING count(*) > 1) USING (hash)
    GROUP BY hash;
CREATE VIEW names AS
    SELECT signature_name(text_signature) AS name, count(*) AS texts,
           count(*) FILTER (collection = '{SIGNATURES}') AS signatures,
           count(*) FILTER (collection = '{EVENT_SIGNATURES}') AS event_signatures
    FROM ({_ALL}) GROUP BY name;
CREATE VIEW parameters AS
    SELECT collection, id, unnest(range(1, len(types) + 1)) AS position, unnest(types) AS type, text_signature
    FROM (SELECT *, parameter_types(text_signature) AS types FROM ({_ALL}));
"""


def create_views(connection: duckdb.DuckDBPyConnection, paths: Paths, snapshot: Snapshot, log: LazyLog) -> None:
    """Create the macros and views; ``log`` is what imports and rejects are read through."""
    connection.create_function("deep_types", _deep_types, ["VARCHAR"], "VARCHAR[]", type=PythonUDFType.ARROW)
    connection.execute(_MACROS)
    for collection in COLLECTIONS:
        _create_rows_view(connection, collection, snapshot)
    connection.execute(_DERIVED)
    connection.register("imports", _Late(IMPORTS_SCHEMA, log.imports))
    connection.register("rejects", _Late(REJECTS_SCHEMA, log.rejects))


def _create_rows_view(connection: duckdb.DuckDBPyConnection, collection: Collection, snapshot: Snapshot) -> None:
    files = snapshot.parquet_files(collection)
    connection.execute(
        f"CREATE VIEW {collection.view_name} AS SELECT id, created_at, text_signature,"
        f" '0x' || lower(hex(hash)) AS hex_signature, {_BYTES_SIGNATURE} AS bytes_signature,"
        f" hash, import_id FROM {read_parquet(files) if files else _NO_ROWS}"
    )


def read_parquet(files: Sequence[str]) -> str:
    """Parquet files as SQL selects from them.

    A view takes no bound parameters, so the names are quoted; they are our own.
    """
    # A folder above may be called `id=7`, and would be taken for a column.
    return f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = false)"


def quoted(text: str) -> str:
    """A text as an SQL literal, for the few places that take no bound parameter."""
    return "'" + text.replace("'", "''") + "'"


def _deep_types(lists: pa.ChunkedArray) -> pa.Array:
    """Cut parameter lists at the commas that stand in no tuple."""
    return pa.array([_split(text) for text in lists.to_pylist()], pa.list_(pa.string()))


def _split(text: str) -> list[str]:
    """The types of a list; a text that is not balanced, which no view has, is returned whole."""
    try:
        return split_types(text)
    except BadTypeList:
        return [text]


class LazyLog:
    """The log's account of imports and rejects up to a version, read when it is asked for.

    The engine tells an error of ours as one of its own, with a traceback; ``trouble`` keeps the last as it was.
    """

    def __init__(self, paths: Paths, version: int) -> None:
        self._paths = paths
        self._version = version
        self.trouble: WarehouseError | None = None

    def _told(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except WarehouseError as error:
            self.trouble = error
            raise

    def _entries(self) -> list[dict[str, Any]]:
        entries = history(self._paths, self._version) if self._version >= 0 else []
        return [entry for entry in entries if "import" in entry]

    def imports(self) -> pa.RecordBatchReader:
        """One row an import, the columns of IMPORTS_SCHEMA."""
        return pa.RecordBatchReader.from_batches(IMPORTS_SCHEMA, self._told(self._import_batches()))

    def _import_batches(self) -> Iterator[pa.RecordBatch]:
        yield from imports_table(self._entries()).to_batches()

    def rejects(self) -> pa.RecordBatchReader:
        """The rows of the rejects files that the imports name, with the import's number."""
        return pa.RecordBatchReader.from_batches(REJECTS_SCHEMA, self._told(self._reject_batches()))

    def _reject_batches(self) -> Iterator[pa.RecordBatch]:
        for entry in self._entries():
            if entry["totals"]["rejected"]:
                path = self._paths.rejects_file(entry["run"])
                with naming(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
                    for batch in file.iter_batches():
                        number = pa.repeat(pa.scalar(entry["import"], pa.int64()), batch.num_rows)
                        columns = [number, *pa.table(batch).cast(REJECT_SCHEMA).combine_chunks().columns]
                        yield from pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA).to_batches()


class _Late:
    """An Arrow stream that the engine knows by its columns, and whose rows are made at each scan."""

    def __init__(self, schema: pa.Schema, read: Callable[[], pa.RecordBatchReader]) -> None:
        self._schema = schema
        self._read = read

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._read().__arrow_c_stream__(requested_schema)


def imports_table(entries: Sequence[dict[str, Any]]) -> pa.Table:
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
        }
        for entry in entries
        if "import" in entry
    ]
    return pa.Table.from_pylist(rows, schema=IMPORTS_SCHEMA)
