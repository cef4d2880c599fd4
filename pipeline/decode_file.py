"""A file of transactions or logs, decoded by one query: DuckDB reads the rows, calls the decoder and makes the result.

The engine streams vectors of 2,048 rows in the file's order, so memory does not grow with the file. The query's function
``decode_row`` calls the decoder that SQL's ``decode_calldata`` has too (``signatures/decode_batch.py``).
Parquet has a column for each named parameter of the commonest selectors and topics, which a first query finds.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from sigdir.pipeline.directory import Directory, Source, known_of_all, opened
from sigdir.pipeline.errors import BadInput, BadTarget
from sigdir.pipeline.formats.csv import HEADER_SEPARATORS, head_rows
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.source import Source as InputFile
from sigdir.pipeline.target import STDOUT, WRITERS, json_of, open_target
from sigdir.signatures.decode_batch import BatchDecoder, Row, argument_keys, parameter_names, read_input
from sigdir.signatures.decode_input import BadInput as BadData
from sigdir.signatures.errors import counted
from sigdir.signatures.given_contract import DeployedContract, address_of, chain_of, contract_of
from sigdir.signatures.readings import Form, Input, Known
from sigdir.signatures.standards import event_declarations
from sigdir.signatures.types import Type, parameter_types
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.sql.views import distinct_names, identifier, quoted
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
        return [f"{counted(self.rows, 'row')} by confidence: {parts}"]


def decode_file(
    source: str, target: str, directory: Source, progress: Reporter, given: Mapping[str, Any] | None = None
) -> DecodeReport:
    """Decode each row of a file, by the contract that is given for all rows (`abi`, `code`, or `to` with `chain`), or else
    by the contract at each row's address. Its chain is the row's own, or `chain` for a row without.

    Raises a PipelineError, WarehouseError, BadInput of signatures and OSError.
    """
    is_parquet = _is_parquet(target)
    with opened(directory) as texts, ScratchTables(connect(_MEMORY, os.cpu_count() or 1)) as engine:
        engine.execute("SET preserve_insertion_order = true")
        decoding = _Decoding(engine, texts, progress, given or {})
        with decoding.errors_of(source):
            rows = _file_rows(engine, source)
            found = engine.rows(_hashes_query(rows))
            progress.stage("decode", int(found[0][2]) if found else 0)
            types = decoding.types({hash: topics for hash, topics, _ in found}) if is_parquet else {}
            query = _columns_query(rows, types) if is_parquet else _lines_query(engine, rows)
            with open_target(target, packs=not is_parquet) as out:
                (WRITERS["parquet"] if is_parquet else _write_lines)(engine.batches(query, _BATCH_ROWS), out)
    return decoding.report


def _is_parquet(target: str) -> bool:
    """Raises BadTarget for a target whose name is of no format."""
    is_parquet = target.lower().endswith(".parquet")
    if target != STDOUT and not is_parquet and not _unpacked(target).endswith((".ndjson", ".jsonl")):
        raise BadTarget(target, "its name ends neither with .parquet nor .ndjson nor .jsonl")
    return is_parquet


def _unpacked(name: str) -> str:
    """A file's name in lower case, without the ending of its compression."""
    return name.lower().removesuffix(".gz").removesuffix(".zst")


def _write_lines(batches: pa.RecordBatchReader, out: BinaryIO) -> None:
    for batch in batches:
        out.writelines(line.encode() + b"\n" for line in batch.column(0).to_pylist())


# The function.


class _Decoding:
    """The engine's function ``decode_row``, and what it counts."""

    def __init__(
        self, engine: ScratchTables, directory: Directory, progress: Reporter, given: Mapping[str, Any]
    ) -> None:
        self.report, self._progress = DecodeReport(), progress
        chain = given.get("chain")
        is_of_all = any(given.get(name) is not None for name in ("abi", "code", "to"))
        self._given = contract_of(given, directory.contract) if is_of_all else None
        self._contract = lru_cache(_KNOWN)(partial(_contract_at, directory, None if chain is None else chain_of(chain)))
        self._decoder = BatchDecoder(lambda hashes: known_of_all(directory, hashes), directory.descriptors)
        self._error: Exception | None = None
        engine.add_function(
            "decode_row", self._decode, ["BIGINT", "VARCHAR[]", "VARCHAR", "BIGINT", "VARCHAR"], _ROW_TYPE
        )

    @contextmanager
    def errors_of(self, source: str) -> Iterator[None]:
        """Raise what the function raised, and other errors of the engine as BadInput."""
        try:
            yield
        except QueryError as error:
            raise self._error or BadInput(source, str(error).removeprefix(f"{source}: ")) from None

    def _decode(
        self,
        _: pa.ChunkedArray,
        topics: pa.ChunkedArray,
        data: pa.ChunkedArray,
        chains: pa.ChunkedArray,
        called: pa.ChunkedArray,
    ) -> pa.StructArray:
        """What the engine calls. It gives the rows' numbers too, because for rows that are all alike it would call once."""
        try:
            with _uncollected():
                columns = (column.to_pylist() for column in (topics, data, chains, called))
                rows = self._rows(zip(*columns, strict=True))
            self._count(rows)
        except Exception as error:
            self._error = error
            raise
        members = [pa.array(column, one.type) for column, one in zip(zip(*rows, strict=True), _ROW_TYPE, strict=True)]
        return pa.StructArray.from_arrays(members, fields=list(_ROW_TYPE))

    def _count(self, rows: list[Row]) -> None:
        self.report.rows += len(rows)
        self.report.confidence.update(row.confidence for row in rows)
        self._progress.rows(len(rows))
        self._progress.advance(len(rows))

    def _rows(self, given: Iterable[tuple[list[str] | None, str | None, int | None, str | None]]) -> list[Row]:
        read = [self._with_contract(_read(topics, data), chain, called) for topics, data, chain, called in given]
        decoded = iter(self._decoder.rows([one for one in read if not isinstance(one, Row)]))
        return [one if isinstance(one, Row) else next(decoded) for one in read]

    def _with_contract(self, read: Input | Row, chain: int | None, called: str | None) -> Input | Row:
        if isinstance(read, Row):
            return read
        if self._given is not None:
            return read._replace(contract=self._given)
        if called == _NOBODY and read.form is Form.CALLDATA and read.data:
            return Row(reason="no address is called: this is the code of a new contract")
        return read._replace(contract=self._contract(chain, called))

    def types(self, hashes: Mapping[str | None, list[int]]) -> dict[str, str]:
        """The SQL types of named parameters, by the first text of each hash: text where hashes do not agree.

        ``hashes`` has the numbers of topics of each one's rows, the commonest first. The first ones name the columns. Names
        of columns differ by more than their case, and a number is no name.
        """
        found: dict[str, str] = {}
        spellings: dict[str, str] = {}
        for number, hash in enumerate(hashes):
            for key, type in self._parameters(hash, hashes[hash]):
                if number < _NAMED and not key.isdigit() and spellings.setdefault(key.lower(), key) == key:
                    found.setdefault(key, type)
                if found.get(key, type) != type:
                    found[key] = "VARCHAR"
        return found

    def _parameters(self, digits: str | None, topics: list[int]) -> Iterator[tuple[str, str]]:
        if digits is None or not re.fullmatch("[0-9a-f]{8}|[0-9a-f]{64}", digits):
            return
        hash = bytes.fromhex(digits)
        texts = self._decoder.known([hash])[hash]
        for known in (texts if self._given is None else self._given.preferred(hash, texts))[:1]:
            types = [_sql_type(type) for type in parameter_types(known.text)]
            for names in (parameter_names(known), *_other_names(hash, known, topics)):
                yield from zip(argument_keys(names, len(types)), types, strict=False)


def _other_names(topic: bytes, known: Known, topics: list[int]) -> Iterator[list[str]]:
    """The names that logs with another number of topics than declared have by a standard: decoding takes them from there.

    ERC-721's Transfer has one more than ERC-20's.
    """
    declared = known.parsed().split
    if declared is None:
        return
    for indexed, declaration in event_declarations(topic).items():
        if sum(indexed) != len(declared) and 1 + sum(indexed) in topics:
            yield [one.name for one in declaration.inputs]


def _contract_at(
    directory: Directory, default: int | None, chain_id: int | None, called: str | None
) -> DeployedContract | None:
    """The contract at a row's address, 40 hex digits with 0x or without, on its chain or else the default one.

    None for what is no address, or no chain.
    """
    chain_id = default if chain_id is None else chain_id
    if chain_id is None or not called:
        return None
    try:
        address = address_of(called if called[:2] in ("0x", "0X") else f"0x{called}")
        return directory.contract(chain_of(chain_id), address)
    except BadData:
        return None


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


def _read(topics: list[str] | None, data: str | None) -> Input | Row:
    if data is None and not topics:
        return Row(reason="no input, no topic and no data")
    try:
        return read_input(Form.CALLDATA, data or "", topics)
    except BadData as error:
        return Row(reason=str(error))


def _sql_type(type: Type) -> str:
    """The type of a parameter's column. Wide integers, addresses and bytes are text, tuples and arrays JSON."""
    if type.text == "bool":
        return "BOOLEAN"
    if re.fullmatch(r"u?int\d+", type.text) and int(type.text.lstrip("uint")) <= 64:
        return "UBIGINT" if type.text.startswith("u") else "BIGINT"
    return "VARCHAR"


# The queries of `sigdir decode --file`: the rows of a Parquet, CSV or JSON file, and the columns of the result.
#
# The other columns of a file are ``k0``, ``k1`` and so on until the result, so no name of a file meets one of ours.


RESULT = ("row", *Row._fields)
"""The columns of the result before those that the file has besides."""

_INPUT, _TOPICS = ("input", "data", "calldata", "action_input"), ("topic0", "topic1", "topic2", "topic3")
_TO, _ADDRESS = ("to", "to_address", "action_to"), ("address", "contract_address")
_NOBODY = ""
"""Stands for the missing address of a row whose table has a column of called addresses: it makes a contract."""
_CHAIN = ("chain", "chain_id", "chainid")
_TOPIC_LIST = "topics"  # BigQuery has one list, ethereum-etl its text
_BESIDE_TOPICS = r"""(?:\\+x|[][{}()"',\s])+"""
"""What stands between and around the topics of a text: of JSON, of Postgres, of Python, or with a comma or a space each."""
_READ = (*_INPUT, _TOPICS[0], _TOPIC_LIST)
"""A file has at least one of these columns."""
_JSON = ("values", "arguments", "nested", "display")
_NAMED, _TYPED = 16, 1024
"""The commonest hashes, whose parameters are columns; and those whose values fit into the types of these columns."""
_MAX_COLUMNS = 1000
"""Of a file. The engine plans a query of 20,000 for half a minute."""
_DOCUMENT_BYTES = 64 << 20
_NO_VALUE = "('', 'NULL', 'null', 'None', 'NaN', 'nan', 'NA', 'N/A')"
_LINE_FORMS = {
    "BLOB": "'0x' || lower(hex({0}))",
    **dict.fromkeys(("DOUBLE", "FLOAT"), "CASE WHEN isfinite({0}) THEN {0} END"),
    "TIMESTAMP WITH TIME ZONE": "strftime({0}, '%Y-%m-%dT%H:%M:%S.%fZ')",
}  # fmt: skip
"""How a line of JSON has a column, where the engine's own form is not it."""
_HOLDS_SUCH = re.compile(r"\b(?:BLOB|DOUBLE|FLOAT)\b")
"""In the type of a list or struct, such as the access list of a transaction."""


class _FileRows(NamedTuple):
    """A query of a file's rows: ``row``, ``topics``, ``data``, ``chain``, ``called`` and the other columns, which stand in
    ``kept``.
    """

    query: str
    kept: dict[str, str]
    """The other columns' names and SQL types."""


def _file_rows(engine: ScratchTables, source: str) -> _FileRows:
    """The query of a file's rows by its name; raises BadInput, QueryError."""
    table = _table(engine, source)
    types = engine.columns(table)
    _check_columns(source, len(types))
    found = {name.lower(): name for name in reversed(types)}
    if found.keys().isdisjoint(_READ):
        raise BadInput(source, f"it has none of the columns {', '.join(_READ)}")
    texts = {name: _text(found[name], types[found[name]]) for name in (*_INPUT, *_TOPICS) if name in found}
    topics, data = _topics_and_data(found, types, texts)
    read = {found[name] for name in (*_INPUT, _TOPIC_LIST, *_TOPICS) if name in found}
    kept = {name: type for name, type in types.items() if name not in read}
    to, address = _first_text(_TO, found, types), _first_text(_ADDRESS, found, types)
    of_call = address if found.keys().isdisjoint(_TO) else f"coalesce({_filled(to)}, '{_NOBODY}')"
    columns = [
        'row_number() OVER () - 1 AS "row"',
        f"{topics} AS topics",
        f"{data} AS data",
        f"TRY_CAST({_first_text(_CHAIN, found, types)} AS BIGINT) AS chain",  # also of 0x89, as nodes have it
        f"CASE WHEN {topics} IS NULL THEN {of_call} ELSE coalesce({address}, {to}) END AS called",
        *(f"{identifier(name)} AS k{number}" for number, name in enumerate(kept)),
    ]
    return _FileRows(f"SELECT {', '.join(columns)} FROM {table}", kept)


def _check_columns(source: str, count: int) -> None:
    """Raises BadInput."""
    if count > _MAX_COLUMNS:
        raise BadInput(source, f"it has {count:,} columns; at most {_MAX_COLUMNS:,} are read")


def _first_text(names: Iterable[str], found: Mapping[str, str], types: Mapping[str, str]) -> str:
    """The first column of these names as text, which is one of the other columns too."""
    name = next((found[one] for one in names if one in found), None)
    return "NULL::VARCHAR" if name is None else _text(name, types[name])


def _topics_and_data(found: Mapping[str, str], types: Mapping[str, str], texts: Mapping[str, str]) -> tuple[str, str]:
    """The topics of a log, NULL for a call; and the data of either.

    A row of a table with topics is a log, except one without topics and data that has the input of a call. The data of a
    log may be empty while the input of its transaction stands beside it.
    """
    call_data = _first_filled([texts[name] for name in _INPUT if name in texts])
    if found.keys().isdisjoint((*_TOPICS, _TOPIC_LIST)):
        return "NULL::VARCHAR[]", call_data
    topics, data = _topics(found, types, texts), texts.get("data", "NULL::VARCHAR")
    is_call = f"len({topics}) = 0 AND {_filled(data)} IS NULL AND {_filled(call_data)} IS NOT NULL"
    return f"CASE WHEN NOT ({is_call}) THEN {topics} END", f"CASE WHEN {is_call} THEN {call_data} ELSE {data} END"


def _topics(found: Mapping[str, str], types: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The topics as a list."""
    name = found.get(_TOPIC_LIST)
    if name is None:
        topics = f"[{', '.join(texts[topic] for topic in _TOPICS if topic in texts)}]"
    elif types[name] == "BLOB[]":
        topics = f"list_transform({identifier(name)}, lambda topic: hex(topic))"
    else:
        topics = f"regexp_split_to_array({_text(name, types[name])}, {quoted(_BESIDE_TOPICS)})"
    return f"coalesce(list_filter({topics}, lambda topic: topic NOT IN {_NO_VALUE}), [])"


def _first_filled(texts: list[str]) -> str:
    """The first of these columns that is not empty, else the first."""
    return f"coalesce({', '.join([*map(_filled, texts), *texts, 'NULL::VARCHAR'])})"


def _filled(text: str) -> str:
    """NULL for empty data."""
    return f"nullif(nullif({text}, ''), '0x')"


def _text(name: str, type: str) -> str:
    """A column as text; bytes are hex, also as Postgres writes them. A word that stands for no value is none."""
    if type == "BLOB":
        return f"hex({identifier(name)})"
    text = f"({identifier(name)} ->> '$')" if type == "JSON" else f"{identifier(name)}::VARCHAR"
    return f"CASE WHEN {text} NOT IN {_NO_VALUE} THEN regexp_replace({text}, '^\\\\x', '0x') END"


# Files.


def _table(engine: ScratchTables, source: str) -> str:
    with Path(source).open("rb"):  # the system's own error where there is no such file
        file = quoted(re.sub(r"[*?\[]", r"[\g<0>]", source))
    name = _unpacked(source)
    if name.endswith(".parquet"):
        return f"read_parquet({file})"
    if name.endswith((".csv", ".tsv")):  # as text, so that other columns stay as they are in the file
        dialect = f"""delim = {quoted(_separator(source))}, quote = '"', escape = '"', comment = ''"""
        options = f"{dialect}, null_padding = true, parallel = false"
        return f"read_csv({file}, all_varchar = true, header = true, {options})"
    if name.endswith((".jsonl", ".ndjson")):
        lines = f"read_json_objects({file}, format = 'newline_delimited', ignore_errors = true)"
        return _objects(engine, source, f"(FROM {lines})")
    if name.endswith(".json"):  # a list of objects, an object, lines, or an answer of an explorer, Dune or a node
        document = f"read_json_objects({file}, maximum_object_size = {_DOCUMENT_BYTES})"
        rows = """CASE WHEN json_type(json, '$.result') = 'ARRAY' THEN json -> '$.result[*]'
            WHEN json_type(json, '$.result.rows') = 'ARRAY' THEN json -> '$.result.rows[*]'
            WHEN json_type(json, '$.result') = 'OBJECT' AND json_exists(json, '$.jsonrpc') THEN [json -> '$.result']
            ELSE [json] END"""
        return _objects(engine, source, f"(SELECT unnest({rows}) AS json FROM {document})")
    raise BadInput(source, "its name ends neither with .parquet nor .csv nor .tsv nor .jsonl nor .json")


def _separator(source: str) -> str:
    """The one with which the header has a column that is read; a comma where none has. Raises BadInput."""
    file = InputFile(source, explicit=True)
    with file.open(lambda _: None):
        headers = {separator: head_rows(file, 1, separator) for separator in HEADER_SEPARATORS}
    for separator, rows in headers.items():
        if any(cell.lower() in _READ for row in rows for cell in row):
            return separator
    return ","


def _objects(engine: ScratchTables, source: str, objects: str) -> str:
    """Objects of JSON as a table: a column of JSON for each key that any of them has, or for `input`. Raises BadInput.

    A struct has no two names that differ in case alone, so the second one is read by itself.
    """
    numbered = f"SELECT json_keys(json) AS keys, row_number() OVER () AS number FROM {objects}"
    lists = engine.rows(f"SELECT keys FROM ({numbered}) GROUP BY keys ORDER BY min(number)")
    found = list(dict.fromkeys(chain.from_iterable(keys or () for (keys,) in lists))) or [*_INPUT[:1]]
    _check_columns(source, len(found))
    first = list({key.lower(): key for key in reversed(found)}.values())[::-1]
    others = [key for key in found if key not in first]
    names = distinct_names([*first, *others])[len(first) :]
    columns = (
        f", {_members([key])}[{quoted(key)}] AS {identifier(name)}" for key, name in zip(others, names, strict=True)
    )
    return f"(SELECT unnest({_members(first)}){''.join(columns)} FROM {objects})"


def _members(keys: Sequence[str]) -> str:
    """The members of an object by these keys, as a struct of JSON."""
    return f"from_json(json, {quoted(json.dumps(dict.fromkeys(keys, 'JSON')))})"


# Queries.


def _hashes_query(rows: _FileRows) -> str:
    """The commonest selectors and topics as hex digits, each with the numbers of topics of its rows, and the number of all rows."""
    digits = "lower(regexp_replace({}, '^0[xX]', ''))"
    selector, topic = f"left({digits.format('left(data, 10)')}, 8)", digits.format("topics[1]")
    return f"""
        SELECT hash, list(DISTINCT topics), sum(count(*)) OVER ()
        FROM (
            SELECT CASE WHEN topics IS NULL THEN {selector} ELSE {topic} END AS hash, coalesce(len(topics), 0) AS topics
            FROM ({rows.query})
        )
        GROUP BY hash ORDER BY count(*) DESC, hash LIMIT {_TYPED}
    """


def _lines_query(engine: ScratchTables, rows: _FileRows) -> str:
    """One column: a line of JSON for each row."""
    names = distinct_names([*RESULT, *rows.kept])
    ours = [_ours(name) + ("::JSON" if name in _JSON else "") for name in RESULT]
    kept = [_in_line(engine, f"k{number}", type) for number, type in enumerate(rows.kept.values())]
    members = (f"{quoted(name)}, {value}" for name, value in zip(names, [*ours, *kept], strict=True))
    return f"SELECT json_object({', '.join(members)})::VARCHAR FROM ({_decoded(rows)})"


def _in_line(engine: ScratchTables, column: str, type: str) -> str:
    """A column of the file as a line of JSON has it."""
    if type in _LINE_FORMS or not _HOLDS_SUCH.search(type):
        return _LINE_FORMS.get(type, "{0}").format(column)
    engine.add_function(f"json_of_{column}", _json_column, [type], _JSON_COLUMN)
    return f"json_of_{column}({column}).json::JSON"


_JSON_COLUMN = pa.struct({"json": pa.string()})


def _json_column(values: pa.ChunkedArray) -> pa.StructArray:
    texts = [None if value is None else json_of(value).decode() for value in values.to_pylist()]
    return pa.StructArray.from_arrays([pa.array(texts, pa.string())], fields=list(_JSON_COLUMN))


def _columns_query(rows: _FileRows, parameters: Mapping[str, str]) -> str:
    """A column for each member of a row, for each other column of the file, and for each parameter, of these SQL types."""
    names = distinct_names([*RESULT, *rows.kept, *parameters])
    kept = [f"k{number} ->> '$'" if type == "JSON" else f"k{number}" for number, type in enumerate(rows.kept.values())]
    named = [f"named.{identifier(parameter)}" for parameter in parameters]
    values = [*map(_ours, RESULT), *kept, *named]
    columns = (f"{value} AS {identifier(name)}" for name, value in zip(names, values, strict=True))
    structure = quoted(json.dumps(dict(parameters) or {"none": "VARCHAR"}))
    return f"""
        SELECT {", ".join(columns)}
        FROM (SELECT *, from_json(decoded.arguments, {structure}) AS named FROM ({_decoded(rows)}))
    """


def _ours(name: str) -> str:
    return identifier(name) if name == "row" else f"decoded.{identifier(name)}"


def _decoded(rows: _FileRows) -> str:
    return f'SELECT *, decode_row("row", topics, data, chain, called) AS decoded FROM ({rows.query})'
