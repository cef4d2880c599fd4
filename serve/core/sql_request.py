"""What a request asks of SQL: the query or the name of one, the values of its parameters, the version, the limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import falcon

from sigdir.serve.core.named_queries import NamedQuery
from sigdir.serve.http.bodies import fields_of, pairs_of
from sigdir.serve.http.errors import field_error
from sigdir.warehouse.table.errors import QueryError
from sigdir.warehouse.table.times import number_or_time

MAX_CHARACTERS = 65_536
MAX_VALUES = 100
FORMATS = ("json", "csv", "ndjson", "parquet", "arrow")
_FIELDS = ("sql", "query", "as_of", "seconds", "format")
_BODY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """``values`` are by name, or in the order of the ``?``. ``as_of`` is a version or a time, None for the newest."""

    sql: str
    values: Mapping[str, Any] | list[Any]
    as_of: int | datetime | None
    seconds: float
    format: str
    name: str = ""


def request_of(req: falcon.Request, named: Mapping[str, NamedQuery], seconds: float) -> SqlRequest:
    """The request of an address or a body; raises HttpError. ``seconds`` is the longest time that a query may take.

    In an address every field that has no other meaning is the value of the parameter of its name: of ``$day``, or of the
    first ``?`` as 1.
    """
    if req.method == "POST":
        fields = fields_of(req, _BODY_BYTES)
        values = fields.pop("params", {})
    else:
        given = dict(pairs_of(req.query_string))
        fields = {name: given.pop(name) for name in _FIELDS if name in given}
        values = given
    if unknown := sorted(set(fields) - set(_FIELDS)):
        raise field_error(unknown[0][:100], f"There is no such field. The fields are {', '.join(_FIELDS)} and params.")
    sql, usual, name = _query(fields, named)
    if isinstance(values, dict):
        values = usual | values
    return SqlRequest(
        sql, _checked(values), _as_of(fields.get("as_of")), _seconds(fields.get("seconds", seconds), seconds),
        _format(fields.get("format", "json")), name,
    )  # fmt: skip


def _query(fields: Mapping[str, Any], named: Mapping[str, NamedQuery]) -> tuple[str, dict[str, str], str]:
    """The SQL, the usual values and the name; all are empty where nothing is asked."""
    sql, name = fields.get("sql", ""), fields.get("query", "")
    if not isinstance(sql, str) or len(sql) > MAX_CHARACTERS:
        raise field_error("sql", f"A text of at most {MAX_CHARACTERS} characters, please.")
    if not name or sql:
        return sql.strip(), {}, ""
    if not isinstance(name, str) or name not in named:
        raise field_error("query", f"There is no such query. {_those(named)}")
    return named[name].sql, dict(named[name].values), name


def _those(named: Mapping[str, NamedQuery]) -> str:
    return f"The queries are {', '.join(named)}." if named else "This directory has no named queries."


def _checked(values: Any) -> Mapping[str, Any] | list[Any]:
    if not isinstance(values, dict | list) or len(values) > MAX_VALUES:
        raise field_error("params", f"A list or an object of at most {MAX_VALUES} values, please.")
    each: Any = values.values() if isinstance(values, dict) else values
    if not all(value is None or isinstance(value, str | bool | float | int) for value in each):
        raise field_error("params", "A value is a text, a number, true, false or null.")
    if any(isinstance(value, int) and not -(2**127) < value < 2**127 for value in each):
        raise field_error("params", "A whole number has at most 127 bits; send it as a text.")
    return values


def _as_of(given: Any) -> int | datetime | None:
    try:
        return number_or_time(given or None)
    except QueryError:
        raise field_error("as_of", "A version, or a time as 2026-11-21T08:00Z, please.") from None


def _seconds(given: Any, most: float) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds <= most:
        raise field_error("seconds", f"A number above 0 and up to {most:g}, please.")
    return seconds


def _format(given: Any) -> str:
    if given not in FORMATS:
        raise field_error("format", f"One of {', '.join(FORMATS)}, please.")
    return str(given)


def bound(values: Mapping[str, Any] | list[Any], wanted: set[str]) -> dict[str, Any] | list[Any]:
    """The values as the engine takes them; raises HttpError where one is missing or has no parameter."""
    by_name = dict(values) if isinstance(values, Mapping) else {str(n): v for n, v in enumerate(values, 1)}
    folded = {name.lower(): value for name, value in by_name.items()}  # to the engine $A and $a are the same
    if missing := sorted(missing_values(folded, wanted)):
        raise field_error(missing[0], "This parameter of the query needs a value.")
    if extra := sorted(folded.keys() - {name.lower() for name in wanted}):
        raise field_error(extra[0][:100], "The query has no such parameter.")
    if all(name.isdigit() for name in wanted):
        return [folded[name] for name in sorted(wanted, key=int)]
    return {name: folded[name.lower()] for name in wanted}


def missing_values(values: Mapping[str, Any], wanted: set[str]) -> list[str]:
    """The parameters without a value."""
    given = {name.lower() for name in values}
    return [name for name in wanted if name.lower() not in given]
