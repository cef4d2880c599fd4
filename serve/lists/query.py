"""Query parameters of the lists, as 4byte.directory's API defines them. No value makes the parser fail.

``parse`` gives a Query. FILTERS is the table of the parameters that filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple
from urllib.parse import quote

from sigdir.serve.http.bodies import pairs_of, positive
from sigdir.warehouse.table.times import microseconds

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
    """Whether ``filter`` leaves texts out, as OpenChain reads it."""
    return value in ("", "true")


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
