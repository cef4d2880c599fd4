"""How a row looks: the HTML of its text, hash, time and tag, and of lists of rows.

Python builds it, not a template macro: a macro takes five times as long. A list of a hundred rows takes 0.4 ms
(benchmarks/bench_web.py). Every value of a row is escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Any

from markupsafe import Markup

from sigdir.serve.pages.rows import TITLES, URL_NAMES, Row
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection

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


FILTERS: dict[str, Callable[..., Any]] = {"soft": _markup(soft), "n": "{:,}".format}
FUNCTIONS: dict[str, Any] = {
    build.__name__: _markup(build) for build in (listing, same_hash_listing, heading, copy, time)
} | {"filtered": FILTERED}
"""What templates may call, by name."""
