"""The macros of SQL, and its views over one snapshot.

The rows are views over the snapshot's Parquet files, so the engine reads only the columns and row groups of a
query. Imports and rejects come from the log, which is read at the first scan of their views: a log of 1,000
versions takes 60 ms, and few queries need it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.types import BadTypeList, split_types
from sigdir.warehouse.log.manifest import history, public_name
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.fields import FIELDS, STORED, fields, sql_of
from sigdir.warehouse.table.parquet import REJECT_SCHEMA, batches_in
from sigdir.warehouse.table.paths import Paths

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
        ("fault", pa.string()),
    ]
)
_FAULT_TYPE = pa.struct([("path", pa.string()), ("reason", pa.string())])

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
        ("sightings", pa.int64()),
        ("seconds", pa.float64()),
        ("sources", pa.list_(_SOURCE_TYPE)),
        ("faults", pa.list_(_FAULT_TYPE)),
    ]
)

REJECTS_SCHEMA = pa.schema([("import_id", pa.int64()), *REJECT_SCHEMA])

_NO_ROWS = f"(SELECT {', '.join(f'NULL::{field.type.sql} AS {field.name}' for field in STORED)} LIMIT 0)"

_SHOWN_FIRST = ("id", "text_signature", "hex_signature", "created_at", "import_id")
_ROW = ", ".join(
    sql_of(field.name) if field.sql else field.name
    for field in (*fields(_SHOWN_FIRST), *(field for field in FIELDS if field.name not in _SHOWN_FIRST))
)

# Nested tuples that the pattern of a parameter matches, because RE2 cannot count. The real corpora have up to eight.
_DEPTH = 12


def _parameter_pattern(depth: int) -> str:
    """A regular expression of one type in a canonical list: a word or a tuple, and its arrays."""
    inside = "[^()]*"
    for _ in range(depth):
        inside = rf"(?:[^()]|\({inside}\))*"
    return rf"(?:[^,()]|\({inside}\))+"


# A list without a tuple is cut at its commas, one with tuples by the pattern, and a deeper one in Python: 1.4 s for
# 10 M texts. Cutting and joining with the engine's own lists took 11 s.
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

# It writes a hash as the views do, 0x and lower case. It takes text with or without 0x in either case, bytes, and
# integers of up to 128 bits, which become a selector of 8 digits or, over 32 bits, a topic of 64. Anything else gives
# NULL: an odd number of digits, a negative number.
_HEX_OF = """
CREATE MACRO hex_of(value) AS CASE
    WHEN typeof(value) = 'VARCHAR' AND regexp_full_match(value::VARCHAR, '(0[xX])?([0-9a-fA-F]{2})+')
    THEN '0x' || lower(regexp_replace(value::VARCHAR, '^0[xX]', ''))
    WHEN typeof(value) = 'BLOB' THEN '0x' || lower(hex(value))
    WHEN typeof(value) LIKE '%INT%' AND value::VARCHAR NOT LIKE '-%'
    THEN '0x' || lpad(lower(hex(value)), CASE WHEN strlen(hex(value)) > 8 THEN 64 ELSE 8 END, '0') END;
"""

VIEWS = (
    *(c.view_name for c in COLLECTIONS), "sightings", "evidence", "declarations", "ranked", "collisions", "standards",
    "names", "parameters", "imports", "rejects", "contracts", "interfaces",
)  # fmt: skip
"""All views, those of ``evidence.py`` too."""

_ALL = " UNION ALL ".join(
    f"SELECT '{collection}' AS collection, id, created_at, text_signature FROM {collection.view_name}"
    for collection in COLLECTIONS
)

_DERIVED = f"""
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
    """Create the views of rows, imports and rejects, the last two read through ``log``."""
    for collection in COLLECTIONS:
        _create_rows_view(connection, collection, snapshot)
    for name, schema, read in (("imports", IMPORTS_SCHEMA, log.imports), ("rejects", REJECTS_SCHEMA, log.rejects)):
        connection.register(name, LazyStream(schema, partial(log.keeping_error, read)))


def create_derived_views(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the macros and the views over texts: 14 ms, a tenth of a small query's time."""
    add_function(connection, "deep_types", _deep_types, ["VARCHAR"], "VARCHAR[]")
    connection.execute(_HEX_OF)
    connection.execute(_MACROS)
    connection.execute(_DERIVED)


def add_function(
    connection: duckdb.DuckDBPyConnection, name: str, function: Callable[..., Any], types: Sequence[str], result: Any,
    *, takes_null: bool = False, is_volatile: bool = False,
) -> None:  # fmt: skip
    """Let queries call a function of Arrow columns of these SQL types. A volatile one is not called while a query is planned."""
    parameters: list[Any] = list(types)
    nulls = FunctionNullHandling.SPECIAL if takes_null else FunctionNullHandling.DEFAULT
    connection.create_function(
        name, function, parameters, result, type=PythonUDFType.ARROW, null_handling=nulls, side_effects=is_volatile
    )


def _create_rows_view(connection: duckdb.DuckDBPyConnection, collection: Collection, snapshot: Snapshot) -> None:
    files = [file.path for file in snapshot.files[collection]]
    connection.execute(
        f"CREATE VIEW {collection.view_name} AS SELECT {_ROW} FROM {read_parquet(files) if files else _NO_ROWS}"
    )


def read_parquet(files: Iterable[Path]) -> str:
    """Parquet files in a FROM clause. A view takes no bound parameters, so the names are quoted."""
    # Without this a parent folder called `id=7` would become a column.
    return f"read_parquet([{', '.join(quoted(str(file)) for file in files)}], hive_partitioning = false)"


def quoted(text: str) -> str:
    """A text as an SQL literal, for the few statements that take no bound parameter."""
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def distinct_names(names: Iterable[str]) -> list[str]:
    """The names of columns, each once in any case, as SQL has them: the second `a` is `a_2`, so that no column is lost."""
    found: dict[str, str] = {}
    numbers: Counter[str] = Counter()
    for name in names:
        key = name
        while key.lower() in found:
            numbers[name.lower()] += 1
            key = f"{name}_{numbers[name.lower()] + 1}"
        found[key.lower()] = key
    return list(found.values())


def _deep_types(lists: pa.ChunkedArray) -> pa.Array:
    """Cut parameter lists at the commas outside tuples."""
    return pa.array([_split(text) for text in lists.to_pylist()], pa.list_(pa.string()))


def _split(text: str) -> list[str]:
    """The types of a list; a text that is not balanced, which no view has, is returned whole."""
    try:
        return split_types(text)
    except BadTypeList:
        return [text]


class LazyLog:
    """The imports and rejects in the log up to a version, read at each scan.

    The engine turns our errors into its own, with a traceback in the message. ``error`` keeps the last one of ours.
    ``names_only`` leaves the folders of sources out.
    """

    def __init__(self, paths: Paths, version: int, *, names_only: bool = False) -> None:
        self._paths = paths
        self._version = version
        self._names_only = names_only
        self.error: WarehouseError | None = None

    def keeping_error(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read()
        except WarehouseError as error:
            self.error = error
            raise

    def _entries(self) -> list[dict[str, Any]]:
        entries = history(self._paths, self._version) if self._version >= 0 else []
        return [without_folders(entry) if self._names_only else entry for entry in entries if "import" in entry]

    def imports(self) -> Iterator[pa.RecordBatch]:
        """One row per import, with the columns of IMPORTS_SCHEMA."""
        yield from imports_table(self._entries()).to_batches()

    def rejects(self) -> Iterator[pa.RecordBatch]:
        """The rows of the rejects files that the imports name, with the import's number."""
        for entry in self._entries():
            if entry["totals"]["rejected"]:
                for batch in batches_in(self._paths.rejects_file(entry["run"])):
                    number = pa.repeat(pa.scalar(entry["import"], pa.int64()), batch.num_rows)
                    columns = [number, *pa.table(batch).cast(REJECT_SCHEMA).combine_chunks().columns]
                    yield from pa.Table.from_arrays(columns, schema=REJECTS_SCHEMA).to_batches()


@dataclass
class LazyStream:
    """An Arrow stream with known columns whose rows are made at each scan."""

    _schema: pa.Schema
    _read: Callable[[], Iterator[pa.RecordBatch]]

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = pa.RecordBatchReader.from_batches(self._schema, self._read())
        return batches.__arrow_c_stream__(requested_schema)


def without_folders(entry: dict[str, Any]) -> dict[str, Any]:
    """An import's summary as anybody may see it: its files by their names, without the reasons of faults."""
    sources = [source | {"path": public_name(source["path"]), "fault": None} for source in entry["sources"]]
    return entry | {"sources": sources, "faults": []}


def imports_table(entries: Sequence[dict[str, Any]]) -> pa.Table:
    """The imports among the log's entries; the columns of IMPORTS_SCHEMA."""
    rows = [
        {
            "import_id": entry["import"],
            "version": entry["version"],
            "committed_at": entry["committed_at"],
            "source": entry["source"],
            "files": len(entry["sources"]),
            **{name: entry["totals"][name] for name in ("read", "imported", "duplicate", "rejected")},
            "sightings": entry.get("evidence", {}).get("sightings", 0),
            "seconds": entry["seconds"],
            "sources": entry["sources"],
            "faults": entry["faults"],
        }
        for entry in entries
        if "import" in entry
    ]
    return pa.Table.from_pylist(rows, schema=IMPORTS_SCHEMA)
