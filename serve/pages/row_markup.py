"""What lists repeat, put together here: a macro of the templates' language takes five times as long.

A list of a hundred rows is 0.4 ms with these (benchmarks/bench_web.py). Everything that is not ours is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from markupsafe import Markup

from sigdir.serve.pages.rows import (
    SHORT,
    TITLES,
    Marked,
    Row,
)
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection


def soft(text: str) -> Markup:
    """A signature that may be broken behind its commas."""
    return Markup(_soft(text))  # noqa: S704 - escaped


def _soft(text: str) -> str:
    return escape(text).replace(",", ",<wbr>")


def copy(value: str, what: str) -> Markup:
    """A button that copies a value; the stylesheet leaves it out where no script runs."""
    return Markup(_copy(value, what))  # noqa: S704 - escaped


def _copy(value: str, what: str) -> str:
    return f'<button class="copy scripted" type="button" data-copy="{escape(value)}" aria-label="Copy {what}">Copy</button>'


def _listed(row: Row, when: bool) -> str:
    """A row of a list: its text, its hash, when it came if that is wanted."""
    hex = f"0x{row.digest.hex()}"
    tag = '<span class="tag">another is meant</span>\n' if row.is_filtered else ""
    return (
        f'<li>\n<a class="text" href="{row.address}">{_marked(row.text)}</a>\n'
        f'<span class="hash"><span class="hex">{_marked(row.hex)}</span>{_copy(hex, "hash")}</span>\n'
        f"{tag}{time(row) if when else ''}</li>\n"
    )


def listing(rows: Iterable[Row], when: bool = False) -> Markup:
    """A list of rows of one collection; a topic has a line of its own."""
    found = list(rows)
    kinds = (" dated" if when else "") + (" topics" if found[0].collection == EVENT_SIGNATURES else "")
    return Markup(f'<ol class="rows{kinds}">\n{"".join(_listed(row, when) for row in found)}</ol>\n')  # noqa: S704 - escaped


def heading(collection: Collection, count: int) -> Markup:
    """The heading of a collection's rows, which names the section that it stands in."""
    return Markup(f'<h2 id="{SHORT[collection]}">{TITLES[collection]} <span class="count">{count:,}</span></h2>\n')  # noqa: S704 - ours


def time(row: Row) -> Markup:
    """When a row came."""
    added = row.added
    return Markup(f'<time datetime="{added.replace(" ", "T")}Z">{added}</time>\n')  # noqa: S704 - digits


def _marked(parts: Marked) -> str:
    before, match, behind = parts
    if not match:
        return _soft(before)
    return f"{_soft(before)}<mark>{_soft(match)}</mark>{_soft(behind)}"
