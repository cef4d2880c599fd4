"""What a row consists of, one entry a field, and how a file of rows is described.

The schema of data files, the log's column types, the staging file's tables, the views of SQL, records, CSV, the
OpenAPI document and answers to OPTIONS are made from it. `CONTRIBUTING.md` shows how to add a field.

Times as text: ISO 8601 in UTC, with a Z, as the HTTP answers have them; and what --as-of takes, a version or a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from typing import Any, Final

from sigdir.signatures.collections import Collection
from sigdir.warehouse.table.errors import QueryError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def moment(microseconds: int) -> datetime:
    """The time so many microseconds after the begin of 1970."""
    return EPOCH + timedelta(microseconds=microseconds)


def microseconds(at: datetime) -> int:
    """The reverse. Whole: a float of seconds would round them."""
    return (at - EPOCH) // timedelta(microseconds=1)


def iso(time: datetime, timespec: str = "milliseconds") -> str:
    """A time that knows its zone; ``timespec`` is that of ``datetime.isoformat``."""
    return time.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def number_or_time(given: object) -> int | datetime | None:
    """A version's number or a time in UTC, also of its text: ``3``, ``2026-11-21T08:00Z``; None stays. Raises QueryError.

    A time is UTC where it has no zone.
    """
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return given
    with suppress(ValueError, OverflowError):
        if isinstance(given, str) and re.fullmatch("[0-9]{1,18}", given):
            return int(given)
        time = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(time, datetime):
            return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    raise QueryError(f"{given!r} is neither a version nor a time such as 2026-11-21T08:00Z")


@dataclass(frozen=True, slots=True)
class FieldType:
    """A type of values, as Arrow, Delta, SQLite, DuckDB and 4byte.directory's OPTIONS name it, and its JSON Schema."""

    arrow: str
    delta: str
    sqlite: str
    sql: str
    options: str
    schema: Mapping[str, Any]


MAX_SEARCHED: Final = 256
"""Characters of a fragment or pattern that a user searches texts for, at most."""

INTEGER: Final = FieldType("int64", "long", "INTEGER", "BIGINT", "integer", {"type": "integer"})
TIME: Final = FieldType(
    "timestamp[us, tz=UTC]",
    "timestamp",
    "INTEGER",
    "TIMESTAMPTZ",
    "datetime",
    {"type": "string", "format": "date-time"},
)
"""SQLite has microseconds since 1970."""
TEXT: Final = FieldType("string", "string", "TEXT", "VARCHAR", "string", {"type": "string"})
BYTES: Final = FieldType("binary", "binary", "BLOB", "BLOB", "string", {"type": "string"})


@dataclass(frozen=True, slots=True)
class RowField:
    """A column of data files, or a value that is derived from one.

    ``json`` and ``csv`` are how the template kernel writes it (``index/template.py`` has the names in braces), empty
    where records or CSV leave it out.
    """

    name: str
    type: FieldType
    about: str
    """A sentence for readers of the API."""
    json: str = ""
    csv: str = ""
    schema: Callable[[int], Mapping[str, Any]] = lambda _: {}
    """What its JSON Schema says beyond the type, by the bytes of the collection's hashes."""
    sql: str = ""
    """The expression of a derived field, which only views and records have; empty for a column of data files."""
    is_staged: bool = False
    """Whether the staging file has it too. It has the hash as a whole digest, and a POSTed row has no import."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the table. Ids and times are inclusive; they rise inside it but may have gaps.

    ``size`` is in bytes, times are in microseconds since 1970, UTC. ``sha256`` is in hex, None for a file of
    another program. Raises TypeError if a number is none, as in a damaged entry.
    """

    path: Path
    collection: Collection
    rows: int
    size: int
    first_id: int
    last_id: int
    first_created_at: int
    last_created_at: int
    sha256: str | None = None

    def __post_init__(self) -> None:
        for number in (self.rows, self.size, self.first_id, self.last_id):
            index(number)


# One character a byte with the byte's code, as the wire format writes a hash.
_CHARACTERS = (
    "array_to_string(list_transform(range(0, octet_length(hash)),"
    " lambda i: chr(('0x' || substr(hex(hash), 2 * i + 1, 2))::INTEGER)), '')"
)

PARTITION: Final = RowField("collection", TEXT, "The collection of the row.", is_staged=True)
"""The table's partition: it stands in the path of a data file, not in the file."""

FIELDS: Final = (
    RowField(
        "id", INTEGER, "Increases with created_at and never changes.", is_staged=True,
        json="{id}", csv="{id}", schema=lambda _: {"minimum": 1},
    ),
    RowField(
        "created_at", TIME, "When the row was stored, in UTC.", is_staged=True,
        json='"{created_at}Z"', csv="{created_at}Z",
        schema=lambda _: {"pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z$"},
    ),
    RowField(
        "text_signature", TEXT, "The canonical text, which no other row of the collection has.", is_staged=True,
        json='"{text_json}"', csv='"{text_csv}"', schema=lambda _: {"pattern": r"^[A-Za-z_$][A-Za-z0-9_$]*\(.*\)$"},
    ),
    RowField("hash", BYTES, "The first 4 bytes of the text's keccak-256, of an event all 32."),
    RowField("import_id", INTEGER, "The import that brought the row, 0 for a POST."),
    RowField(
        "hex_signature", TEXT, "The hash in hex digits.", sql="'0x' || lower(hex(hash))",
        json='"0x{hash}"', csv="0x{hash}", schema=lambda width: {"pattern": f"^0x[0-9a-f]{{{2 * width}}}$"},
    ),
    RowField(
        "bytes_signature", TEXT, "The hash; each byte is the character with that code.", sql=_CHARACTERS,
        json='"{bytes_json}"', schema=lambda width: {"minLength": width, "maxLength": width},
    ),
)  # fmt: skip
"""In the order of data files and of records. An order of columns that is another's stands where it is used."""

STORED: Final = tuple(field for field in FIELDS if not field.sql)
"""The columns of data files."""

RECORD_FIELDS: Final = tuple(field for field in FIELDS if field.json)
"""The fields of 4byte.directory's API."""

_BY_NAME: Final = {field.name: field for field in (PARTITION, *FIELDS)}


def fields(names: Iterable[str]) -> list[RowField]:
    """The fields of these names, in this order."""
    return [_BY_NAME[name] for name in names]


def sql_of(name: str) -> str:
    """The expression of a derived field, under its name."""
    return f"{_BY_NAME[name].sql} AS {name}"
