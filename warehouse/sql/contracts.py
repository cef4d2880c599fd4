"""The views ``contracts`` and ``interfaces``: a row for each statement about an address, and one for each interface; and tables
in which a job gathers what is said of contracts, written as one file of contracts (``evidence/contracts.py``).

For the views the files are mapped and given to the engine in batches, at each scan. Imports fill the tables from their inputs,
a compaction from the files that it merges; the engine sorts and joins them within a job's memory limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import numbers, strings, values
from sigdir.signatures.candidates import binary_column, fixed_bytes
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.evidence.contracts import (
    ADDRESS_BYTES,
    BY_CODE,
    BY_KEY,
    BY_TEXTS,
    DEPLOYMENTS,
    KEY_BYTES,
    TEXTS,
    deployments_of,
    interface_texts_of,
)
from sigdir.warehouse.evidence.mapped import (
    PIECE_ROWS,
    Columns,
    bytes_for,
    create_columns,
    open_columns,
    packed_numbers,
    pieces_of,
    raw_bytes,
)
from sigdir.warehouse.log.manifest import CONTRACTS, Manifest, MappedFile
from sigdir.warehouse.sql.functions import hex_texts
from sigdir.warehouse.sql.scratch import ScratchTables
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


# The tables.

_JOIN = f"""
CREATE OR REPLACE TABLE placed AS
    SELECT statement, chain, address, arg_max(holder, number) AS holder, arg_max(how, number) AS how,
           arg_max(target, number) AS target
    FROM deployments GROUP BY statement, chain, address;
CREATE OR REPLACE TABLE keyed AS
    SELECT holder, how, unhex(sha256(array_to_string(list_sort(list(DISTINCT kind || hex(text))), ','))) AS key
    FROM texts WHERE how = {BY_TEXTS} GROUP BY holder, how
    UNION ALL SELECT DISTINCT holder, how, holder FROM (
        SELECT holder, how FROM texts UNION ALL SELECT holder, how FROM placed)
        WHERE how != {BY_TEXTS} AND holder IS NOT NULL;
CREATE OR REPLACE TABLE interfaces AS
    SELECT key, bool_or(how = {BY_CODE}) AS by_code, row_number() OVER (ORDER BY key) AS number FROM keyed GROUP BY key;
"""
_CHAINS = "SELECT chain, count(*) AS rows FROM placed GROUP BY chain ORDER BY chain"
_ROWS = """SELECT address, coalesce(interfaces.number, 0) AS interface, statement, target
    FROM placed LEFT JOIN keyed USING (holder, how) LEFT JOIN interfaces USING (key) ORDER BY chain, address, statement"""
_KEYS = "SELECT key, by_code::UTINYINT AS by_code FROM interfaces ORDER BY number"
_TEXTS = """SELECT DISTINCT interfaces.number AS interface, text, kind
    FROM texts JOIN keyed USING (holder, how) JOIN interfaces USING (key) ORDER BY interface, text, kind"""


class ContractTables(ScratchTables):
    """Add rows of DEPLOYMENTS and TEXTS, then ``write``."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        super().__init__(connection)
        for table, schema in (("deployments", DEPLOYMENTS), ("texts", TEXTS)):
            self.append(schema.empty_table(), f"CREATE TABLE {table} AS FROM rows")

    def add(self, table: str, rows: pa.Table) -> None:
        """Add rows to ``deployments`` or to ``texts``."""
        self.append(rows, f"INSERT INTO {table} BY NAME FROM rows")

    def write(self, path: Path, statements: int) -> tuple[int, int]:
        """Write a file of contracts, to be synced; returns how many deployments and how many interfaces it has."""
        self.execute(_JOIN)
        chains = self.batches(_CHAINS, PIECE_ROWS).read_all()
        counts = values(chains["rows"])
        rows, interfaces = int(counts.sum()), self.number("SELECT count(*) FROM interfaces")
        proxies = self.number("SELECT count(target) FROM placed")
        texts = self.number(f"SELECT count(*) FROM ({_TEXTS})")
        columns = create_columns(path, {
            "chains": ("<u8", len(counts), None), "chain_ends": ("<u8", len(counts), None),
            "addresses": (f"S{ADDRESS_BYTES}", rows, None), "interfaces": ("u1", rows, bytes_for(interfaces)),
            "statements": ("u1", rows, bytes_for(statements - 1)),
            "proxies": ("<u8", proxies, None), "targets": (f"S{ADDRESS_BYTES}", proxies, None),
            "keys": (f"S{KEY_BYTES}", interfaces, None), "key_ends": ("<u8", interfaces, None),
            "by_code": ("u1", interfaces, None), "texts": ("S8", texts, None), "kinds": ("u1", texts, None),
        })  # fmt: skip
        columns["chains"][:] = values(chains["chain"])
        columns["chain_ends"][:] = np.cumsum(counts)
        self._write_deployments(columns)
        self._write_interfaces(columns)
        return rows, interfaces

    def _write_deployments(self, columns: Columns) -> None:
        start = proxies = 0
        for batch in self.batches(_ROWS, PIECE_ROWS):
            part = slice(start, start + batch.num_rows)
            columns["addresses"][part] = fixed_bytes(batch.column("address"), ADDRESS_BYTES)
            for name, of in (("interfaces", "interface"), ("statements", "statement")):
                columns[name][part] = packed_numbers(values(batch.column(of)), columns[name].shape[-1])
            target = batch.column("target")
            at = np.flatnonzero(values(target.is_valid()))
            found = slice(proxies, proxies + len(at))
            columns["proxies"][found] = at + start
            columns["targets"][found] = fixed_bytes(target.take(numbers(at)), ADDRESS_BYTES)
            start, proxies = part.stop, found.stop

    def _write_interfaces(self, columns: Columns) -> None:
        start = 0
        for batch in self.batches(_KEYS, PIECE_ROWS):
            part = slice(start, start + batch.num_rows)
            columns["keys"][part] = fixed_bytes(batch.column("key"), KEY_BYTES)
            columns["by_code"][part] = values(batch.column("by_code"))
            start = part.stop
        start, counts = 0, np.zeros(len(columns["keys"]) + 1, np.int64)
        for batch in self.batches(_TEXTS, PIECE_ROWS):
            part = slice(start, start + batch.num_rows)
            columns["texts"][part] = fixed_bytes(batch.column("text"), 8)
            columns["kinds"][part] = values(batch.column("kind"))
            counts += np.bincount(values(batch.column("interface")), minlength=len(counts))
            start = part.stop
        columns["key_ends"][:] = np.cumsum(counts[1:])


_DISTINCT = """
CREATE TABLE of_source (statement INTEGER, source INTEGER);
INSERT INTO of_source VALUES {pairs};
CREATE OR REPLACE TABLE deployments AS
    SELECT deployments.* FROM deployments JOIN of_source USING (statement)
    QUALIFY row_number() OVER (PARTITION BY source, chain, address, holder, how, target ORDER BY number DESC) = 1;
"""


def add_files(tables: ContractTables, files: Sequence[MappedFile]) -> tuple[tuple[int, int], ...]:
    """Add what counts of files, the oldest first; returns the statements of a file that has all of it.

    What a source says twice of an address is added once, as it said it last.
    """
    statements = [said for file in files for said in file.statements if said is not None]
    number = 0
    for file in files:
        columns, following = open_columns(file), statements.index(next(filter(None, file.statements)))
        statement_of = np.cumsum([said is not None for said in file.statements]) + following - 1
        statement_of = np.where([said is not None for said in file.statements], statement_of, -1)
        for part in pieces_of(columns["texts"]):
            tables.add("texts", _texts_of(columns, part))
        for part in pieces_of(columns["addresses"]):
            tables.add("deployments", _deployments_of(columns, part, statement_of, number))
            number += PIECE_ROWS
    pairs = ", ".join(f"({number}, {source})" for number, (source, _) in enumerate(statements))
    tables.execute(_DISTINCT.format(pairs=pairs))
    return tuple(statements)


def _texts_of(columns: Columns, part: slice) -> pa.Table:
    found = interface_texts_of(columns, part)
    how = numbers(np.where(found.by_code, BY_CODE, BY_KEY).astype(np.uint8))
    return pa.table([binary_column(found.keys), how, numbers(found.kinds), binary_column(found.texts)], schema=TEXTS)


def _deployments_of(columns: Columns, part: slice, statement_of: npt.NDArray[np.int64], number: int) -> pa.Table:
    """Those that count, numbered from ``number`` on."""
    one = deployments_of(columns, part)
    statements = statement_of[one.statements]
    table = pa.table(
        [
            numbers(statements.astype(np.int32)), numbers(np.arange(number, number + len(statements))),
            numbers(one.chains), binary_column(one.addresses), binary_column(one.keys, one.has_key),
            numbers(np.where(one.by_code, BY_CODE, BY_KEY).astype(np.uint8)),
            binary_column(one.targets, one.has_target),
        ],
        schema=DEPLOYMENTS,
    )  # fmt: skip
    return table.filter(numbers(statements >= 0))
