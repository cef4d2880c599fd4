"""The answers of another directory: a page of the 4byte contract, a piece of our feed of changes.

An answer is counted before it is parsed. 16 MiB of ``{},`` would be half a gigabyte of empty rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeGuard
from urllib.parse import urlencode

import orjson

from sigdir.pipeline.fetch import FetchError
from sigdir.pipeline.formats.rows import EVIDENCE_FIELDS
from sigdir.signatures.collections import Collection

PAGE_ROWS = 1_000
"""The most rows of a page. 4byte.directory gives 100, a server of this project 100 unless it is asked for more."""
_ID_DISORDER = 1_000
"""How far an id may be below the one in front of it. Times and ids of simultaneous requests may be swapped."""
_ROW_VALUES = 32
"""The most commas and opening brackets of a row. A row of 4byte.directory has 5."""


class UnexpectedAnswer(FetchError):
    """An answer does not have the expected shape."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as lines for the spool, the oldest first, their ids, and the number of rows that the server has."""

    lines: list[bytes]
    ids: list[int]
    more: bool
    count: int = 0


def parse_page(url: str, body: bytes) -> Page:
    """Raises UnexpectedAnswer, also where the ids of the page do not rise."""
    value = _parsed(url, body, PAGE_ROWS * _ROW_VALUES)
    rows = value.get("results") if isinstance(value, dict) else None
    if not isinstance(rows, list) or "next" not in value:
        raise UnexpectedAnswer(url, "not a page of rows")
    if len(rows) > PAGE_ROWS:
        raise UnexpectedAnswer(url, f"a page of over {PAGE_ROWS:,} rows")
    more = value["next"] is not None
    if more and not rows:
        raise UnexpectedAnswer(url, "an empty page that is not the last")
    ids = [_id(url, row) for row in rows]
    for before, id in pairwise(ids):
        if id < before - _ID_DISORDER or ids[-1] < ids[0]:
            raise UnexpectedAnswer(url, f"id {id} after id {before}: the ids of a page must rise")
    count = value.get("count")
    if not _is_count(count):
        raise UnexpectedAnswer(url, "a page that does not say how many rows there are")
    return Page([_line(row) for row in rows], ids, more, count)


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows as lines for the spool, the oldest first, the id of the last, and the cursor after them.

    ``left`` is how many rows the directory says it has after them.
    """

    lines: list[bytes]
    cursor: str
    more: bool
    last_id: int
    left: int


def parse_changes(url: str, body: bytes, limit: int, last_id: int = 0) -> Changes:
    """At most ``limit`` rows whose ids rise from ``last_id``.

    Raises UnexpectedAnswer, also if the last line is missing because the answer was cut short.
    """
    last: Any = None
    lines: list[bytes] = []
    for number, line in enumerate(_lines(body)):
        if number > limit:
            raise UnexpectedAnswer(url, f"over {limit:,} rows, which is more than were requested")
        if number:
            id = _id(url, last)
            if id <= last_id:
                raise UnexpectedAnswer(url, f"id {id} after id {last_id}: the ids of a feed must rise")
            last_id = id
            lines.append(_line(last))
        last = _parsed(url, line, _ROW_VALUES)
    cursor, more, left = map(last.get, ("next", "more", "left")) if isinstance(last, dict) else (None, None, None)
    if not isinstance(cursor, str) or not isinstance(more, bool) or not _is_count(left) or len(cursor) > 200:
        raise UnexpectedAnswer(url, "no rows that end with a cursor and the number of those left")
    if more and not lines:
        raise UnexpectedAnswer(url, "no rows, and more to come")
    return Changes(lines, cursor, more, last_id, left)


def _lines(body: bytes) -> Iterator[bytes]:
    """One at a time: a list of 20 M short lines takes a gigabyte."""
    start = 0
    while start < len(body):
        end = body.find(b"\n", start) + 1 or len(body)
        yield body[start:end]
        start = end


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 1 << 63


def _id(url: str, row: Any) -> int:
    if not isinstance(row, dict):
        raise UnexpectedAnswer(url, "a row that is not an object")
    id = row.get("id")
    if type(id) is not int or not 0 < id < 1 << 63:
        raise UnexpectedAnswer(url, "a row without an id")
    return id


# A string, or a character that begins a value. A string without an end is one too, so that no byte is read twice.
_STRING_OR_VALUE = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[,[{]', re.DOTALL)


def _parsed(url: str, body: bytes, most_values: int) -> Any:
    """The JSON value of an answer or of a line of it; ``most_values`` bounds its commas and opening brackets."""
    left = most_values
    for found in _STRING_OR_VALUE.finditer(body):
        left -= body[found.start()] != 0x22
        if left < 0:
            raise UnexpectedAnswer(url, f"over {most_values:,} JSON values where rows belong")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UnexpectedAnswer(url, "the answer is not JSON") from None


def _line(row: dict[str, Any]) -> bytes:
    """The fields of a row that the import reads. The import counts a text of a wrong type as rejected."""
    kept = {name: row[name] for name in ("text_signature", "hex_signature", *EVIDENCE_FIELDS) if name in row}
    return orjson.dumps(kept) + b"\n"


def changes_url(base: str, collection: Collection, after: str, limit: int) -> str:
    query = {"collection": collection, "after": after, "limit": limit, "evidence": 1}
    return f"{base}/api/v1/changes/?{urlencode(query)}"


def page_url(base: str, collection: Collection, number: int) -> str:
    return f"{base}/api/v1/{collection}/?{urlencode({'ordering': 'created_at', 'page': number})}"
