"""The answers of another directory: a page of the 4byte contract, a piece of our feed of changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from sigdir.pipeline.fetch import FetchError
from sigdir.signatures.collections import Collection


class UnexpectedAnswer(FetchError):
    """An answer does not have the expected shape."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as lines for the spool, the newest first, their ids, and the number of rows that the server has."""

    lines: list[bytes]
    ids: list[int]
    more: bool
    count: int = 0


def parse_page(url: str, body: bytes) -> Page:
    value = _parsed(url, body)
    rows = value.get("results") if isinstance(value, dict) else None
    if not isinstance(rows, list) or "next" not in value:
        raise UnexpectedAnswer(url, "not a page of rows")
    more = value["next"] is not None
    if more and not rows:
        raise UnexpectedAnswer(url, "an empty page that is not the last")
    ids = [row["id"] for row in rows if isinstance(row, dict) and _is_count(row.get("id"))]
    if len(ids) < len(rows):
        raise UnexpectedAnswer(url, "a row without an id")
    count = value.get("count")
    return Page([_line(row) for row in rows], ids, more, count if _is_count(count) else 0)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 63


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows as lines for the spool, the oldest first, and the cursor after them."""

    lines: list[bytes]
    cursor: str
    more: bool


def parse_changes(url: str, body: bytes) -> Changes:
    """Raises UnexpectedAnswer, also if the last line is missing because the answer was cut short."""
    *rows, last = [_parsed(url, line) for line in body.splitlines()] or [None]
    cursor, more = (last.get("next"), last.get("more")) if isinstance(last, dict) else (None, None)
    if not isinstance(cursor, str) or not isinstance(more, bool) or len(cursor) > 200:
        raise UnexpectedAnswer(url, "no rows that end with a cursor")
    if more and not rows:
        raise UnexpectedAnswer(url, "no rows, and more to come")
    if not all(isinstance(row, dict) for row in rows):
        raise UnexpectedAnswer(url, "a row that is not an object")
    return Changes([_line(row) for row in rows], cursor, more)


def _parsed(url: str, body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise UnexpectedAnswer(url, "the answer is not JSON") from None


def _line(row: dict[str, Any]) -> bytes:
    """The fields of a row that the import reads. The import counts values of a wrong type as rejected."""
    kept = {name: row[name] for name in ("text_signature", "hex_signature") if name in row}
    return orjson.dumps(kept) + b"\n"


def changes_url(base: str, collection: Collection, after: str, limit: int) -> str:
    return f"{base}/api/v1/changes/?{urlencode({'collection': collection, 'after': after, 'limit': limit})}"
