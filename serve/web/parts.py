"""What lists repeat, put together here: a macro of the templates' language takes five times as long.

A list of a hundred rows is 0.4 ms with these (benchmarks/bench_web.py). Everything that is not ours is escaped.
"""

from __future__ import annotations

from markupsafe import Markup, escape

from serve.web.rows import Marked, Row


def soft(text: str) -> Markup:
    """A signature that may be broken behind its commas."""
    return Markup(_soft(text))  # noqa: S704 - escaped


def _soft(text: str) -> str:
    return str(escape(text)).replace(",", ",<wbr>")


def copy(value: str, what: str) -> Markup:
    """A button that copies a value; the stylesheet leaves it out where no script runs."""
    return Markup(  # noqa: S704 - escaped
        f'<button class="copy scripted" type="button" data-copy="{escape(value)}" aria-label="Copy {escape(what)}">Copy</button>'
    )


def listed(row: Row, when: bool = False) -> Markup:
    """A row of a list: its text, its hash, when it came if that is wanted."""
    hex = f"0x{row.digest.hex()}"
    tag = '<span class="tag">another is meant</span>\n' if row.is_filtered else ""
    return Markup(  # noqa: S704 - escaped
        f'<li>\n<a class="text" href="{row.address}">{_marked(row.text)}</a>\n'
        f'<span class="hash"><span class="hex">{_marked(row.hex)}</span>{copy(hex, "hash")}</span>\n'
        f"{tag}{time(row) if when else ''}</li>\n"
    )


def time(row: Row) -> Markup:
    """When a row came."""
    added = row.added
    return Markup(f'<time datetime="{added.replace(" ", "T")}Z">{added}</time>\n')  # noqa: S704 - digits


def _marked(parts: Marked) -> str:
    before, match, behind = parts
    if not match:
        return _soft(before)
    return f"{_soft(before)}<mark>{_soft(match)}</mark>{_soft(behind)}"
