"""The views ``contracts`` and ``interfaces``: a row for each statement about an address, and one for each interface.

The files are mapped and given to the engine in batches, at each scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from duckdb.func import PythonUDFType

from sigdir.signatures.arrow import Array, numbers, strings
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.evidence.mapped import Columns, numbers_of, open_columns
from sigdir.warehouse.log.manifest import CONTRACTS, Manifest, MappedFile
from sigdir.warehouse.sql.functions import hex_texts
from sigdir.warehouse.sql.views import LazyStream

_ROWS = 1 << 16
_CONTRACTS: Final = pa.schema(
    [
        ("chain", pa.uint64()), ("address", pa.string()), ("interface", pa.string()), ("known_by", pa.string()),
        ("implementation", pa.string()), ("source", pa.string()), ("import_id", pa.int64()),
    ]
)  # fmt: skip
_INTERFACE_ROW: Final = pa.struct(
    [("interface", pa.string()), ("known_by", pa.string()), ("kind", pa.string()), ("prefix", pa.string())]
)
_INTERFACE_SQL = "STRUCT(interface VARCHAR, known_by VARCHAR, kind VARCHAR, prefix VARCHAR)[]"
_KNOWN_BY = strings(["abi", "code"])
_KINDS = strings([kind.name.lower() for kind in Kind])

# A text has the first 8 bytes of its hash. Few texts share a selector, so few are hashed.
_INTERFACES = """
CREATE VIEW interfaces AS
    WITH parts AS (SELECT unnest(interface_rows(part::INTEGER), recursive := true) FROM range({parts}) AS parts(part)),
    keys AS (SELECT interface, max(known_by) AS known_by FROM parts WHERE kind IS NULL GROUP BY interface),
    texts AS (SELECT DISTINCT interface, kind, prefix FROM parts WHERE kind IS NOT NULL),
    named AS (
        SELECT interface, kind, prefix, text_signature FROM texts JOIN signatures ON left(prefix, 10) = hex_signature
            WHERE kind != 'event' AND left(keccak256(text_signature), 18) = prefix
        UNION ALL SELECT interface, kind, prefix, text_signature FROM texts JOIN event_signatures
            ON prefix = left(hex_signature, 18) WHERE kind = 'event')
    SELECT interface, any_value(known_by) AS known_by, count(*) FILTER (kind = 'function') AS functions,
        count(*) FILTER (kind = 'event') AS events, count(*) FILTER (kind = 'error') AS errors,
        coalesce(list(text_signature ORDER BY text_signature, kind) FILTER (text_signature IS NOT NULL), []) AS texts,
        coalesce(list(kind ORDER BY text_signature, kind) FILTER (text_signature IS NOT NULL), []) AS kinds
    FROM keys LEFT JOIN texts USING (interface) LEFT JOIN named USING (interface, kind, prefix) GROUP BY interface
"""


def create_contract_views(connection: duckdb.DuckDBPyConnection, manifest: Manifest) -> None:
    """Create both views, after the views of the rows and the functions; raises UnreadableWarehouse."""
    connection.register("contracts", LazyStream(_CONTRACTS, partial(_contracts_reader, manifest)))
    parts = [
        (rows, columns, at)
        for columns in map(open_columns, manifest.mapped_of(CONTRACTS))
        for rows, column in ((_keys, "keys"), (_texts, "texts"))
        for at in _parts(columns[column])
    ]

    def interface_rows(numbered: pa.ChunkedArray) -> pa.Array:
        found = [rows(columns, at) for rows, columns, at in (parts[number] for number in numbered.to_pylist())]
        offsets = numbers(np.cumsum([0, *map(len, found)], dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, pa.concat_arrays(found))

    # As a volatile function it is not called while a query is planned.
    connection.create_function(
        "interface_rows", interface_rows, ["INTEGER"], _INTERFACE_SQL, type=PythonUDFType.ARROW, side_effects=True
    )
    connection.execute(_INTERFACES.format(parts=len(parts)))


def _contracts_reader(manifest: Manifest) -> pa.RecordBatchReader:
    files = manifest.mapped_of(CONTRACTS)
    found = (batch for file in files for batch in _contracts(manifest, file, open_columns(file)))
    return pa.RecordBatchReader.from_batches(_CONTRACTS, found)


def _contracts(manifest: Manifest, file: MappedFile, columns: Columns) -> Iterator[pa.RecordBatch]:
    said = [(manifest.sources[one[0]].label, one[1]) if one is not None else None for one in file.statements]
    counts = np.array([one is not None for one in said])
    labels = strings([one and one[0] for one in said])
    imports = np.array([one[1] if one else 0 for one in said], np.int64)
    for start in range(0, len(columns["addresses"]), _ROWS):
        part = slice(start, min(start + _ROWS, len(columns["addresses"])))
        statements, interfaces = (numbers_of(columns[name][part]) for name in ("statements", "interfaces"))
        rows = np.flatnonzero(counts[statements]) + start
        at, number = numbers(statements[rows - start]), interfaces[rows - start]
        has, key = number > 0, np.maximum(number - 1, 0)
        place = columns["proxies"].searchsorted(rows)
        place = np.minimum(place, max(0, len(columns["proxies"]) - 1))
        is_proxy = columns["proxies"][place] == rows if len(columns["proxies"]) else np.zeros(len(rows), np.bool_)
        chains = columns["chains"][columns["chain_ends"].searchsorted(rows, side="right")]
        yield pa.RecordBatch.from_arrays(
            [
                numbers(chains.astype(np.uint64)), _hex(columns["addresses"], rows), _hex(columns["keys"], key, has),
                _KNOWN_BY.take(numbers(_taken(columns["by_code"], key).astype(np.int8), has)),
                _hex(columns["targets"], place, is_proxy), labels.take(at), numbers(imports[statements[rows - start]]),
            ],
            schema=_CONTRACTS,
        )  # fmt: skip


def _keys(columns: Columns, rows: Array) -> pa.StructArray:
    known_by = _KNOWN_BY.take(numbers(columns["by_code"][rows].astype(np.int8)))
    nothing = pa.nulls(len(rows), pa.string())
    return _interface_rows(_hex(columns["keys"], rows), known_by, nothing, nothing)


def _texts(columns: Columns, rows: Array) -> pa.StructArray:
    key = columns["key_ends"].searchsorted(rows.astype(np.uint64), side="right")
    kinds = _KINDS.take(numbers(columns["kinds"][rows].astype(np.int8)))
    return _interface_rows(
        _hex(columns["keys"], key), pa.nulls(len(rows), pa.string()), kinds, _hex(columns["texts"], rows)
    )


def _interface_rows(*columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, fields=list(_INTERFACE_ROW))


def _parts(column: Array) -> Iterator[Array]:
    for start in range(0, len(column), _ROWS):
        yield np.arange(start, min(start + _ROWS, len(column)))


def _taken(column: Array, rows: Array) -> Array:
    return column[rows] if len(column) else np.zeros(len(rows), column.dtype)


def _hex(column: Array, rows: Array, is_valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """The values of some rows of a column of bytes as 0x and hex digits; null where they are not valid."""
    raw = np.ascontiguousarray(_taken(column, rows)).view(np.uint8).reshape(len(rows), column.dtype.itemsize)
    return hex_texts(raw, is_valid)
