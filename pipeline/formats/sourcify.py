"""Sourcify's export v2: which texts were compiled, as what, and by how many compilations.

::

    signatures                      signature_hash_32, signature_hash_4, signature, created_at
    compiled_contracts_signatures   id, compilation_id, signature_hash_32, signature_type, created_at
    contract_deployments            id, chain_id, address, ...
    verified_contracts              deployment_id, compilation_id, ...
    compiled_contracts              id, compiler, ...

All are Parquet, split by row range into files in any order. The first has the texts, the second has a row for each
compilation and each function, event and error that its ABI declares. The next two say at which addresses a compilation is:
the texts of a compilation are the interface of its contracts. Nothing is read of the last. The first two are joined by the hash: a text is a candidate
for each kind that it was compiled as, with the number of compilations; Sourcify has verified these contracts. A text that
no compilation has was sent by somebody: it counts as listed.

Invariants
    Memory is bounded: both tables lie in the engine, which spills them. The second table, of some hundred million rows, is
    counted by hash and kind as it is read, and the counts are added up whenever they have doubled.
    A row that cannot be read costs nothing else. A missing table is a warning that names it.

Source: Sourcify's documentation, "Download Dataset", and the schema of its database (`services/database`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import parquet
from sigdir.pipeline.formats.column_tables import BadRows, column_batches, hashes_of, integers_of
from sigdir.pipeline.source import Source
from sigdir.pipeline.target import rows_of
from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.candidates import BATCH_ROWS, Candidates, Entry, binary_column, fixed_bytes, pack
from sigdir.signatures.evidence import MOST_CONTRACTS, Kind, Sighting, Witness
from sigdir.signatures.grammar import OK
from sigdir.warehouse.evidence.contracts import ADDRESS_BYTES, BY_TEXTS
from sigdir.warehouse.evidence.mapped import raw_bytes

if TYPE_CHECKING:
    from sigdir.warehouse.sql.scratch import ScratchTables

SIGNATURES, COMPILED = "signatures", "compiled_contracts_signatures"
DEPLOYED, VERIFIED, COMPILATIONS = "contract_deployments", "verified_contracts", "compiled_contracts"
COLUMNS = {
    SIGNATURES: ("signature_hash_32", "signature"),
    COMPILED: ("compilation_id", "signature_hash_32", "signature_type"),
    DEPLOYED: ("id", "chain_id", "address"),
    VERIFIED: ("deployment_id", "compilation_id"),
    COMPILATIONS: ("id", "compiler", "fully_qualified_name"),
}
"""The columns by which each table is known."""
READ_OF_COMPILED = ("signature_hash_32", "signature_type", "compilation_id")

_ROWS = 4096  # of a result at once; a text has up to 64 KiB
_BATCH_BYTES = 1 << 25
_MOST_COUNTS = 4_000_000

_TEXTS = "CREATE TABLE texts (file INTEGER, number BIGINT, text BLOB, hash BLOB, reason UTINYINT)"
_TEXT_TYPES = pa.schema(
    [("number", pa.int64()), ("text", pa.binary()), ("hash", pa.binary()), ("reason", pa.uint8()), ("file", pa.int32())]
)
_ADD_TEXTS = "INSERT INTO texts BY NAME FROM rows"
_COUNTS = "CREATE TABLE counts (unread_in INTEGER, key BLOB, kind UTINYINT, compilations UBIGINT)"
"""A row without a hash or a kind has no key, and the number of its file."""
_ADD_COUNTS = """INSERT INTO counts
    SELECT if(is_read, NULL, {file}), if(is_read, hash, NULL), if(is_read, kind, NULL), count(*) FROM (
        SELECT {kind} AS kind, hash, kind IS NOT NULL AND hash IS NOT NULL AS is_read FROM rows)
    GROUP BY ALL"""
_KINDS = "list_position(['function', 'event', 'error'], signature_type::VARCHAR)"
"""The number of a ``Kind``; null for another word."""
_ADD_UP = """CREATE OR REPLACE TABLE counts AS
    SELECT unread_in, key, kind, sum(compilations)::UBIGINT AS compilations FROM counts GROUP BY ALL"""
_PLACES = """
CREATE TABLE members (compilation UBIGINT, kind UTINYINT, text BLOB);
CREATE TABLE deployed (id VARCHAR, chain UBIGINT, address BLOB);
CREATE TABLE verified (id VARCHAR, compilation UBIGINT);
"""
_ADD_MEMBERS = f"""INSERT INTO members SELECT hash(compilation_id::VARCHAR), kind, hash[1:8]::BLOB FROM (
    SELECT compilation_id, {_KINDS} AS kind, hash FROM rows) WHERE kind IS NOT NULL AND hash IS NOT NULL"""
_ADD_DEPLOYED = "INSERT INTO deployed SELECT id::VARCHAR, chain, address FROM rows"
_ADD_VERIFIED = "INSERT INTO verified SELECT deployment_id::VARCHAR, hash(compilation_id::VARCHAR) FROM rows"
_PLACED = "SELECT chain, address, compilation FROM deployed JOIN verified USING (id)"
_MEMBERS = "SELECT compilation, kind, text FROM members WHERE compilation IN (SELECT compilation FROM verified)"
_JOINED = """SELECT file, number, text, hash, reason, coalesce(kind, 0)::UTINYINT AS kind,
    coalesce(compilations, 0)::UBIGINT AS compilations
    FROM texts LEFT JOIN counts ON hash = key ORDER BY file, number, kind"""
_UNREAD = "SELECT unread_in, sum(compilations)::UBIGINT FROM counts WHERE key IS NULL GROUP BY ALL"
_WITHOUT_TEXT = "SELECT count(DISTINCT key) FROM counts ANTI JOIN texts ON key = hash"


def looks_like(source: Source) -> bool:
    """Whether a Parquet file has the columns of one of the tables. Columns that the user names make it another table."""
    return not source.columns and parquet.looks_like(source) and _table_of(source) is not None


def _table_of(source: Source) -> str | None:
    """Which of the tables a file has; None for another one, and for one that cannot be read."""
    try:
        with parquet.open_table(source) as table:
            return next((name for name, columns in COLUMNS.items() if {*columns} <= {*table.names}), None)
    except BadInput:
        return None


class SourcifyTables:
    """Takes the files of both tables in any order, then gives the candidates of the files of ``signatures``."""

    def __init__(self, make_tables: Callable[[], ScratchTables]) -> None:
        self._tables = tables = make_tables()
        tables.execute(_TEXTS)
        tables.execute(_COUNTS)
        tables.execute(_PLACES)
        self._files: dict[str, list[Source]] = {name: [] for name in COLUMNS}
        self._counts = 0
        self._most_counts = _MOST_COUNTS

    def add(self, source: Source) -> None:
        """Keep what is needed of a file. Raises BadInput for a Parquet file that is none of the tables."""
        name = _table_of(source)
        with parquet.open_table(source) as table:
            if name == SIGNATURES:
                self._add_texts(source, parquet.rows_of(table))
            elif name == COMPILED:
                self._add_compiled(source, table.batches(list(READ_OF_COMPILED)))
            elif name == DEPLOYED:
                self._add_deployed(source)
            elif name is not None:
                self._files[name].append(source)
                for batch in table.batches(list(COLUMNS[VERIFIED])) if name == VERIFIED else ():
                    self._tables.append(pa.table(batch), _ADD_VERIFIED)
            else:
                raise BadInput(source.name, "none of the tables of Sourcify's export: " + " and ".join(COLUMNS))

    def _add_texts(self, source: Source, entries: Iterable[Entry]) -> None:
        """Keep the candidates of a file of ``signatures``. Its declared hashes are the keys."""
        self._files[SIGNATURES].append(source)
        held: list[Entry] = []
        size = 0
        try:
            for entry in entries:
                held.append(entry)
                size += len(entry.text)
                if len(held) >= BATCH_ROWS or size > _BATCH_BYTES:
                    self._append(source, held)
                    held, size = [], 0
        finally:  # what was read of a broken file counts
            self._append(source, held)

    def _append(self, source: Source, entries: list[Entry]) -> None:
        if entries:
            texts, numbers, _, hashes, reasons, _ = zip(*entries, strict=True)
            columns = [numbers, texts, hashes, reasons, [source.number] * len(entries)]
            self._tables.append(
                pa.table(list(map(pa.array, columns, _TEXT_TYPES.types)), schema=_TEXT_TYPES), _ADD_TEXTS
            )

    def _add_compiled(self, source: Source, batches: Iterable[pa.RecordBatch]) -> None:
        """Count the rows of a file of ``compiled_contracts_signatures``, given as READ_OF_COMPILED."""
        self._files[COMPILED].append(source)
        for batch in batches:
            hashes = binary_column(*hashes_of(batch.column(READ_OF_COMPILED[0]), 32))
            rows = pa.table([hashes, *batch.columns[1:]], ["hash", *READ_OF_COMPILED[1:]])
            self._tables.append(rows, _ADD_COUNTS.format(file=source.number, kind=_KINDS))
            self._tables.append(rows, _ADD_MEMBERS)
            self._counts += len(rows)
            if self._counts > self._most_counts:
                self._add_up()

    def _add_deployed(self, source: Source) -> None:
        """Keep the addresses of a file of ``contract_deployments``."""
        self._files[DEPLOYED].append(source)
        bad = BadRows()
        for batch in column_batches(source, {"id": "id", "chain": "chain_id", "address": "address"}):
            addresses, is_good = hashes_of(batch.columns["address"], ADDRESS_BYTES)
            chains, is_chain = integers_of(batch.columns["chain"])
            bad.add("no address of 20 bytes", batch, is_good)
            bad.add("no number of a chain", batch, is_chain)
            columns = {"id": batch.columns["id"], "chain": numbers(chains), "address": binary_column(addresses)}
            self._tables.append(pa.table(columns).filter(numbers(is_good & is_chain)), _ADD_DEPLOYED)
        source.warnings += bad.sentences()

    def _add_contracts(self) -> None:
        """Give the contracts of the import the addresses, and the texts of their compilations."""
        for source in self._files[DEPLOYED][:1]:
            contracts = source.contracts
            if contracts is None:
                source.warnings.append("addresses of contracts are read by this machine alone, without --engine")
                return
            for batch in self._tables.batches(_PLACED, BATCH_ROWS):
                rows = batch.num_rows
                contracts.add_table(
                    np.full(rows, contracts.statement(source.statement), np.int32), values(batch.column("chain")),
                    raw_bytes(fixed_bytes(batch.column("address"), ADDRESS_BYTES)),
                    (raw_bytes(values(batch.column("compilation"))), np.ones(rows, np.bool_)),
                    np.full(rows, BY_TEXTS, np.uint8), None,
                )  # fmt: skip
            for batch in self._tables.batches(_MEMBERS, BATCH_ROWS):
                contracts.add_members(
                    raw_bytes(values(batch.column("compilation"))), np.full(batch.num_rows, BY_TEXTS, np.uint8),
                    values(batch.column("kind")), raw_bytes(fixed_bytes(batch.column("text"), 8)),
                )  # fmt: skip

    def _add_up(self) -> None:
        self._tables.execute(_ADD_UP)
        self._counts = self._tables.number("SELECT count(*) FROM counts")
        self._most_counts = max(_MOST_COUNTS, 2 * self._counts)

    def read(self) -> Iterator[Candidates]:
        """The candidates of all files of ``signatures``, in the order of ``add``."""
        self._warn_of_what_is_missing()
        self._warn_of_unread_rows()
        self._add_contracts()
        if not self._files[SIGNATURES]:
            return
        self._add_up()
        self._warn_of_hashes_without_text()
        rows = rows_of(self._tables.batches(_JOINED, _ROWS))
        for file, some in groupby(rows, key=itemgetter(0)):
            yield from pack((_entry(*row) for _, *row in some), file)

    def _warn_of_what_is_missing(self) -> None:
        for table, other, loss in (
            (COMPILED, SIGNATURES, "kinds and numbers of contracts stay unknown"),
            (SIGNATURES, COMPILED, "its hashes have no texts, and it says nothing"),
            (VERIFIED, DEPLOYED, "it is not known what is at its addresses"),
            (DEPLOYED, VERIFIED, "it is not known where its contracts are"),
        ):
            if not self._files[table]:
                for source in self._files[other]:
                    source.warnings.append(f"Sourcify's table {table} is not among the inputs: {loss}")

    def _warn_of_unread_rows(self) -> None:
        unread = dict(self._tables.rows(_UNREAD))
        for source in self._files[COMPILED]:
            if rows := unread.get(source.number, 0):
                source.warnings.append(f"{rows:,} rows have no hash of 32 bytes or no known signature_type")

    def _warn_of_hashes_without_text(self) -> None:
        missing = self._tables.number(_WITHOUT_TEXT)
        if missing and self._files[COMPILED]:
            self._files[COMPILED][0].warnings.append(
                f"{missing:,} hashes of {COMPILED} have no text in {SIGNATURES}; a file of it may be missing"
            )


def _entry(number: int, text: bytes, declared: bytes, reason: int, kind: int, compilations: int) -> Entry:
    """The candidate of a row of the join."""
    entry = Entry(text, number, Kind(kind).collection, declared, reason)
    if not kind or reason != OK:
        return entry
    contracts = min(compilations, MOST_CONTRACTS)
    return entry._replace(sighting=Sighting(Kind(kind), Witness.DECLARED, contracts=contracts, verified=True))
