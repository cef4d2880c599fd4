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

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import parquet
from sigdir.pipeline.formats.hashes import parse_hash
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

_HASH_BYTES = 32
_KEY = npt.NDArray[np.uint64]
_ROWS = 4096  # of a result at once; a text has up to 64 KiB
_BATCH_BYTES = 1 << 25
_MOST_COUNTS = 4_000_000
_KINDS = ("function", "event", "error")
"""At the number of a ``Kind`` less one. No column: pyarrow would load pandas, also for `sigdir import --help`."""
_TEXTS = """CREATE TABLE texts
    (file INTEGER, number BIGINT, text BLOB, hash BLOB, reason UTINYINT, high UBIGINT, low UBIGINT)"""
_COUNTS = "CREATE TABLE counts (high UBIGINT, low UBIGINT, kind UTINYINT, compilations UBIGINT)"
_ADD_COUNTS = "INSERT INTO counts SELECT high, low, kind, count(*) FROM rows GROUP BY ALL"
_ADD_UP = """CREATE OR REPLACE TABLE counts AS
    SELECT high, low, kind, sum(compilations)::UBIGINT AS compilations FROM counts GROUP BY ALL"""
_JOINED = """SELECT file, number, text, hash, reason, coalesce(kind, 0)::UTINYINT AS kind,
    coalesce(compilations, 0)::UBIGINT AS compilations
    FROM texts LEFT JOIN counts USING (high, low) ORDER BY file, number, kind"""
_WITHOUT_TEXT = "SELECT count(*) FROM (SELECT DISTINCT high, low FROM counts) ANTI JOIN texts USING (high, low)"


def looks_like(source: Source) -> bool:
    """Whether a Parquet file has the columns of one of the tables. Columns that the user names make it another table."""
    return not source.columns and parquet.looks_like(source) and _table_of(source) is not None


def read(source: Source) -> Iterator[Candidates]:
    """The candidates of one file alone, whose kinds are unknown."""
    return parquet.read(source)


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
        self._unread_rows: dict[int, int] = {}
        """By the number of a file of ``compiled_contracts_signatures``: its rows without a hash or a kind."""
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
                self._add_texts(source, parquet.entries(table))
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
        if not entries:
            return
        texts, numbers, _, hashes, reasons, _ = zip(*entries, strict=True)
        whole = [value if len(value) == _HASH_BYTES else bytes(_HASH_BYTES) for value in hashes]
        keys = _keys(np.frombuffer(b"".join(whole), np.uint8))
        has_key = pa.array([len(value) == _HASH_BYTES for value in hashes])
        columns = {
            "file": pa.repeat(pa.scalar(source.number, pa.int32()), len(entries)),
            "number": pa.array(numbers, pa.int64()),
            "text": pa.array(texts, pa.large_binary()),
            "hash": pa.array(hashes, pa.binary()),
            "reason": pa.array(reasons, pa.uint8()),
            "high": pc.if_else(has_key, pa.array(keys[:, 0]), None),
            "low": pc.if_else(has_key, pa.array(keys[:, 1]), None),
        }
        self._tables.append(pa.table(columns), "INSERT INTO texts FROM rows")

    def _add_compiled(self, source: Source, batches: Iterable[pa.RecordBatch]) -> None:
        """Count the rows of a file of ``compiled_contracts_signatures``, given as READ_OF_COMPILED."""
        self._files[COMPILED].append(source)
        for batch in batches:
            digests, is_hash = _digests(batch.column(READ_OF_COMPILED[0]))
            kinds = _kinds(batch.column(READ_OF_COMPILED[1]))
            good = is_hash & (kinds > 0)
            unread = len(good) - int(np.count_nonzero(good))
            self._unread_rows[source.number] = self._unread_rows.get(source.number, 0) + unread
            keys = _keys(digests[good])
            rows = pa.table({"high": keys[:, 0], "low": keys[:, 1], "kind": kinds[good]})
            self._tables.append(rows, _ADD_COUNTS)
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
        for source in self._files[COMPILED]:
            if unread := self._unread_rows.get(source.number, 0):
                source.warnings.append(f"{unread:,} rows have no hash of 32 bytes or no known signature_type")

    def _warn_of_hashes_without_text(self) -> None:
        missing = self._tables.number(_WITHOUT_TEXT)
        if missing and self._files[COMPILED]:
            self._files[COMPILED][0].warnings.append(
                f"{missing:,} hashes of {COMPILED} have no text in {SIGNATURES}; a file of it may be missing"
            )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int, Entry]]:
    """The number of the file, and the candidate, of each row of the join."""
    for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        file, number, text, declared, reason, kind, compilations = row
        entry = Entry(text, number, _COLLECTIONS.get(kind, 0), declared, reason)
        if kind and reason == OK:
            contracts = min(compilations, MOST_CONTRACTS)
            entry = entry._replace(sighting=Sighting(Kind(kind), Witness.DECLARED, contracts=contracts, verified=True))
        yield file, entry


_COLLECTIONS = {Kind.FUNCTION: FUNCTIONS, Kind.EVENT: EVENTS, Kind.ERROR: FUNCTIONS}


def _keys(digests: npt.NDArray[np.uint8]) -> _KEY:
    """The first 16 bytes of each digest as two numbers."""
    keys: _KEY = np.ascontiguousarray(digests).reshape(-1, _HASH_BYTES).view(np.uint64)[:, :2]
    return keys


def _values(column: pa.Array) -> tuple[pa.Array, npt.NDArray[Any] | None]:
    """The distinct values of a column and the numbers that its rows have; None where each row is a value."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary, pc.fill_null(column.indices, len(column.dictionary)).to_numpy(zero_copy_only=False)
    return column, None


def _digests(column: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """The digests of a column of bytes, uint8 of (rows, 32), and a flag per row: whether it has one."""
    values, indices = _values(column)
    is_hash = np.zeros(len(values) + 1, np.bool_)
    digests = np.zeros((len(values) + 1, _HASH_BYTES), np.uint8)
    if (
        pa.types.is_binary(values.type)
        or pa.types.is_large_binary(values.type)
        or pa.types.is_fixed_size_binary(values.type)
    ):
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy(zero_copy_only=False)
        is_hash[:-1] = lengths == _HASH_BYTES
        fixed = values.filter(pa.array(is_hash[:-1])).cast(pa.large_binary())
        joined = b"".join(fixed.to_pylist())
        digests[is_hash] = np.frombuffer(joined, np.uint8).reshape(-1, _HASH_BYTES)
    elif pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        for at, digits in enumerate(values.cast(pa.large_binary()).to_pylist()):
            digest = parse_hash((digits or b"").decode("latin-1"))
            if digest is not None and len(digest) == _HASH_BYTES:
                is_hash[at], digests[at] = True, np.frombuffer(digest, np.uint8)
    if indices is None:
        return digests[:-1], is_hash[:-1]
    return digests[indices], is_hash[indices]


def _kinds(column: pa.Array) -> npt.NDArray[np.uint8]:
    """The numbers of the kinds in a column of words; 0 for a word that is none."""
    values, indices = _values(column)
    found = np.zeros(len(values) + 1, np.uint8)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        known = pc.index_in(values, pa.array(_KINDS).cast(values.type))
        found[:-1] = pc.fill_null(pc.add(known, 1), 0).to_numpy(zero_copy_only=False)
    kinds: npt.NDArray[np.uint8] = found[:-1] if indices is None else found[indices]
    return kinds
