"""Query parameters to rows: parsing, filters, paging and links. Nothing here knows HTTP.

Every rule is the wire contract's; where a value is odd, the contract says what it means, and it is
hardly ever an error.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote_plus

import numpy as np
import numpy.typing as npt
import orjson

from sigdir.serve.cursors import cursor_at, id_of
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.records import render_rows
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.view import View

Array = npt.NDArray[Any]

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_FAR = 2**62
_MAX_DIGITS = 18


class InvalidPage(Exception):
    """The page is not a number, not positive, or past the end."""


class Filter(NamedTuple):
    """What a row must be: every condition that is not None.

    ``never`` is set by a value that no row can match.
    """

    hex: str | None = None
    hashes: frozenset[bytes] | None = None
    text: str | None = None
    first: int | None = None
    last: int | None = None
    never: bool = False

    def is_whole(self, width: int) -> bool:
        """Whether it is one hash of so many bytes, all of its digits, and nothing else."""
        hex = self.hex
        return hex is not None and len(hex) == 2 * width and self == (hex, None, None, None, None, False)


class Query(NamedTuple):
    """A request's parameters, understood. ``pairs`` are those that links repeat, sorted.

    ``filter`` is None where nothing is filtered by.
    """

    pairs: tuple[tuple[str, str], ...]
    filter: Filter | None
    oldest_first: bool
    page: str
    page_size: int
    format: str
    cursor: str | None = None
    """Given where pages are told by the last row seen instead of by number; empty to begin."""


_name_of = itemgetter(0)


# For the request in work, which asks three times. More would hold 16 KiB a query, and be of use to few.
@lru_cache(maxsize=64)
def parse(query_string: str) -> Query:
    """Understand a query string, with or without percent-escapes; never fails."""
    if "%" in query_string or "+" in query_string:
        pairs = parse_qsl(query_string, keep_blank_values=True, errors="replace")
    else:  # nothing is escaped: half the time of a page of rows is saved
        pairs = [(n, v) for n, _, v in (part.partition("=") for part in query_string.split("&") if part)]
    given = [pair for pair in pairs if pair[1]]
    if len(given) > 1:
        given.sort(key=_name_of)
    last = dict(pairs)  # of a parameter given twice the last one counts
    known = last.get
    return Query(
        tuple(given),
        None if FILTERS.keys().isdisjoint(last) else _filter(last),
        "ordering" in last and _oldest_first(last["ordering"]),
        known("page", "1"),
        _page_size(last["page_size"]) if "page_size" in last else DEFAULT_PAGE_SIZE,
        known("format", ""),
        known("cursor"),
    )


def _page_size(value: str) -> int:
    return min(_positive(value) or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def _positive(value: str) -> int | None:
    """A whole number above zero, blanks around it or not; one of too many digits is just very large."""
    digits = value.strip().removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0")
    return int(digits) if len(digits) <= _MAX_DIGITS and digits else _FAR if digits else None


def _oldest_first(value: str) -> bool:
    """The first part that is an ordering we have decides; the default is newest first."""
    for part in value.split(","):
        if part.strip() in ("created_at", "-created_at"):
            return part.strip() == "created_at"
    return False


def _filter(given: dict[str, str]) -> Filter:
    built: dict[str, Any] = {}
    for name, value in given.items():
        understand = FILTERS.get(name)
        if understand and value:
            for key, found in understand(value).items():
                built[key] = _tighter(key, built[key], found) if key in built else found
    return Filter(**built)


def _tighter(key: str, a: Any, b: Any) -> Any:
    return max(a, b) if key == "first" else min(a, b) if key == "last" else a or b


_NOTHING = {"never": True}
_DIGITS = re.compile("[0-9a-f]{1,64}")


def _hex(value: str) -> dict[str, Any]:
    digits = value.lower().removeprefix("0x")
    if not digits:
        return {}
    return {"hex": digits} if _DIGITS.fullmatch(digits) else _NOTHING


def _hashes(value: str) -> dict[str, Any]:
    """A list with commas, whole hashes; what is none of them matches nothing."""
    digits = (part.strip().lower().removeprefix("0x") for part in value.split(","))
    hashes = frozenset(bytes.fromhex(part) for part in digits if re.fullmatch("[0-9a-f]{8}|[0-9a-f]{64}", part))
    return {"hashes": hashes} if hashes else _NOTHING


def _text(value: str) -> dict[str, Any]:
    fragment = value.strip()
    if not fragment:
        return {}
    # A canonical text is printable ASCII without spaces; anything else is in none of them.
    return {"text": fragment} if fragment.isascii() and "\0" not in fragment else _NOTHING


_MOMENT = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,6})\d*)?)?\s*(Z|[+-]\d{2}(?::?\d{2})?)?",
    re.ASCII | re.IGNORECASE,
)


def moment(value: str) -> int | None:
    """Microseconds since 1970 of a date and time as the contract writes it; None for anything else."""
    found = _MOMENT.fullmatch(value.strip())
    if not found:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    microseconds = int((found[7] or "0").ljust(6, "0"))
    zone = (found[8] or "Z").replace(":", "")
    offset = 0
    if zone not in ("Z", "z"):
        hours, minutes = int(zone[1:3]), int(zone[3:5] or 0)
        if hours > 23 or minutes > 59:
            return None
        offset = (hours * 60 + minutes) * (-1 if zone[0] == "-" else 1)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds - offset * 60) * 1_000_000 + microseconds


def _bound(key: str, shift: int) -> Callable[[str], dict[str, Any]]:
    def understand(value: str) -> dict[str, Any]:
        at = moment(value)
        return _NOTHING if at is None else {key: at + shift}

    return understand


FILTERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "hex_signature": _hex,
    "hex_signature__in": _hashes,
    "text_signature": _text,
    "created_at__gte": _bound("first", 0),
    "created_at__gt": _bound("first", 1),
    "created_at__lte": _bound("last", 0),
    "created_at__lt": _bound("last", -1),
}
"""Each parameter that filters, and what it makes of its value."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a segment that pass: ``rows``, rising, or all of ``first`` up to ``last``."""

    segment: Segment
    first: int
    last: int
    rows: Array | None = None

    @property
    def count(self) -> int:
        return self.last - self.first if self.rows is None else len(self.rows)

    def slice(self, start: int, stop: int) -> Array:
        """Row numbers of a part of the selection, in its order."""
        if self.rows is None:
            return np.arange(self.first + start, self.first + stop)
        return self.rows[start:stop]

    def newest(self, start: int, stop: int) -> Array:
        """The same from the other end: row numbers of a part of the selection, the newest first."""
        if self.rows is None:
            return np.arange(self.last - 1 - start, self.last - 1 - stop, -1)
        return np.ascontiguousarray(self.rows[::-1][start:stop])

    def upto(self, id: int) -> int:
        """How many of the selected rows have this id or a lower one."""
        row = int(self.segment.ids[: self.segment.rows].searchsorted(id, side="right"))
        if self.rows is None:
            return min(max(row, self.first), self.last) - self.first
        return int(self.rows.searchsorted(row))


@lru_cache(maxsize=4)
def _everything(view: View, collection: Collection) -> list[Selection]:
    """A view's rows, all of them; made once a view, for it costs a microsecond a segment."""
    return [Selection(segment, 0, segment.rows) for segment in view.segments[collection]]


def selections_of(view: View, collection: Collection, wanted: Filter | None) -> list[Selection]:
    """What a filter leaves of a view, the oldest segment first; none that is empty, where there is a filter."""
    if wanted is None:
        return _everything(view, collection)
    if wanted.is_whole(collection.hash_bytes):
        found = view.with_hash(collection, bytes.fromhex(wanted.hex or ""))
        return [Selection(segment, 0, segment.rows, rows) for segment, rows in found]
    chosen = [_select(segment, collection, wanted) for segment in view.segments[collection]]
    return [selection for selection in chosen if selection is not None and selection.count]


def _select(segment: Segment, collection: Collection, wanted: Filter) -> Selection | None:
    """Apply a filter to one segment; None where no row has its hash."""
    if wanted.never:
        return None
    rows: Array | None = None
    if wanted.hex is not None or wanted.hashes is not None:
        rows = _with_hash(segment, collection.hash_bytes, wanted)
        if not len(rows):
            return None
    first, last = 0, segment.rows
    if wanted.first is not None or wanted.last is not None:
        lowest = -_FAR if wanted.first is None else wanted.first
        highest = _FAR if wanted.last is None else wanted.last
        first, last = segment.time_range(lowest, highest)
        last = max(first, last)
    if wanted.text is not None:
        rows = _with_text(segment, rows, wanted.text)
    if rows is not None and (first > 0 or last < segment.rows):
        rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]
    return Selection(segment, first, last, rows)


def _with_hash(segment: Segment, width: int, wanted: Filter) -> Array:
    """The rows that pass the conditions on the hash, rising."""
    rows: Array | None = None
    if wanted.hex is not None:
        if len(wanted.hex) == 2 * width:
            rows = segment.with_hash(bytes.fromhex(wanted.hex))
        else:
            rows = segment.with_hex(wanted.hex) if len(wanted.hex) < 2 * width else NO_ROWS
    if wanted.hashes is not None:
        fitting = [segment.with_hash(hash) for hash in wanted.hashes if len(hash) == width]
        found = np.sort(np.concatenate([NO_ROWS, *fitting]))
        rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
    return NO_ROWS if rows is None else rows


def _with_text(segment: Segment, rows: Array | None, fragment: str) -> Array:
    """The rows, of those given or of all, that have the fragment."""
    if rows is not None and len(rows) < 1000:
        fragment = fragment.lower()
        return np.array([row for row in rows.tolist() if fragment in segment.text_at(row).lower()], np.int64)
    found = segment.with_text(fragment)
    return found if rows is None else np.intersect1d(rows, found, assume_unique=True)


def needs_scan(wanted: Filter | None, collection: Collection) -> bool:
    """Whether every row's text or hash has to be looked at."""
    if wanted is None or wanted.never:
        return False
    return wanted.text is not None or (wanted.hex is not None and len(wanted.hex) != 2 * collection.hash_bytes)


_LIST = re.compile("/api/v1/((?:event-)?signatures)/")


def is_quick(method: str, path: str, query_string: str, accept: str, encodings: str) -> bool:
    """Whether a request is answered in less time than it takes to hand it to another thread.

    A list for which no scan is needed, not packed, not a page for people: 25 microseconds, whatever the rows.
    """
    found = _LIST.fullmatch(path)
    if not found or method not in ("GET", "HEAD") or len(query_string) > 200:
        return False
    if "gzip" in encodings or "html" in accept:
        return False
    collection: Collection = SIGNATURES if found[1] == SIGNATURES else EVENT_SIGNATURES
    return not needs_scan(parse(query_string).filter, collection)


def texts_with(view: View, collection: Collection, hash: bytes) -> list[str]:
    """The texts of a whole hash, oldest first."""
    return [segment.text_at(row) for segment, rows in view.with_hash(collection, hash) for row in rows.tolist()]


@dataclass(slots=True)
class Page:
    """A page of a list: ``records`` is JSON, the records joined by commas; links None at the ends."""

    count: int
    next: str | None
    previous: str | None
    records: bytes

    def body(self) -> bytes:
        return b'{"count":%d,"next":%s,"previous":%s,"results":[%s]}' % (
            self.count, _json_link(self.next), _json_link(self.previous), self.records,
        )  # fmt: skip


def _json_link(link: str | None) -> bytes:
    if link is None:
        return b"null"
    return orjson.dumps(link)


def page_number(asked: str, pages: int) -> int:
    """The page asked for, from 1; raises InvalidPage."""
    if asked == "last":
        return pages
    number = _positive(asked)
    if number is None or number > pages:
        raise InvalidPage
    return number


def page_of(view: View, collection: Collection, query: Query, url: str) -> Page:
    """Answer a list request; ``url`` is its absolute address without the query.

    Raises InvalidPage or InvalidCursor.
    """
    selections = selections_of(view, collection, query.filter)
    if query.cursor is not None:
        return _page_behind(selections, collection, query, query.cursor, url)
    count = sum(selection.count for selection in selections)
    size = query.page_size
    pages = max(1, -(-count // size))
    number = page_number(query.page, pages)
    return Page(
        count,
        link(url, query.pairs, number + 1) if number < pages else None,
        link(url, query.pairs, number - 1) if number > 1 else None,
        _records(selections, (number - 1) * size, size, query.oldest_first),
    )


def _page_behind(selections: list[Selection], collection: Collection, query: Query, cursor: str, url: str) -> Page:
    """The page behind a cursor. Rows that come meanwhile move none of the others to another page."""
    count = sum(selection.count for selection in selections)
    start = 0
    if cursor:
        seen = id_of(collection, cursor)
        upto = sum(selection.upto(seen if query.oldest_first else seen - 1) for selection in selections)
        start = upto if query.oldest_first else count - upto
    end = start + query.page_size
    following = None
    if end < count:
        last_id = _id_at(selections, end - 1 if query.oldest_first else count - end)
        following = _link_with(url, query.pairs, "cursor", cursor_at(collection, last_id))
    return Page(count, following, None, _records(selections, start, query.page_size, query.oldest_first))


def _id_at(selections: list[Selection], place: int) -> int:
    """The id of the selected row that has so many older ones."""
    for selection in selections:
        if place < selection.count:
            return int(selection.segment.ids[selection.slice(place, place + 1)[0]])
        place -= selection.count
    raise IndexError(place)


def _records(selections: list[Selection], start: int, size: int, oldest_first: bool) -> bytes:
    """The records ``start`` up to ``start + size`` of all selections in the order wanted."""
    parts = []
    for selection in selections if oldest_first else reversed(selections):
        count = selection.count
        if start >= count:
            start -= count
            continue
        stop = min(count, start + size)
        rows = selection.slice(start, stop) if oldest_first else selection.newest(start, stop)
        parts.append(render_rows(selection.segment, rows))
        size -= stop - start
        start = 0
        if not size:
            break
    return b",".join(parts)


def link(url: str, pairs: tuple[tuple[str, str], ...], number: int) -> str:
    """The address of another page: the same parameters, sorted by name, with ``page`` set."""
    return _link_with(url, pairs, "page", str(number))


def _link_with(url: str, pairs: tuple[tuple[str, str], ...], name: str, value: str) -> str:
    before, behind = _around(name, tuple([pair for pair in pairs if pair[0] not in ("page", "cursor")]))
    return f"{url}?{before}{value}{behind}"


@lru_cache(maxsize=256)
def _around(name: str, kept: tuple[tuple[str, str], ...]) -> tuple[str, str]:
    """What stands in a link before and behind the value of one parameter: digits and letters, so not escaped."""
    parts = [f"{quote_plus(other)}={quote_plus(value)}" for other, value in kept]
    at = bisect_right([other for other, _ in kept], name)
    return "&".join([*parts[:at], f"{name}="]), "".join(f"&{part}" for part in parts[at:])
