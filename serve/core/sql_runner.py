"""The SQL of strangers: what a request asks, and its run.

One query runs at a time, over one version, within its time, rows and bytes.

It runs in a process of its own (``serve/core/budget.py``), on one thread, and the engine is confined
(``warehouse/sql/guard.py``). What the kernel bounds stands there: processor time and the memory of the process.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import falcon
import pyarrow as pa

from sigdir.pipeline.errors import PipelineError
from sigdir.serve.core.named_queries import NamedQuery, read_queries
from sigdir.serve.core.settings import Settings
from sigdir.serve.http.answers import HttpError, detail, field_error
from sigdir.serve.http.bodies import fields_of, pairs_of, whole_number
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.sql.guard import OUT_OF_MEMORY, missing_values
from sigdir.warehouse.sql.time_limit import OverTime, time_limit
from sigdir.warehouse.table.errors import QueryError, UnreadableWarehouse
from sigdir.warehouse.table.fields import number_or_time

MAX_ROWS = 1000
MAX_BYTES = 4 << 20
_MAX_CELLS = 200_000
_MEMORY = "256MB"
_KEPT = 2
"""Versions that are open: the newest, and the one that was asked for last. Opening takes 0.1 s and more."""

Answer = TypeVar("Answer")


class Rows(NamedTuple):
    """The rows of a query, at most MAX_ROWS; ``types`` are the engine's, ``truncated`` says that there are more."""

    table: pa.Table
    types: list[str]
    truncated: bool
    version: int


class SqlRunner:
    """The queries of one server."""

    def __init__(self, settings: Settings, reader: Reader) -> None:
        """Raises QueryError, OSError where the file of named queries cannot be read."""
        self.seconds = settings.sql_seconds
        self.named: dict[str, NamedQuery] = read_queries(settings.sql_queries) if settings.sql_queries else {}
        self._reader = reader
        self._databases: OrderedDict[str, Any] = OrderedDict()

    def token(self, request: SqlRequest) -> str:
        """That of an answer: of the version, of what is suppressed, and of the query, which may be the operator's."""
        _, token = self._snapshot(request.as_of)
        return f"{token}.{crc32(repr((request, self.named, self.seconds)).encode()):08x}"

    def _snapshot(self, as_of: int | datetime | None) -> tuple[Snapshot, str]:
        """A version as anybody may see it, and its token; raises HttpError."""
        view = self._reader.current()
        snapshot = view.snapshot
        if as_of is not None:
            try:
                snapshot = self._reader.visible(read_snapshot(self._reader.paths, as_of))
            except UnreadableWarehouse:
                raise _not_kept() from None
        return snapshot, f"{self._reader.id[:8]}.{snapshot.version}.{view.suppressed.id}"

    def parameters(self, sql: str, as_of: int | datetime | None) -> set[str]:
        """The parameters of a query; raises HttpError."""
        with _errors():
            found: set[str] = self._database(as_of)[0].parameters(sql)
        return found

    def run(self, request: SqlRequest, finish: Callable[[Rows], Answer]) -> Answer:
        """What ``finish`` makes of the rows, in the time of the query; raises HttpError."""
        limit = ", this server's --sql-seconds" if request.seconds == self.seconds else ""
        why = f"The query was stopped after {request.seconds:g} s{limit}."
        with _errors():
            database, version = self._database(request.as_of)
            database.prepare(request.sql)
            with time_limit(database.interrupt, request.seconds, why):
                values = bound(request.values, database.parameters(request.sql))
                result = database.sql(request.sql, values)
                table, truncated = _first_rows(result.reader(MAX_ROWS + 1))
                return finish(Rows(table, result.types, truncated, version))

    def _database(self, as_of: int | datetime | None) -> tuple[Any, int]:
        """The engine over a version, and the version's number; raises HttpError, UnreadableWarehouse, QueryError."""
        from sigdir.warehouse.sql.engine import Database  # DuckDB takes 0.1 s to load; a server's workers never use it

        snapshot, token = self._snapshot(as_of)
        if token not in self._databases:
            try:
                database = Database(self._reader.paths, snapshot, _MEMORY, 1, strangers=True)
                database.prepare()
            except UnreadableWarehouse:
                if as_of is None:
                    raise
                raise _not_kept() from None
            self._databases[token] = database
            if len(self._databases) > _KEPT:
                self._databases.popitem(last=False)[1].close()
        self._databases.move_to_end(token)
        return self._databases[token], snapshot.version


def _first_rows(batches: pa.RecordBatchReader) -> tuple[pa.Table, bool]:
    """The first MAX_ROWS rows, and whether there are more; raises HttpError where they are too large."""
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if sum(each.nbytes for each in found) > MAX_BYTES or rows * batch.num_columns > _MAX_CELLS:
            raise too_large()
        if rows > MAX_ROWS:
            break
    return pa.Table.from_batches(found, batches.schema).slice(0, MAX_ROWS), rows > MAX_ROWS


def too_large() -> HttpError:
    return detail(413, f"The answer is larger than {MAX_BYTES >> 20} MiB. Ask for fewer rows or columns.")


def _not_kept() -> HttpError:
    return field_error("as_of", "There is no such version, or it is not kept any more.")


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of the engine as answers."""
    try:
        yield
    except OverTime as error:
        raise detail(422, str(error)) from None
    except (QueryError, PipelineError) as error:
        if str(error) == OUT_OF_MEMORY:
            raise detail(413, "The query needs more memory than it may have.") from None
        raise field_error("sql", str(error)) from None
    except RecursionError:
        raise field_error("sql", "The query is nested too deeply.") from None


# What a request asks: the query or the name of one, the values of its parameters, the version, the limits.

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
    if (form := fields.get("format", "json")) not in FORMATS:
        raise field_error("format", f"One of {', '.join(FORMATS)}, please.")
    sql, usual, name = _query(fields, named)
    if isinstance(values, dict):
        values = usual | values
    return SqlRequest(
        sql, _checked(values), _as_of(fields.get("as_of")), _seconds(fields.get("seconds", seconds), seconds),
        form, name,
    )  # fmt: skip


def _query(fields: Mapping[str, Any], named: Mapping[str, NamedQuery]) -> tuple[str, dict[str, str], str]:
    """The SQL, the usual values and the name; all are empty where nothing is asked."""
    sql, name = fields.get("sql", ""), fields.get("query", "")
    if not isinstance(sql, str) or len(sql) > MAX_CHARACTERS:
        raise field_error("sql", f"A text of at most {MAX_CHARACTERS} characters, please.")
    if not name or sql:
        return sql.strip(), {}, ""
    if not isinstance(name, str) or name not in named:
        known = f"The queries are {', '.join(named)}." if named else "This directory has no named queries."
        raise field_error("query", f"There is no such query. {known}")
    return named[name].sql, dict(named[name].values), name


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


_DECIMAL = re.compile("[0-9.e+-]+")


def _seconds(given: Any, most: float) -> float:
    seconds = math.nan
    with suppress(ValueError, OverflowError):
        if _DECIMAL.fullmatch(str(given)):  # Python's numbers may have digits of any script, and _
            seconds = float(given)
    if not 0 < seconds <= most:
        raise field_error("seconds", f"A number above 0 and up to {most:g}, please.")
    return seconds


def bound(values: Mapping[str, Any] | list[Any], wanted: set[str]) -> dict[str, Any] | list[Any]:
    """The values as the engine takes them; raises HttpError where one is missing or has no parameter."""
    by_name = dict(values) if isinstance(values, Mapping) else {str(n): v for n, v in enumerate(values, 1)}
    if missing := missing_values(wanted, by_name):
        raise field_error(missing[0], "This parameter of the query needs a value.")
    folded = {name.lower(): value for name, value in by_name.items()}
    if extra := sorted(folded.keys() - {name.lower() for name in wanted}):
        raise field_error(extra[0][:100], "The query has no such parameter.")
    if all(whole_number(name) is not None for name in wanted):
        return [folded[name] for name in sorted(wanted, key=int)]
    return {name: folded[name.lower()] for name in wanted}
