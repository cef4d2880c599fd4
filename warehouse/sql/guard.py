"""Which SQL may be run: one statement that reads, over our views, with a value for each parameter.

And what strangers are told where it fails.

The parser's whole tree is searched: EXPLAIN ANALYZE runs what it explains, and a common table expression of a SELECT
may be a COPY or an INSERT. Strangers name our views and their own common table expressions, nothing of the engine's
catalog, because it has the paths of files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import duckdb

from sigdir.warehouse.sql.search import NAME
from sigdir.warehouse.sql.views import VIEWS

OUT_OF_MEMORY = "the query needs more memory than it may have"
HOW_TO_GIVE_FILES = "--file NAME=PATH (in Python files={NAME: PATH}) lets a query read a file by that name"
READS = "one query that reads, please: SELECT, FROM, WITH, DESCRIBE, SUMMARIZE or SHOW"

STRANGERS_FUNCTIONS = frozenset({
    "generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "summary", "unnest", NAME,
})  # fmt: skip
TABLE_FUNCTIONS = STRANGERS_FUNCTIONS | {
    "duckdb_columns", "duckdb_functions", "duckdb_keywords", "duckdb_memory", "duckdb_settings", "duckdb_tables",
    "duckdb_types", "duckdb_views", "icu_calendar_names", "pg_timezone_names", "pragma_collations", "pragma_platform",
    "pragma_show", "pragma_table_info", "pragma_version",
}  # fmt: skip
"""The table functions that SQL from anyone may call: none of them opens a file, runs SQL that is given as a text, takes
an address in memory or changes a setting. Those of strangers say nothing of the machine either."""

STRANGERS_VIEWS = tuple(view for view in VIEWS if view != "rejects")
"""A reject is whatever a file had that the operator imported."""

_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)
_OF_THE_MACHINE = re.compile(
    r"current_setting|json_serialize_plan|getvariable|write_log|sleep_ms|(pg|duckdb|pragma|inet)_.*"
)
"""Scalar functions that show settings or the text of views, or plan SQL in a text, write to the engine's log, or wait."""
_SHOW_TABLES = '"tables"'
_OF_FUNCTION = re.compile(r"Python exception occurred while executing the UDF: \w+: |\n\nAt:.*", re.DOTALL)
"""What the engine says around the message of a function of ours."""
_OF_ROW = re.compile(
    r"CSV Error on Line: (?P<line>\d+)\n(?:Original Line: [^\n]*\n)?(?P<reason>.*?)\n\n.*\n  file = (?P<file>[^\n]*)",
    re.DOTALL,
)
_OF_STORAGE = ("IO", "HTTP", "Internal", "Fatal", "Permission", "Serialization")


def missing_values(wanted: Iterable[str], given: Iterable[str]) -> list[str]:
    """The parameters of a query that have no value, by their names, or by their places from 1."""
    folded = {name.lower() for name in given}  # to the engine $A and $a are the same
    return sorted(name for name in wanted if name.lower() not in folded)


def refusal(connection: duckdb.DuckDBPyConnection, query: str, strangers: bool) -> str | None:
    """Why a text may not be run; None where it may."""
    explained = None if strangers else _EXPLAIN.match(query)
    query = query[explained.end() :] if explained else query
    if not connection.extract_statements(query):
        return READS if strangers else None
    tree = connection.sql("SELECT json_serialize_sql($query::VARCHAR) AS tree", params={"query": query})
    parsed = json.loads(tree.to_arrow_table()["tree"][0].as_py())
    parts = list(_parts(parsed))
    writes = any(str(part.get("type")).endswith("_QUERY_NODE") for part in parts)  # COPY_QUERY_NODE, INSERT_QUERY_NODE
    if parsed["error"] or len(parsed["statements"]) != 1 or writes:
        return READS
    return _refused_function(parts, strangers) or (_refused_name(connection, parts) if strangers else None)


def _refused_function(parts: list[dict[str, Any]], strangers: bool) -> str | None:
    called = {part["function"]["function_name"].lower() for part in parts if part.get("type") == "TABLE_FUNCTION"}
    refused = called - (STRANGERS_FUNCTIONS if strangers else TABLE_FUNCTIONS)
    if strangers:
        scalars = {str(part.get("function_name", "")).lower() for part in parts}
        refused |= set(filter(_OF_THE_MACHINE.fullmatch, scalars))
    if not refused:
        return None
    advice = "" if strangers else f"; {HOW_TO_GIVE_FILES}"
    return f"{min(refused)}() reaches more than the warehouse{advice}"


def _refused_name(connection: duckdb.DuckDBPyConnection, parts: list[dict[str, Any]]) -> str | None:
    """What strangers say of a name that is neither our view nor a common table expression of the query.

    An expression may not have the name of an internal view, because it is not known where the name means which. A name
    with a schema means neither: a quoted name of an expression may have a dot.
    """
    own = {str(entry["key"]).lower() for part in parts for entry in part.get("map", ()) if "key" in entry}
    internal = connection.sql("SELECT lower(view_name) FROM duckdb_views() WHERE internal").fetchall()
    allowed = ({*STRANGERS_VIEWS} | own) - {name for (name,) in internal} | {_SHOW_TABLES}
    for part in parts:
        path = part.get("qualified_name", {}).get("path", ())
        name = ".".join(map(str, path))
        is_allowed = len(path) == 1 and name.lower() in allowed
        if part.get("type") in ("BASE_TABLE", "SHOW_REF") and name and not is_allowed:
            return f"there is no view {name}; the views are {', '.join(STRANGERS_VIEWS)}"
    return None


def _parts(tree: Any) -> Iterator[dict[str, Any]]:
    """All objects of a parsed query, the outer ones first."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            part = list(part.values())
        if isinstance(part, list):
            waiting += reversed(part)


def of_function(message: str) -> str:
    """An error of the engine without what it says of a function of ours."""
    return _OF_FUNCTION.sub("", message)


def of_row(message: str) -> str:
    """An error in a row of CSV or a line of text as file, line and reason, without DuckDB's advice."""
    found = _OF_ROW.search(message)
    return f"{found['file']}: line {found['line']}: {' '.join(found['reason'].split())}" if found else message


def stranger_message(error: str, query: str) -> str:
    """An error of the engine, whose message may be JSON, with its place in the query; nothing of the machine's files."""
    kind, _, message = error.partition(" Error: ")
    at = -1
    with suppress(ValueError):  # an error of names is none of JSON
        found = json.loads(message)
        message, at = str(found["exception_message"]), int(found.get("position", -1))
    if kind in _OF_STORAGE or "disabled by configuration" in message:
        return "the engine cannot read what this query needs"
    if kind == "Out of Memory":
        return OUT_OF_MEMORY
    message = of_function(message)
    before, rest = query.encode()[: max(at, 0)], query.encode()[max(at, 0) :]
    if at < 0 or not rest:
        return message
    column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
    return f"line {before.count(10) + 1}, column {column}: {message}"
