"""Tables of signatures and selectors, as `forge inspect` and `forge selectors list` print them.

::

    ╭----------+---------------------------+------------╮
    | Type     | Signature                 | Selector   |
    +===================================================+
    | Function | transfer(address,uint256) | 0xa9059cbb |
    ╰----------+---------------------------+------------╯

A row has one hash and its text, or two texts in a table of collisions. With ``--wrap`` a row is several lines
between two rules; its cells are joined, and the hash tells whether that was right. With ``--md`` each line is a
row. Lines outside of tables, such as names of contracts, are skipped.

Source: ``print_table`` of Foundry's ``cmd/inspect.rs``, ``cmd/selectors.rs``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.hash_lines import entry_with_hash
from sigdir.pipeline.formats.tables import encoded
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import parse_hash
from sigdir.signatures.evidence import Kind, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY
from sigdir.signatures.types import KINDS

_HASH_TITLES = frozenset(["selector", "identifier", "topic"])
_TEXT_TITLES = frozenset(["signature", "method", "event", "error"])
_WITHOUT_SELECTOR = frozenset(["constructor", "fallback", "receive"])
_BORDERS = ("|", "│", "┆")
_RULE = re.compile(r"[\s|│┆+\-=:─═╌╞╪╡├┼┤╭╮╰╯┌┐└┘┬┴╤╧]+")
_MARKDOWN_RULE = re.compile(r"\|(?:\s*:?-+:?\s*\|)+")
_MAX_LINES = 256
"""The most lines of one row; a longer one is read line by line."""

Row = list[str]


def looks_like(source: Source) -> bool:
    """Whether the first line of a table is one of titles."""
    for line in source.head.decode("utf-8", "replace").splitlines():
        cells = _cells(line)
        if cells is not None:
            return _is_title(cells)
    return False


def _is_title(cells: Row) -> bool:
    titles = {cell.lower() for cell in cells}
    is_collisions = cells[0] == "Selector" and len(cells) == 3
    return bool(titles & _HASH_TITLES) and (bool(titles & _TEXT_TITLES) or is_collisions)


def _cells(line: str) -> Row | None:
    """The cells of a line of a table, not of a rule; None for any other line."""
    line = line.strip()
    border = line[:1]
    if border not in _BORDERS or not border or line[-1:] not in _BORDERS or _RULE.fullmatch(line):
        return None
    return [cell.strip() for cell in re.split("[|│┆]", line[1:-1])]


def entries(source: Source) -> Iterator[Entry]:
    lines: list[tuple[int, Row]] = []
    is_markdown = False
    for number, raw in source.lines():
        line = raw.decode("utf-8", "surrogateescape")
        cells = _cells(line)
        if cells is not None and len(lines) < _MAX_LINES and not is_markdown:
            lines.append((number, cells))
            continue
        yield from _rows(lines)
        lines = [(number, cells)] if cells is not None else []
        is_markdown = (is_markdown and cells is not None) or _MARKDOWN_RULE.fullmatch(line) is not None
    yield from _rows(lines)


def _rows(lines: list[tuple[int, Row]]) -> Iterator[Entry]:
    """The candidates of the lines between two rules: one row each if each has a hash, else one row together."""
    if lines and _is_title(lines[0][1]):
        lines = lines[1:]
    if all(_is_complete(cells) for _, cells in lines):
        for number, cells in lines:
            yield from _of_row(number, cells)
    else:
        width = len(lines[0][1])
        columns: list[list[str]] = [[] for _ in range(width)]
        for _, cells in lines:
            for column, cell in zip(columns, cells, strict=False):
                column.append(cell)
        yield from _of_row(lines[0][0], list(map("".join, columns)))


def _is_complete(cells: Row) -> bool:
    return cells[0].lower() in _WITHOUT_SELECTOR or any(map(parse_hash, cells))


def _of_row(number: int, cells: Row) -> Iterator[Entry]:
    if cells[0].lower() in _WITHOUT_SELECTOR:
        return
    declared = next((digest for cell in cells if (digest := parse_hash(cell))), None)
    texts = [cell for cell in cells if "(" in cell]
    if declared is None or not texts:
        row = " | ".join(cells)
        yield Entry(encoded(row), number, reject_reason=BAD_ENTRY)
        return
    kind = KINDS.get(cells[0].lower(), Kind.UNKNOWN)
    for text in texts:
        entry = entry_with_hash(encoded(text), number, declared, kind.collection)
        yield entry._replace(sighting=Sighting(kind, Witness.DECLARED)) if kind else entry
