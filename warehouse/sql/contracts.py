"""The views ``contracts`` and ``interfaces``: a row for each statement about an address, and one for each interface.

The files are mapped and given to the engine in batches, at each scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers, strings
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.evidence.contracts import deployments_of, interface_texts_of
from sigdir.warehouse.evidence.mapped import Columns, open_columns, pieces_of, raw_bytes
from sigdir.warehouse.log.manifest import CONTRACTS, Manifest, MappedFile
from sigdir.warehouse.sql.functions import hex_texts
from sigdir.warehouse.sql.views import LazyStream, add_function

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
    connection.register("contracts", LazyStream(_CONTRACTS, partial(_contracts, manifest)))
    parts = [
        (rows, columns, at)
        for columns in map(open_columns, manifest.mapped_of(CONTRACTS))
        for rows, column in ((_keys, "keys"), (_texts, "texts"))
        for at in pieces_of(columns[column])
    ]

    def interface_rows(numbered: pa.ChunkedArray) -> pa.Array:
        found = [rows(columns, at) for rows, columns, at in (parts[number] for number in numbered.to_pylist())]
        offsets = numbers(np.cumsum([0, *map(len, found)], dtype=np.int32))
        return pa.ListArray.from_arrays(offsets, pa.concat_arrays(found))

    add_function(connection, "interface_rows", interface_rows, ["INTEGER"], _INTERFACE_SQL, is_volatile=True)
    connection.execute(_INTERFACES.format(parts=len(parts)))


def _contracts(manifest: Manifest) -> Iterator[pa.RecordBatch]:
    return (batch for file in manifest.mapped_of(CONTRACTS) for batch in _contracts_in(manifest, file))


def _contracts_in(manifest: Manifest, file: MappedFile) -> Iterator[pa.RecordBatch]:
    columns, said = open_columns(file), file.statements
    counts = np.array([one is not None for one in said])
    labels = strings([one and manifest.sources[one[0]].label for one in said])
    imports = np.array([one[1] if one else 0 for one in said], np.int64)
    for part in pieces_of(columns["addresses"]):
        one = deployments_of(columns, part)
        batch = pa.RecordBatch.from_arrays(
            [
                numbers(one.chains), hex_texts(one.addresses), hex_texts(one.keys, one.has_key),
                _KNOWN_BY.take(numbers(one.by_code.astype(np.int8), one.has_key)),
                hex_texts(one.targets, one.has_target), labels.take(numbers(one.statements)),
                numbers(imports[one.statements]),
            ],
            schema=_CONTRACTS,
        )  # fmt: skip
        yield batch.filter(numbers(counts[one.statements]))


def _keys(columns: Columns, part: slice) -> pa.StructArray:
    keys, nothing = raw_bytes(columns["keys"][part]), pa.nulls(part.stop - part.start, pa.string())
    known_by = _KNOWN_BY.take(numbers(columns["by_code"][part].astype(np.int8)))
    return _interface_rows(hex_texts(keys), known_by, nothing, nothing)


def _texts(columns: Columns, part: slice) -> pa.StructArray:
    found, nothing = interface_texts_of(columns, part), pa.nulls(part.stop - part.start, pa.string())
    kinds = _KINDS.take(numbers(found.kinds.astype(np.int8)))
    return _interface_rows(hex_texts(found.keys), nothing, kinds, hex_texts(found.texts))


def _interface_rows(*columns: pa.Array) -> pa.StructArray:
    return pa.StructArray.from_arrays(columns, fields=list(_INTERFACE_ROW))
