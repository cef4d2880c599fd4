"""Rows of a view as pages need them, and how they look: the HTML of a text, hash, time and tag, and of lists of rows.

Python builds the HTML, not a template macro: a macro takes five times as long. A list of a hundred rows takes 0.4 ms
(benchmarks/bench_web.py). Every value of a row is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from markupsafe import Markup

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.errors import visible
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

TITLES: dict[Collection, str] = {SIGNATURES: "Functions and errors", EVENT_SIGNATURES: "Events"}
HASH_NAMES: dict[Collection, str] = {SIGNATURES: "selector", EVENT_SIGNATURES: "topic"}
URL_NAMES: dict[Collection, str] = {SIGNATURES: "functions", EVENT_SIGNATURES: "events"}
"""The name of a collection in the address of a page."""
_MAX_ID = 2**62
BY_URL_NAME: dict[str, Collection] = {name: collection for collection, name in URL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """A row to show.

    ``fragment`` is the part of the text, and ``digits`` the part of the hash, that a search looked for. ``declaration`` is
    the commonest one.
    """

    collection: Collection
    id: int
    created_at: int
    text: str
    digest: bytes
    fragment: str = ""
    digits: str = ""
    looks_mined: bool = False
    declaration: str = ""

    @property
    def name(self) -> str:
        return self.text.partition("(")[0]

    @property
    def address(self) -> str:
        return hash_address(self.collection, self.digest)

    @property
    def json_address(self) -> str:
        return f"/api/v1/{self.collection}/{self.id}/"

    @property
    def is_filtered(self) -> bool:
        """Whether another signature is meant by this hash."""
        return self.looks_mined or is_filtered(self.digest, self.text)

    @property
    def added(self) -> str:
        return minute(self.created_at)


def hash_address(collection: Collection, digest: bytes) -> str:
    """The address of a hash's page."""
    return f"/{HASH_NAMES[collection]}/0x{digest.hex()}/"


def minute(microseconds: int) -> str:
    """A time in UTC, to the minute: 2026-11-21 03:18."""
    at = datetime.fromtimestamp(microseconds // 1_000_000, UTC)
    return f"{at.year:04}-{at.month:02}-{at.day:02} {at.hour:02}:{at.minute:02}"


def row_of(collection: Collection, segment: Segment, row: int, **known: Any) -> Row:
    """A row of a segment; ``known`` are the other fields of a Row."""
    text, digest, id = segment.text_at(row), segment.hash[row].tobytes(), int(segment.ids[row])
    return Row(collection, id, int(segment.created_at[row]), text, digest, **known)


def found_row(collection: Collection, segment: Segment, row: int, **known: Any) -> Row:
    """The same with its declaration, as a search shows it."""
    return row_of(collection, segment, row, declaration=segment.declaration_at(row), **known)


def rows_between(
    view: View, collection: Collection, first: int, last: int, count: int, *, newest_first: bool = False
) -> list[Row]:
    """At most ``count`` rows with ids from ``first`` to ``last``, both inclusive, from the oldest on or from the newest."""
    found: list[Row] = []
    for segment in view.segments[collection][:: -1 if newest_first else 1]:
        ids = segment.ids[: segment.rows]
        numbers = range(int(ids.searchsorted(first)), int(ids.searchsorted(last, side="right")))
        wanted = numbers[:: -1 if newest_first else 1][: count - len(found)]
        found += [row_of(collection, segment, number) for number in wanted]
    return found


def newest(view: View, collection: Collection, below: int | None, count: int) -> list[Row]:
    """The newest rows, newest first; only ids below ``below`` if it is given."""
    last = _MAX_ID if below is None else below - 1
    return rows_between(view, collection, 0, last, count, newest_first=True)


def next_above(view: View, collection: Collection, above: int, count: int) -> list[Row]:
    """The ``count`` rows with the next higher ids than ``above``, newest first."""
    return rows_between(view, collection, above + 1, _MAX_ID, count)[::-1]


_MAX_CHARACTERS = 240
_CHARACTERS_BEFORE = 40

FILTERED = "a different signature is the well-known one for this selector"
_FILTERED_TAG = '<span class="tag">not the well-known signature</span>\n'
_MINED_TAG = '<span class="tag">looks mined to collide</span>\n'


def soft(text: str) -> str:
    """A text with a permitted line break after each comma."""
    return escape(text).replace(",", ",<wbr>")


def copy(value: str, name: str) -> str:
    """A button that copies a value; the stylesheet hides it where scripts are off."""
    return f'<button class="copy scripted" type="button" data-copy="{escape(value)}" aria-label="Copy {name}">Copy</button>'


def heading(collection: Collection, count: int) -> str:
    """The heading of a collection's rows; its id labels the section around it."""
    return f'<h2 id="{URL_NAMES[collection]}">{TITLES[collection]} <span class="count">{count:,}</span></h2>\n'


def time(row: Row) -> str:
    """When a row was added."""
    added = row.added
    return f'<time datetime="{added.replace(" ", "T")}Z">{added}</time>\n'


def listing(rows: Iterable[Row], dated: bool = False) -> str:
    """A list of rows of one collection, optionally with their times. Topics stand on lines of their own."""
    found = list(rows)
    classes = (" dated" if dated else "") + (" topics" if found[0].collection == EVENT_SIGNATURES else "")
    return f'<ol class="rows{classes}">\n{"".join(_listed(row, dated) for row in found)}</ol>\n'


def _listed(row: Row, dated: bool) -> str:
    hex = f"0x{row.digest.hex()}"
    declared = f'<span class="declared text">{_marked(_clipped((row.declaration, "", "")))}</span>\n'
    return (
        f'<li>\n<a class="text" href="{row.address}">{_marked(_clipped(_parted(row.text, row.fragment)))}</a>\n'
        f'<span class="hash"><span class="hex">{_marked(_parted(hex, row.digits))}</span>{copy(hex, "hash")}</span>\n'
        f"{declared if row.declaration else ''}{_tag(row)}{time(row) if dated else ''}</li>\n"
    )


def same_hash_listing(rows: Iterable[Row]) -> str:
    """A list of rows that share the hash of the page they are on: each links to itself as that page's row."""
    items = (
        f'<li><a class="text" href="{row.address}?id={row.id}">{_marked(_clipped((row.text, "", "")))}</a>\n'
        f"{_tag(row)}{time(row)}</li>\n"
        for row in rows
    )
    return f'<ol class="rows">\n{"".join(items)}</ol>\n'


def _tag(row: Row) -> str:
    return _MINED_TAG if row.looks_mined else _FILTERED_TAG if row.is_filtered else ""


_Parts = tuple[str, str, str]
"""A text in three parts: up to the match, the match, the rest."""


def _parted(text: str, fragment: str) -> _Parts:
    at = text.lower().find(fragment.lower()) if fragment else -1
    if at < 0:
        return text, "", ""
    end = at + len(fragment)
    return text[:at], text[at:end], text[end:]


def _clipped(parts: _Parts) -> _Parts:
    """A long text cut down to the surroundings of its match: texts have up to 65,536 characters."""
    before, match, after = parts
    if len(before) + len(match) + len(after) <= _MAX_CHARACTERS:
        return parts
    if match and len(before) > _CHARACTERS_BEFORE:
        before = "…" + before[-_CHARACTERS_BEFORE:]
    before, match = _cut(before, _MAX_CHARACTERS), _cut(match, _MAX_CHARACTERS)
    return before, match, _cut(after, max(0, _MAX_CHARACTERS - len(before) - len(match)))


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size] + "…"


def _marked(parts: _Parts) -> str:
    before, match, after = parts
    return soft(before) + (f"<mark>{soft(match)}</mark>{soft(after)}" if match else "")


def _markup(build: Callable[..., str]) -> Callable[..., Markup]:
    return lambda *values, **more: Markup(build(*values, **more))  # noqa: S704 - each escapes what it is given


FILTERS: dict[str, Callable[..., Any]] = {"soft": _markup(soft), "n": "{:,}".format, "visible": visible}
FUNCTIONS: dict[str, Any] = {
    build.__name__: _markup(build) for build in (listing, same_hash_listing, heading, copy, time)
} | {"filtered": FILTERED}
"""What templates may call, by name."""
