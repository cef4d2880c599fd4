"""A file of transactions or logs, decoded by one query: DuckDB reads the rows, calls the decoder and makes the result.

The engine streams vectors of 2,048 rows in the file's order, so memory does not grow with the file. The query's function
``decode_row`` is the decoder of columns that SQL's ``decode_calldata`` has too (``signatures/decode_columns.py``).
Parquet has a column for each named parameter of the commonest selectors and topics, which a first query finds.
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.pipeline.decode_query import columns_query, file_rows, hashes_query, lines_query
from sigdir.pipeline.directory import Directory, Source, known_of_all, opened
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.target import STDOUT, open_target
from sigdir.signatures.decode_columns import ColumnDecoder, Row, argument_keys, parameter_names, read_input
from sigdir.signatures.decode_input import BadInput as BadData
from sigdir.signatures.given_contract import DeployedContract, address_of
from sigdir.signatures.readings import Form, Input
from sigdir.signatures.types import Type, parameter_types
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.table.errors import QueryError

_MEMORY = "1GB"
_BATCH_ROWS = 16_384
_KNOWN = 65_536
"""Addresses whose contracts are remembered."""
_ROW_TYPE = pa.struct(
    [(name, {"exact": pa.bool_(), "texts": pa.int32()}.get(name, pa.string())) for name in Row._fields]
)


@dataclass
class DecodeReport:
    """How many rows were read, and how many of each confidence were written."""

    rows: int = 0
    confidence: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> dict[str, Any]:
        return {"rows": self.rows, "confidence": dict(self.confidence)}

    def lines(self) -> list[str]:
        parts = ", ".join(f"{self.confidence[name]:,} {name}" for name in ("high", "medium", "low", "none"))
        return [f"{self.rows:,} rows by confidence: {parts}"]


def decode_file(
    source: str, target: str, directory: Source, progress: Reporter, chain_id: int | None = None
) -> DecodeReport:
    """Decode each row of a file, by the contracts of a chain where one is given.

    Raises a PipelineError, WarehouseError and OSError.
    """
    is_parquet = _is_parquet(target)
    with opened(directory) as texts, ScratchTables(connect(_MEMORY, os.cpu_count() or 1)) as engine:
        engine.execute("SET preserve_insertion_order = true")
        decoding = _Decoding(engine, texts, progress, chain_id)
        with decoding.errors_of(source):
            rows = file_rows(engine, source)
            found = engine.rows(hashes_query(rows))
            progress.stage("decode", int(found[0][1]) if found else 0)
            query = columns_query(rows, decoding.types(hash for hash, _ in found)) if is_parquet else lines_query(rows)
            with open_target(target, packs=not is_parquet) as out:
                (_write_parquet if is_parquet else _write_lines)(out, engine.batches(query, _BATCH_ROWS))
    return decoding.report


def _is_parquet(target: str) -> bool:
    """Raises BadTarget for a target whose name is of no format."""
    name = target.lower().removesuffix(".gz").removesuffix(".zst")
    if target != STDOUT and not target.lower().endswith(".parquet") and not name.endswith((".ndjson", ".jsonl")):
        raise BadTarget(target, "its name ends neither with .parquet nor .ndjson nor .jsonl")
    return target.lower().endswith(".parquet")


def _write_parquet(out: BinaryIO, batches: pa.RecordBatchReader) -> None:
    with pq.ParquetWriter(out, batches.schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_lines(out: BinaryIO, batches: pa.RecordBatchReader) -> None:
    for batch in batches:
        out.writelines(line.encode() + b"\n" for line in batch.column(0).to_pylist())


# The function.


class _Decoding:
    """The engine's function ``decode_row``, and what it counts."""

    def __init__(self, engine: ScratchTables, directory: Directory, progress: Reporter, chain_id: int | None) -> None:
        self.report, self._progress = DecodeReport(), progress
        self._contract = lru_cache(_KNOWN)(partial(_contract, directory, chain_id))
        self._decoder = ColumnDecoder(lambda hashes: known_of_all(directory, hashes))
        self._error: Exception | None = None
        engine.add_function("decode_row", self._decode, ["BIGINT", "VARCHAR[]", "VARCHAR", "VARCHAR"], _ROW_TYPE)

    @contextmanager
    def errors_of(self, source: str) -> Iterator[None]:
        """Raise what the function raised, and other errors of the engine as BadInput."""
        try:
            yield
        except QueryError as error:
            raise self._error or BadInput(source, str(error)) from None

    def _decode(
        self, _: pa.ChunkedArray, topics: pa.ChunkedArray, data: pa.ChunkedArray, called: pa.ChunkedArray
    ) -> pa.StructArray:
        """What the engine calls. It gives the rows' numbers too, because for rows that are all alike it would call once."""
        try:
            with _uncollected():
                rows = self._rows(zip(topics.to_pylist(), data.to_pylist(), called.to_pylist(), strict=True))
            self._count(rows)
        except Exception as error:
            self._error = error
            raise
        columns = [pa.array(column, one.type) for column, one in zip(zip(*rows, strict=True), _ROW_TYPE, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=list(_ROW_TYPE))

    def _count(self, rows: list[Row]) -> None:
        self.report.rows += len(rows)
        self.report.confidence.update(row.confidence for row in rows)
        self._progress.rows(len(rows))
        self._progress.advance(len(rows))

    def _rows(self, given: Iterable[tuple[list[str], str | None, str | None]]) -> list[Row]:
        read = [self._with_contract(_read(topics, data), called) for topics, data, called in given]
        decoded = iter(self._decoder.rows([one for one in read if not isinstance(one, Row)]))
        return [one if isinstance(one, Row) else next(decoded) for one in read]

    def _with_contract(self, read: Input | Row, called: str | None) -> Input | Row:
        contract = self._contract(called) if isinstance(read, Input) else None
        return read if contract is None or isinstance(read, Row) else read._replace(contract=contract)

    def types(self, hashes: Iterable[str | None]) -> dict[str, str]:
        """The SQL types of named parameters, by the first text of each hash: text where hashes do not agree.

        Names of columns differ by more than their case, and a number is no name.
        """
        found: dict[str, str] = {}
        spellings: dict[str, str] = {}
        for key, type in chain.from_iterable(map(self._parameters, hashes)):
            if not key.isdigit() and spellings.setdefault(key.lower(), key) == key:
                found[key] = type if found.get(key, type) == type else "VARCHAR"
        return found

    def _parameters(self, digits: str | None) -> Iterator[tuple[str, str]]:
        if digits is None or not re.fullmatch("[0-9a-f]{8}|[0-9a-f]{64}", digits):
            return
        hash = bytes.fromhex(digits)
        for known in self._decoder.known([hash])[hash][:1]:
            types = parameter_types(known.text)
            yield from zip(argument_keys(parameter_names(known), len(types)), map(_sql_type, types), strict=False)


def _contract(directory: Directory, chain_id: int | None, called: str | None) -> DeployedContract | None:
    """The contract at a row's address, 40 hex digits with 0x or without; None where imports have not seen its texts."""
    if chain_id is None or called is None:
        return None
    try:
        found = directory.contract(chain_id, address_of(called if called[:2] in ("0x", "0X") else f"0x{called}"))
    except BadData:
        return None
    return found if found.texts else None


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the garbage collector: a vector makes many objects and no cycles, and walking them doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(topics: list[str], data: str | None) -> Input | Row:
    if data is None:
        return Row(reason="no input, no topic and no data")
    try:
        return read_input(Form.CALLDATA, data, topics)
    except BadData as error:
        return Row(reason=str(error))


def _sql_type(type: Type) -> str:
    """The type of a parameter's column. Wide integers, addresses and bytes are text, tuples and arrays JSON."""
    if type.text == "bool":
        return "BOOLEAN"
    if re.fullmatch(r"u?int\d+", type.text) and int(type.text.lstrip("uint")) <= 64:
        return "UBIGINT" if type.text.startswith("u") else "BIGINT"
    return "VARCHAR"
