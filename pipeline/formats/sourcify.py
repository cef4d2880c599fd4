"""Sourcify's export v2: which texts were compiled, as what, and by how many compilations.

::

    signatures                      signature_hash_32, signature_hash_4, signature, created_at
    compiled_contracts_signatures   id, compilation_id, signature_hash_32, signature_type, created_at

Both are Parquet, split by row range into files in any order. The first has the texts, the second has a row for each
compilation and each function, event and error that its ABI declares. They are joined by the hash: a text is a candidate
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
from contextlib import AbstractContextManager
from itertools import groupby
from types import TracebackType
from typing import Any

import pyarrow as pa

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import parquet
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import BATCH_ROWS, Candidates, Entry, pack
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import MOST_CONTRACTS, Kind, Sighting, Witness
from sigdir.signatures.grammar import OK
from sigdir.warehouse.sql.scratch import ScratchTables

SIGNATURES, COMPILED = "signatures", "compiled_contracts_signatures"
COLUMNS = {
    SIGNATURES: ("signature_hash_32", "signature"),
    COMPILED: ("compilation_id", "signature_hash_32", "signature_type"),
}
"""The columns by which each table is known."""
READ_OF_COMPILED = ("signature_hash_32", "signature_type")

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
    SELECT if(key IS NULL, {file}, NULL), key, if(key IS NULL, NULL, kind), count(*) FROM (
        SELECT {kind} AS kind, if(kind IS NULL, NULL, {key}) AS key FROM rows)
    GROUP BY ALL"""
_KEYS = {
    "bytes": "if(octet_length(signature_hash_32) = 32, signature_hash_32, NULL)",
    "text": """if(regexp_full_match(signature_hash_32, '(0[xX])?[0-9a-fA-F]{64}'),
        unhex(right(signature_hash_32, 64)), NULL)""",
    "": "NULL::BLOB",
}
"""The hash of 32 bytes in a column of bytes, of hex digits, of anything else."""
_KINDS = "list_position(['function', 'event', 'error'], signature_type)"
"""The number of a ``Kind``; null for another word."""
_ADD_UP = """CREATE OR REPLACE TABLE counts AS
    SELECT unread_in, key, kind, sum(compilations)::UBIGINT AS compilations FROM counts GROUP BY ALL"""
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


class SourcifyTables(AbstractContextManager["SourcifyTables"]):
    """Takes the files of both tables in any order, then gives the candidates of the files of ``signatures``."""

    def __init__(self, make_tables: Callable[[], ScratchTables]) -> None:
        self._tables = tables = make_tables()
        tables.execute(_TEXTS)
        tables.execute(_COUNTS)
        self._files: dict[str, list[Source]] = {SIGNATURES: [], COMPILED: []}
        self._counts = 0
        self._most_counts = _MOST_COUNTS

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tables.__exit__(kind, error, trace)

    def add(self, source: Source) -> None:
        """Keep what is needed of a file. Raises BadInput for a Parquet file that is none of the tables."""
        name = _table_of(source)
        with parquet.open_table(source) as table:
            if name == SIGNATURES:
                self._add_texts(source, parquet.rows_of(table))
            elif name == COMPILED:
                self._add_compiled(source, table.batches(list(READ_OF_COMPILED)))
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
            rows = pa.table(batch)
            key = _KEYS[_written(rows.schema.field(READ_OF_COMPILED[0]).type)]
            kind = _KINDS if _written(rows.schema.field(READ_OF_COMPILED[1]).type) == "text" else "NULL"
            self._tables.append(rows, _ADD_COUNTS.format(file=source.number, key=key, kind=kind))
            self._counts += len(rows)
            if self._counts > self._most_counts:
                self._add_up()

    def _add_up(self) -> None:
        self._tables.execute(_ADD_UP)
        self._counts = self._tables.number("SELECT count(*) FROM counts")
        self._most_counts = max(_MOST_COUNTS, 2 * self._counts)

    def read(self) -> Iterator[Candidates]:
        """The candidates of all files of ``signatures``, in the order of ``add``."""
        self._warn_of_what_is_missing()
        self._warn_of_unread_rows()
        if not self._files[SIGNATURES]:
            return
        self._add_up()
        self._warn_of_hashes_without_text()
        rows = (row for batch in self._tables.batches(_JOINED, _ROWS) for row in _rows(batch))
        for file, entries in groupby(rows, key=lambda row: row[0]):
            yield from pack((entry for _, entry in entries), file)

    def _warn_of_what_is_missing(self) -> None:
        for table, other, loss in (
            (COMPILED, SIGNATURES, "kinds and numbers of contracts stay unknown"),
            (SIGNATURES, COMPILED, "its hashes have no texts, and it says nothing"),
        ):
            if not self._files[table]:
                for source in self._files[other]:
                    source.warnings.append(f"Sourcify's table {table} is not among the inputs: {loss}")

    def _warn_of_unread_rows(self) -> None:
        unread = dict(row for batch in self._tables.batches(_UNREAD, _ROWS) for row in _values(batch))
        for source in self._files[COMPILED]:
            if rows := unread.get(source.number, 0):
                source.warnings.append(f"{rows:,} rows have no hash of 32 bytes or no known signature_type")

    def _warn_of_hashes_without_text(self) -> None:
        missing = self._tables.number(_WITHOUT_TEXT)
        if missing and self._files[COMPILED]:
            self._files[COMPILED][0].warnings.append(
                f"{missing:,} hashes of {COMPILED} have no text in {SIGNATURES}; a file of it may be missing"
            )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int, Entry]]:
    """The number of the file, and the candidate, of each row of the join."""
    for file, number, text, declared, reason, kind, compilations in _values(batch):
        entry = Entry(text, number, _COLLECTIONS.get(kind, 0), declared, reason)
        if kind and reason == OK:
            contracts = min(compilations, MOST_CONTRACTS)
            entry = entry._replace(sighting=Sighting(Kind(kind), Witness.DECLARED, contracts=contracts, verified=True))
        yield file, entry


_COLLECTIONS = {Kind.FUNCTION: FUNCTIONS, Kind.EVENT: EVENTS, Kind.ERROR: FUNCTIONS}


def _values(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _written(kind: pa.DataType) -> str:
    """How a column writes a hash or a word: "bytes", "text", or "" for neither."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return "bytes" if is_bytes else ""
