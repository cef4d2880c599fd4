"""The queries of `sigdir decode --file`: the rows of a Parquet, CSV or JSON file, and the columns of the result.

The other columns of a file are ``k0``, ``k1`` and so on until the result, so no name of a file meets one of ours.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.row_writers import distinct_names
from sigdir.signatures.decode_columns import Row
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.sql.views import identifier, quoted

RESULT = ("row", *Row._fields)
"""The columns of the result before those that the file has besides."""

_INPUT, _DATA, _TOPICS = "input", "data", ("topic0", "topic1", "topic2", "topic3")
_CALLED = ("to", "to_address", "address", "contract_address")
_TOPIC_LIST = "topics"  # BigQuery has one list
_JSON = ("values", "arguments", "nested")
_NAMED = 16
_MAX_COLUMNS = 1000
"""Of a file. The engine plans a query of 20,000 for half a minute."""
_DOCUMENT_BYTES = 64 << 20
_NO_VALUE = "('', 'NULL', 'null', 'None', 'NaN', 'nan', 'NA', 'N/A')"
_LINE_FORMS = {
    "BLOB": "'0x' || lower(hex({0}))", "DOUBLE": "CASE WHEN isfinite({0}) THEN {0} END",
    "TIMESTAMP WITH TIME ZONE": "strftime({0}, '%Y-%m-%dT%H:%M:%S.%fZ')",
}  # fmt: skip
"""How a line of JSON has a column, where the engine's own form is not it."""


class FileRows(NamedTuple):
    """A query of a file's rows: ``row``, ``topics``, ``data``, ``called`` and the other columns, which stand in ``kept``."""

    query: str
    kept: dict[str, str]
    """The other columns' names and SQL types."""


def file_rows(engine: ScratchTables, source: str) -> FileRows:
    """The query of a file's rows by its name; raises BadInput, QueryError."""
    table = _table(engine, source)
    types = engine.columns(table)
    _check_columns(source, len(types))
    found = {name.lower(): name for name in reversed(types)}
    if not {_INPUT, _DATA, _TOPICS[0], _TOPIC_LIST}.intersection(found):
        raise BadInput(source, "it has none of the columns input, data, topic0 and topics")
    texts = {name: _text(found[name], types[found[name]]) for name in (_INPUT, _DATA, *_TOPICS) if name in found}
    topics = _topics(found, types, texts)
    read = {found[name] for name in (_INPUT, _DATA, _TOPIC_LIST, *_TOPICS) if name in found}
    kept = {name: type for name, type in types.items() if name not in read}
    columns = [
        'row_number() OVER () - 1 AS "row"',
        f"{topics} AS topics",
        f"coalesce({', '.join([*(texts[name] for name in (_INPUT, _DATA) if name in texts), 'NULL::VARCHAR'])}) AS data",
        f"{_called(found, types)} AS called",
        *(f"{identifier(name)} AS k{number}" for number, name in enumerate(kept)),
    ]
    return FileRows(f"SELECT {', '.join(columns)} FROM {table}", kept)


def _check_columns(source: str, count: int) -> None:
    """Raises BadInput."""
    if count > _MAX_COLUMNS:
        raise BadInput(source, f"it has {count:,} columns; at most {_MAX_COLUMNS:,} are read")


def _called(found: Mapping[str, str], types: Mapping[str, str]) -> str:
    """The address that a row is about, which is one of the other columns too."""
    name = next((found[one] for one in _CALLED if one in found), None)
    return "NULL::VARCHAR" if name is None else _text(name, types[name])


def _topics(found: Mapping[str, str], types: Mapping[str, str], texts: Mapping[str, str]) -> str:
    """The topics as a list; empty without the first one."""
    name = found.get(_TOPIC_LIST)
    if name is None:
        topics = f"[{', '.join(texts.get(topic, 'NULL::VARCHAR') for topic in _TOPICS)}]"
    elif types[name] == "BLOB[]":
        topics = f"list_transform({identifier(name)}, lambda topic: hex(topic))"
    else:
        topics = f"TRY_CAST({identifier(name)} AS VARCHAR[])"
    given = f"list_filter({topics}, lambda topic: topic <> '')"
    return f"CASE WHEN coalesce(({topics})[1], '') = '' THEN []::VARCHAR[] ELSE {given} END"


def _text(name: str, type: str) -> str:
    """A column as text; bytes are hex. A word that stands for no value is none."""
    if type == "BLOB":
        return f"hex({identifier(name)})"
    text = f"({identifier(name)} ->> '$')" if type == "JSON" else f"{identifier(name)}::VARCHAR"
    return f"CASE WHEN {text} NOT IN {_NO_VALUE} THEN {text} END"


# Files.


def _table(engine: ScratchTables, source: str) -> str:
    with Path(source).open("rb"):  # the system's own error where there is no such file
        file = quoted(re.sub(r"[*?\[]", r"[\g<0>]", source))
    name = source.lower().removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".parquet"):
        return f"read_parquet({file})"
    if name.endswith(".csv"):  # as text, so that other columns stay as they are in the file
        options = """delim = ',', quote = '"', escape = '"', null_padding = true, parallel = false"""
        return f"read_csv({file}, all_varchar = true, header = true, {options})"
    if name.endswith((".jsonl", ".ndjson")):
        lines = f"read_json_objects({file}, format = 'newline_delimited', ignore_errors = true)"
        return _objects(engine, source, f"(FROM {lines})")
    if name.endswith(".json"):  # a list of objects, an object, lines, or the answer of a node, whose result is a list
        document = f"read_json_objects({file}, maximum_object_size = {_DOCUMENT_BYTES})"
        rows = "CASE json_type(json, '$.result') WHEN 'ARRAY' THEN json -> '$.result[*]' ELSE [json] END"
        return _objects(engine, source, f"(SELECT unnest({rows}) AS json FROM {document})")
    raise BadInput(source, "its name ends neither with .parquet nor .csv nor .jsonl")


def _objects(engine: ScratchTables, source: str, objects: str) -> str:
    """Objects of JSON as a table: a column of JSON for each key that any of them has, or for `input`. Raises BadInput."""
    numbered = f"SELECT json_keys(json) AS keys, row_number() OVER () AS number FROM {objects}"
    lists = engine.rows(f"SELECT keys FROM ({numbered}) GROUP BY keys ORDER BY min(number)")
    keys = {key.lower(): key for key in reversed(list(chain.from_iterable(keys or () for (keys,) in lists)))}
    _check_columns(source, len(keys))
    structure = json.dumps(dict.fromkeys(reversed([*keys.values()] or [_INPUT]), "JSON"))
    return f"(SELECT unnest(from_json(json, {quoted(structure)})) FROM {objects})"


# Queries.


def hashes_query(rows: FileRows) -> str:
    """The commonest selectors and topics as hex digits, each with the number of all rows."""
    digits = "lower(regexp_replace(coalesce(topics[1], left(data, 10)), '^0[xX]', ''))"
    hashes = f"SELECT CASE WHEN len(topics) > 0 THEN {digits} ELSE left({digits}, 8) END AS hash FROM ({rows.query})"
    return f"""
        SELECT hash, sum(count(*)) OVER () FROM ({hashes}) GROUP BY hash ORDER BY count(*) DESC, hash LIMIT {_NAMED}
    """


def lines_query(rows: FileRows) -> str:
    """One column: a line of JSON for each row."""
    names = distinct_names([*RESULT, *rows.kept])
    ours = [_ours(name) + ("::JSON" if name in _JSON else "") for name in RESULT]
    kept = [_LINE_FORMS.get(type, "{0}").format(f"k{number}") for number, type in enumerate(rows.kept.values())]
    members = (f"{quoted(name)}, {value}" for name, value in zip(names, [*ours, *kept], strict=True))
    return f"SELECT json_object({', '.join(members)})::VARCHAR FROM ({_decoded(rows)})"


def columns_query(rows: FileRows, parameters: Mapping[str, str]) -> str:
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


def _decoded(rows: FileRows) -> str:
    return f'SELECT *, decode_row("row", topics, data, called) AS decoded FROM ({rows.query})'
