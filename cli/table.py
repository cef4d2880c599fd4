"""A result drawn as a table, for people.

Columns of bytes are left out, and so are the last columns where the terminal is too narrow; the last line names
them. Of more than 40 rows the first and the last 20 are shown. Programs take another --format, which has everything.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any
from unicodedata import combining, east_asian_width

import pyarrow as pa

from sigdir.pipeline.errors import one_line
from sigdir.pipeline.row_writers import json_of, rows_of

_EDGE_ROWS = 20
_MOST_ROWS = 10_000  # read at most: forty rows of ten million can be shown without computing all
_WIDEST = (120, 80, 60, 50, 40, 32, 24, 16)
"""Widths that cells are cut to, one after the other, until the columns fit into the terminal."""

_PATHS = ("file", "path")
"""The columns whose cells are cut at their beginning."""

Row = tuple[Any, ...]


def draw(reader: pa.RecordBatchReader, width: int | None = None) -> Iterator[str]:
    """The lines of a table, at most ``width`` characters wide where that is given."""
    schema = reader.schema
    first, last, total = _edges(rows_of(reader))
    if schema.names == ["explain_key", "explain_value"]:
        yield from (plan for _, plan in first)
        return
    all_columns = [_Column.of(schema.field(place), place, [*first, *last]) for place in range(len(schema))]
    columns = _fitting([c for c in all_columns if not c.is_bytes] or all_columns, width)
    if columns:
        yield from _lines(columns, len(first) if last else None)
    names = {column.name for column in columns}
    yield _last_line(len(first) + len(last), total, [c.name for c in all_columns if c.name not in names])


def _edges(rows: Iterator[Row]) -> tuple[list[Row], list[Row], int | None]:
    """The first rows, the last ones if rows between them are left out, and the number of all rows.

    With over ``_MOST_ROWS`` rows there are no last ones, and the number is None.
    """
    first = list(islice(rows, 2 * _EDGE_ROWS))
    last: deque[Row] = deque(first[_EDGE_ROWS:], _EDGE_ROWS)
    total = len(first)
    for row in rows:
        if total == _MOST_ROWS:
            return first, [], None
        last.append(row)
        total += 1
    if total == len(first):
        return first, [], total
    return first[:_EDGE_ROWS], list(last), total


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cells: list[str]
    width: int
    is_number: bool
    is_bytes: bool

    @classmethod
    def of(cls, field: pa.Field, place: int, rows: list[Row]) -> _Column:
        name, cells = one_line(field.name), [_cell(row[place]) for row in rows]
        types = pa.types
        is_number = types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type)
        is_bytes = types.is_binary(field.type) or field.name == "bytes_signature"
        return cls(name, cells, max(map(_width, [name, *cells])), is_number, is_bytes)

    def fitted(self, text: str) -> str:
        """A text, padded or cut to the column's width. Of a path the end is kept, which tells files apart."""
        if _width(text) > self.width:
            text = _cut(text[::-1], self.width)[::-1] if self.name in _PATHS else _cut(text, self.width)
        padding = " " * (self.width - _width(text))
        return padding + text if self.is_number else text + padding


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(" ", "seconds")
    if isinstance(value, dict | list | bool):
        value = json_of(value).decode()
    if isinstance(value, bytes):
        value = "0x" + value.hex()
    return one_line(str(value))


def _width(text: str) -> int:
    """How many characters of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, width: int) -> str:
    while _width(text) >= width:
        text = text[: min(len(text) - 1, width)]
    return text + "…"


def _fitting(columns: list[_Column], width: int | None) -> list[_Column]:
    """The columns in widths for which the terminal has room. If it has too little, the last columns are left out."""
    room = sys.maxsize if width is None else width
    for widest in _WIDEST:
        fitting = [replace(column, width=min(column.width, widest)) for column in columns]
        if _line_width(fitting) <= room:
            return fitting
    while len(fitting) > 1 and _line_width(fitting) > room:
        fitting.pop()
    return fitting


def _line_width(columns: Sequence[_Column]) -> int:
    return 1 + sum(column.width + 3 for column in columns)


def _lines(columns: Sequence[_Column], gap: int | None) -> Iterator[str]:
    """The frame, the names and the rows. Rows are left out before the row number ``gap``."""

    def rule(left: str, between: str, right: str) -> str:
        return left + between.join("─" * (column.width + 2) for column in columns) + right

    def line(texts: Sequence[str]) -> str:
        return "".join(f"│ {column.fitted(text)} " for column, text in zip(columns, texts, strict=True)) + "│"

    yield rule("┌", "┬", "┐")
    yield line([column.name for column in columns])
    yield rule("├", "┼", "┤")
    for number in range(len(columns[0].cells)):
        if number == gap:
            yield line(["·"] * len(columns))
        yield line([column.cells[number] for column in columns])
    yield rule("└", "┴", "┘")


def _last_line(shown: int, total: int | None, left_out: list[str]) -> str:
    if total is None:
        rows = f"over {_MOST_ROWS:,} rows, the first {shown} shown"
    elif total > shown:
        rows = f"{total:,} rows, the first and last {shown // 2} shown"
    else:
        rows = "1 row" if total == 1 else f"{total} rows"
    return f"{rows}; not shown: {', '.join(left_out)}" if left_out else rows
