"""Pages of a list, by number or by cursor, with the links between them.

A cursor is a client's position in a collection, as a text that is valid for ever: the id of the last row seen. An id
never changes and is never reused, so a cursor outlives every version. Only this file knows its spelling: clients send
it back as they got it.

Lookups of whole hashes may go by evidence, for clients that show the first text of an answer.

Query parameters of the lists, as 4byte.directory's API defines them. No value makes the parser fail.

``parse`` gives a Query. FILTERS is the table of the parameters that filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import numpy as np
import orjson

from sigdir.serve.http.answers import detail
from sigdir.serve.http.bodies import SHORT_BYTES, pairs_of, positive
from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.template import records_size, render_rows
from sigdir.warehouse.index.view import View
from sigdir.warehouse.table.fields import microseconds

DEFAULT_PAGE_SIZE = 100
MAX_PAGE_SIZE = 1000
_MAX_NAMED, _MAX_NAME_CHARACTERS = 10, 40
_FILTER = "filter"  # OpenChain's parameter; a list has it where lookups are ranked


class Filter(NamedTuple):
    """The conditions on a row; None means no condition.

    ``first`` and ``last`` bound created_at, inclusive, in microseconds since 1970. ``never`` is set by a value
    that no row can match.
    """

    hex: str | None = None
    hashes: frozenset[bytes] | None = None
    text: str | None = None
    first: int | None = None
    last: int | None = None
    never: bool = False

    def is_whole_hash(self, width: int) -> bool:
        """Whether a whole hash of ``width`` bytes is the only condition."""
        hex = self.hex
        return hex is not None and len(hex) == 2 * width and self == (hex, None, None, None, None, False)

    def is_lookup(self, width: int) -> bool:
        """Whether whole hashes of ``width`` bytes are the only condition."""
        return self.is_whole_hash(width) or (self.hashes is not None and self == Filter(hashes=self.hashes))

    def needs_scan(self, width: int) -> bool:
        """Whether the text or the hash, of ``width`` bytes, of every row has to be compared."""
        return not self.never and (self.text is not None or (self.hex is not None and len(self.hex) != 2 * width))

    def looked_up(self, width: int) -> list[bytes]:
        """The hashes of ``width`` bytes of a lookup, rising."""
        if self.hex:
            return [bytes.fromhex(self.hex)]
        return sorted(hash for hash in self.hashes or () if len(hash) == width)


class Query(NamedTuple):
    """The parameters of a request. ``pairs`` are the ones that links to other pages repeat, sorted by name.

    ``filter`` is None if no parameter filters.
    """

    pairs: tuple[tuple[str, str], ...]
    filter: Filter | None
    oldest_first: bool
    is_ordered: bool
    """Whether the client names an order that is known."""
    page: str
    page_size: int
    cursor: str | None = None
    """The cursor after the last row seen; empty for the first page, None if pages go by number."""
    unknown: str = ""
    """The names of parameters that mean nothing here, escaped, joined by commas; at most _MAX_NAMED of them."""
    is_filtering: bool = True
    """Whether a ranked lookup leaves texts out."""


_name_of = itemgetter(0)


def parse(query_string: str, *, is_ranked: bool = False) -> Query:
    """Parse a query string, with or without percent-escapes; never fails. Lists that are ranked know one parameter more."""
    pairs = pairs_of(query_string)
    filled = [pair for pair in pairs if pair[1]]
    if len(filled) > 1:
        filled.sort(key=_name_of)
    values = dict(pairs)  # the last value of a repeated parameter counts
    value_of = values.get
    order = _order(values["ordering"]) if "ordering" in values else ""
    return Query(
        tuple(filled),
        None if FILTERS.keys().isdisjoint(values) else _filter(values),
        order == "created_at",
        bool(order),
        value_of("page", "1"),
        _page_size(values["page_size"]) if "page_size" in values else DEFAULT_PAGE_SIZE,
        value_of("cursor"),
        "" if values.keys() <= KNOWN else _unknown(values.keys() - KNOWN - ({_FILTER} if is_ranked else set())),
        wants_filter(value_of(_FILTER, "")),
    )


def wants_filter(value: str) -> bool:
    """Whether ``filter`` leaves texts out. OpenChain reads true alone; clients in Python write True, others 1."""
    return value.lower() in ("", "true", "1")


def _unknown(names: set[str]) -> str:
    """Names that no parameter has, fit for a header."""
    found = sorted(names)[:_MAX_NAMED]
    return ", ".join(quote(name[:_MAX_NAME_CHARACTERS], errors="replace") for name in found)


def _page_size(value: str) -> int:
    return min(positive(value) or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def _order(value: str) -> str:
    """The first part that names a known ordering; "" for none. The default is newest first."""
    parts = map(str.strip, value.split(","))
    return next((part for part in parts if part in ("created_at", "-created_at")), "")


def _filter(values: dict[str, str]) -> Filter:
    conditions: dict[str, Any] = {}
    for name, value in values.items():
        understand = FILTERS.get(name)
        if understand and value:
            for key, condition in understand(value).items():
                conditions[key] = _tighter(key, conditions[key], condition) if key in conditions else condition
    return Filter(**conditions)


def _tighter(key: str, a: Any, b: Any) -> Any:
    return max(a, b) if key == "first" else min(a, b) if key == "last" else a or b


_NEVER = {"never": True}
_DIGITS = re.compile("[0-9a-f]{1,64}")
_WHOLE_HASH = re.compile("[0-9a-f]{8}|[0-9a-f]{64}")


def _hex(value: str) -> dict[str, Any]:
    digits = value.lower().removeprefix("0x")
    if not digits:
        return {}
    return {"hex": digits} if _DIGITS.fullmatch(digits) else _NEVER


def _hashes(value: str) -> dict[str, Any]:
    """Whole hashes, separated by commas. A part that is not a hash matches nothing."""
    digits = (part.strip().lower().removeprefix("0x") for part in value.split(","))
    hashes = frozenset(bytes.fromhex(part) for part in digits if _WHOLE_HASH.fullmatch(part))
    return {"hashes": hashes} if hashes else _NEVER


def _text(value: str) -> dict[str, Any]:
    fragment = value.strip()
    if not fragment:
        return {}
    # A canonical text is printable ASCII, so no row has any other character.
    return {"text": fragment} if fragment.isascii() and "\0" not in fragment else _NEVER


_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,6})\d*)?)?"
    r"\s*(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_time(value: str) -> int | None:
    """Microseconds since 1970 of a date and time in ISO 8601; None for anything else."""
    match = _TIME.fullmatch(value.strip())
    if not match:
        return None
    year, month, day, hour, minute, second, fraction, zone = (part or "0" for part in match.groups())
    date = "-".join(part.zfill(2) for part in (year, month, day))
    time = ":".join(part.zfill(2) for part in (hour, minute, second))
    try:
        return microseconds(
            datetime.fromisoformat(f"{date}T{time}.{fraction:0<6}{'Z' if zone == '0' else zone.upper()}")
        )
    except ValueError:
        return None


def _time_bound(key: str, shift: int) -> Callable[[str], dict[str, Any]]:
    def understand(value: str) -> dict[str, Any]:
        at = parse_time(value)
        return _NEVER if at is None else {key: at + shift}

    return understand


FILTERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "hex_signature": _hex,
    "hex_signature__in": _hashes,
    "text_signature": _text,
    "created_at__gte": _time_bound("first", 0),
    "created_at__gt": _time_bound("first", 1),
    "created_at__lte": _time_bound("last", 0),
    "created_at__lt": _time_bound("last", -1),
}
"""Each parameter that filters, and the function from its value to conditions."""

KNOWN = frozenset({*FILTERS, "page", "page_size", "ordering", "cursor", "format"})
"""All parameters of a list."""


_LETTERS: dict[Collection, str] = {SIGNATURES: "s", EVENT_SIGNATURES: "e"}


def cursor_at(collection: Collection, id: int) -> str:
    """The cursor of a client that has seen all rows up to this id."""
    return f"{_LETTERS[collection]}{id:x}"


def id_of(collection: Collection, cursor: str) -> int | None:
    """The id of the last row seen; None for what is no cursor of this collection."""
    is_cursor = re.fullmatch(f"{_LETTERS[collection]}(0|[1-9a-f][0-9a-f]{{0,14}})", cursor)
    return int(cursor[1:], 16) if is_cursor else None


_CHUNK_ROWS = 16  # a megabyte, where each text has 64 KiB


@dataclass(frozen=True, slots=True)
class NumberedPage:
    """A page by number: the place of its first row, how many rows there are on all pages, and the links."""

    start: int
    count: int
    next: str | None
    previous: str | None

    def links(self) -> dict[str, int | str | None]:
        """The members of an answer beside its results."""
        return {"count": self.count, "next": self.next, "previous": self.previous}


def numbered_page(query: Query, count: int, url: str) -> NumberedPage:
    """The page that a query asks for of so many rows; raises HttpError."""
    pages = max(1, -(-count // query.page_size))
    number = page_number(query.page, pages)
    return NumberedPage(
        (number - 1) * query.page_size,
        count,
        link(url, query.pairs, "page", number + 1) if number < pages else None,
        link(url, query.pairs, "page", number - 1) if number > 1 else None,
    )


@dataclass(slots=True)
class Page:
    """A page of a list. ``parts`` are its rows, segment by segment; a link is None at either end."""

    count: int
    next: str | None
    previous: str | None
    parts: list[tuple[Segment, Array]]

    def body(self) -> bytes:
        return b"%s%s]}" % (self._head(), b",".join(render_rows(segment, rows) for segment, rows in self.parts))

    def takes_long(self) -> bool:
        """Whether it has several texts so long that rendering takes a millisecond or more."""
        return self._rows() > 1 and self._size() > SHORT_BYTES

    def is_longer_than(self, size: int) -> bool:
        """Whether the page has more than 100 rows and may have more than ``size`` bytes, because of long texts."""
        return self._rows() > DEFAULT_PAGE_SIZE and self._size() > size

    def _rows(self) -> int:
        return sum(len(rows) for _, rows in self.parts)

    def _size(self) -> int:
        return sum(records_size(*part) for part in self.parts)

    def chunks(self) -> Iterator[bytes]:
        """The body in chunks of a megabyte at most."""
        start = self._head()
        for segment, rows in self.parts:
            for first in range(0, len(rows), _CHUNK_ROWS):
                yield start + render_rows(segment, rows[first : first + _CHUNK_ROWS])
                start = b","
        yield b"]}"

    def _head(self) -> bytes:
        return b'{"count":%d,"next":%s,"previous":%s,"results":[' % (
            self.count, _json_link(self.next), _json_link(self.previous),
        )  # fmt: skip


def _json_link(link: str | None) -> bytes:
    return b"null" if link is None else orjson.dumps(link)


def page_of(view: View, collection: Collection, query: Query, url: str) -> Page:
    """The page that a query asks for. ``url`` is the list's absolute address without the query.

    Raises HttpError where there is no such page or cursor.
    """
    return page_of_selections(selections_of(view, collection, query.filter), collection, query, url)


def page_of_selections(selections: list[Selection], collection: Collection, query: Query, url: str) -> Page:
    """The page of these selections, the first of which has the oldest rows; raises as ``page_of`` does."""
    if query.cursor is not None:
        return _page_after(selections, collection, query, query.cursor, url)
    page = numbered_page(query, _count(selections), url)
    rows = _rows(selections, page.start, query.page_size, query.oldest_first)
    return Page(page.count, page.next, page.previous, rows)


def _count(selections: list[Selection]) -> int:
    return sum(selection.count for selection in selections)


def page_number(wanted: str, pages: int) -> int:
    """The number of the page wanted, from 1; raises HttpError."""
    if wanted == "last":
        return pages
    number = positive(wanted)
    if number is None or number > pages:
        raise detail(404, "Invalid page.")
    return number


def _page_after(selections: list[Selection], collection: Collection, query: Query, cursor: str, url: str) -> Page:
    """The page after a cursor. Rows that are added meanwhile move no other row to another page."""
    count = _count(selections)
    start = 0
    if cursor:
        seen = id_of(collection, cursor)
        if seen is None:
            raise detail(404, "Invalid cursor.")
        older = sum(selection.count_up_to(seen if query.oldest_first else seen - 1) for selection in selections)
        start = older if query.oldest_first else count - older
    end = start + query.page_size
    following = None
    if end < count:
        last_id = _id_at(selections, end - 1 if query.oldest_first else count - end)
        following = link(url, query.pairs, "cursor", cursor_at(collection, last_id))
    return Page(count, following, None, _rows(selections, start, query.page_size, query.oldest_first))


def _id_at(selections: list[Selection], place: int) -> int:
    """The id of the selected row that has ``place`` older ones."""
    for selection in selections:
        if place < selection.count:
            return int(selection.segment.ids[selection.oldest(place, place + 1)[0]])
        place -= selection.count
    raise IndexError(place)


def _rows(selections: list[Selection], start: int, size: int, oldest_first: bool) -> list[tuple[Segment, Array]]:
    """The rows at the places ``start`` up to ``start + size`` of all selections."""
    parts = []
    for selection in selections if oldest_first else reversed(selections):
        count = selection.count
        if start >= count:
            start -= count
            continue
        stop = min(count, start + size)
        rows = selection.oldest(start, stop) if oldest_first else selection.newest(start, stop)
        parts.append((selection.segment, rows))
        size -= stop - start
        start = 0
        if not size:
            break
    return parts


def link(url: str, pairs: tuple[tuple[str, str], ...], name: str, value: int | str) -> str:
    """The address of another page: the same parameters, sorted by name, with ``page`` or ``cursor`` set."""
    others = [pair for pair in pairs if pair[0] not in ("page", "cursor")]
    return f"{url}?{urlencode(sorted([*others, (name, str(value))], key=_name_of))}"


def ranked_page(view: View, collection: Collection, query: Query, url: str) -> Page:
    """The page of a lookup: the texts of each hash in the order of their rank, without those that are filtered.

    A client that names an order gets it, and pages by cursor go by id. ``filter=false`` keeps every text. ``url`` and
    errors are those of ``page_of``.
    """
    hashes = query.filter.looked_up(collection.hash_bytes) if query.filter is not None else []
    rows = [
        row for hash in hashes for row in ranked_rows(view, collection, hash)
        if not (query.is_filtering and row.is_filtered)
    ]  # fmt: skip
    if query.is_ordered or query.cursor is not None:
        rows.sort(key=lambda row: row.id)
        selections = [Selection(row.segment, 0, row.segment.rows, np.array([row.row])) for row in rows]
        return page_of_selections(selections, collection, query, url)
    page = numbered_page(query, len(rows), url)
    shown = rows[page.start : page.start + query.page_size]
    return Page(page.count, page.next, page.previous, [(row.segment, np.array([row.row])) for row in shown])


# The rows of a view that pass a filter, segment by segment.


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows of a segment that pass a filter.

    ``rows`` are their numbers, rising. If it is None, they are ``first`` up to ``last``, exclusive.
    """

    segment: Segment
    first: int
    last: int
    rows: Array | None = None

    @property
    def count(self) -> int:
        return self.last - self.first if self.rows is None else len(self.rows)

    def oldest(self, start: int, stop: int) -> Array:
        """Numbers of the selected rows ``start`` up to ``stop``, exclusive, counted from the oldest."""
        if self.rows is None:
            return np.arange(self.first + start, self.first + stop)
        return self.rows[start:stop]

    def newest(self, start: int, stop: int) -> Array:
        """The same, counted from the newest."""
        if self.rows is None:
            return np.arange(self.last - 1 - start, self.last - 1 - stop, -1)
        return np.ascontiguousarray(self.rows[::-1][start:stop])

    def count_up_to(self, id: int) -> int:
        """How many of the selected rows have this id or a lower one."""
        row = int(self.segment.ids[: self.segment.rows].searchsorted(id, side="right"))
        if self.rows is None:
            return min(max(row, self.first), self.last) - self.first
        return int(self.rows.searchsorted(row))


def selections_of(view: View, collection: Collection, wanted: Filter | None) -> list[Selection]:
    """The rows that pass a filter, oldest segment first. With a filter no selection is empty."""
    if wanted is None:
        return [Selection(segment, 0, segment.rows) for segment in view.segments[collection]]
    if wanted.is_whole_hash(collection.hash_bytes):
        found = view.with_hash(collection, bytes.fromhex(wanted.hex or ""))
        return [Selection(segment, 0, segment.rows, rows) for segment, rows in found]
    selections = [_select(segment, collection, wanted) for segment in view.segments[collection]]
    return [selection for selection in selections if selection is not None and selection.count]


def _select(segment: Segment, collection: Collection, wanted: Filter) -> Selection | None:
    """Apply a filter to one segment; None if no row has its hash."""
    if wanted.never:
        return None
    rows: Array | None = None
    if wanted.hex is not None or wanted.hashes is not None:
        rows = _with_hash(segment, collection.hash_bytes, wanted)
        if not len(rows):
            return None
    first, last = segment.time_range(wanted.first, wanted.last)
    if wanted.text is not None:
        found = segment.with_text(wanted.text)
        rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
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
        fitting = sorted(hash for hash in wanted.hashes if len(hash) == width)
        found = np.sort(segment.with_hashes(np.frombuffer(b"".join(fitting), np.uint8).reshape(-1, width))[1])
        rows = found if rows is None else np.intersect1d(rows, found, assume_unique=True)
    return NO_ROWS if rows is None else rows
