"""CSV, TSV and the like: a text column and any number of hash columns, with a header or without one.

A header names the columns, and the values in them decide: a column `sig` may hold texts or selectors, `id` a
topic or a number. Without a header the first or last cells are the hash, and the rest of the line is the
text. A text that is not quoted may contain the separator.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Columns, Table, encoded
from sigdir.pipeline.source import BLOCK_BYTES, ENDS_INSIDE, HEAD_BYTES, Source
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import parse_hash
from sigdir.signatures.grammar import BAD_ENTRY, is_signature

ROW_CHARACTERS = 4 * BLOCK_BYTES
"""The longest row."""

_NAME = re.compile(r"""[\w .$/#()\[\]<>,"'?!%&*+=@~-]{0,64}""")
"""A name of a column. A quoted one may have commas; a colon stands between a hash and its text."""

HEADER_SEPARATORS = ",\t;|"
_SEPARATORS = ",\t;|: "
"""Of lines without a header."""
_SURE_COLUMNS = 64
"""A first line with so many cells is a header, whatever the cells are."""
_NEAREST_COLUMNS = 3
"""Without a header the hash is one of the first or last so many cells."""

Row = list[str]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a row has what."""

    separator: str
    width: int
    """The cells of a row whose text is one cell."""
    columns: Columns
    has_header: bool = False


def looks_like(source: Source) -> bool:
    """Whether a header has a known name above signatures, or the lines without one have a hash and a signature."""
    return _has_plain_text(source) and (_header_layout(source) is not None or _bare_layout(source) is not None)


def is_by_line(source: Source) -> bool:
    """Whether the head says what each later line has. A field may still go on over several lines."""
    header, newline, _ = source.head.partition(b"\n")
    return bool(newline) and b'"' not in header and (_header_layout(source) or _bare_layout(source)) is not None


def head_rows(source: Source, count: int, separator: str = ",") -> list[Row]:
    """The first ``count`` lines as rows, up to one that is not CSV. A line that the head cuts is left out."""
    lines = source.head[:HEAD_BYTES].split(b"\n", count)[:count]
    if len(source.head) >= HEAD_BYTES and len(lines) > 1:
        lines.pop()
    texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in lines)
    rows: list[Row] = []
    with suppress(csv.Error):
        rows.extend(row for row in csv.reader(texts, delimiter=separator) if row)
    return rows


# Which column is what.


def _has_plain_text(source: Source) -> bool:
    """Whether an input begins neither like a binary file nor like JSON or a Markdown table."""
    return b"\0" not in source.head[:HEAD_BYTES] and source.head.lstrip()[:1] not in (b"{", b"[", b"|")


def _header_layout(source: Source) -> _Layout | None:
    """The layout by a header; None if there is no header that is surely one."""
    for separator in HEADER_SEPARATORS:
        table = head_table(source, separator)
        if len(table.names) < _SURE_COLUMNS and not all(map(_is_name, table.names)):
            continue
        columns = table.columns()
        if columns is not None:
            return _Layout(separator, len(table.names), columns, has_header=True)
    return None


def head_table(source: Source, separator: str, names: Row | None = None) -> Table:
    """The head as a table, with its first line as the names, or with ``names`` of a header that is longer than the head."""
    header, *rows = head_rows(source, SAMPLE_ROWS, separator) or [[]]
    names = names or header
    return Table(names, [_with_one_text(row, _first_open(row), len(names), separator) for row in rows], source.columns)


def _is_name(cell: str) -> bool:
    return _NAME.fullmatch(cell) is not None and parse_hash(cell) is None and not is_signature(encoded(cell))


def _first_open(row: Row) -> int:
    """The first cell whose parentheses are not closed."""
    return next((at for at, cell in enumerate(row) if cell.count("(") > cell.count(")")), 0)


def _bare_layout(source: Source) -> _Layout | None:
    """The layout of lines without a header; None unless at least half of them have a hash and a signature."""
    for separator in _SEPARATORS:
        rows = head_rows(source, SAMPLE_ROWS, separator)
        for at in range(_NEAREST_COLUMNS):
            first = _Layout(separator, at + 2, Columns(at + 1, (at,)))
            last = _Layout(separator, at + 2, Columns(0, (1,)))
            for layout in (first, last):
                if 0 < len(rows) <= 2 * sum(_fits(row, layout) for row in rows):
                    return layout
    return None


def _fits(row: Row, layout: _Layout) -> bool:
    if len(row) < layout.width:
        return False
    columns = layout.columns
    cells = _with_one_text(row, columns.text, layout.width, layout.separator, bare=True)
    return parse_hash(cells[columns.hashes[0]].strip()) is not None and is_signature(encoded(cells[columns.text]))


def _with_one_text(row: Row, text: int, width: int, separator: str, bare: bool = False) -> Row:
    """The row with its text in one cell: an unquoted text with separators in it was split into several.

    With a header only a text whose parentheses are not closed is put together, otherwise (``bare``) any.
    """
    extra = len(row) - width
    if extra <= 0 or not (bare or row[text].count("(") > row[text].count(")")):
        return row
    end = text + extra + 1
    return [*row[:text], separator.join(row[text:end]), *row[end:]]


# Rows.


class _Lines:
    """The lines for csv.reader, with a bound on the length of a row.

    A row continues over line ends inside quoted fields, and csv bounds fields only. So csv.Error is
    raised if one row takes another line after ``ROW_CHARACTERS``.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lines = self._read(source)
        self._taken = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._taken > ROW_CHARACTERS:
            raise csv.Error(f"a row of over {ROW_CHARACTERS:,} characters")
        try:
            line = next(self._lines)
        except StopIteration:
            if self._taken:  # asked again after the row that this ends, the reader has nothing
                self._source.warnings.append(ENDS_INSIDE)
            raise
        self._taken += len(line)
        return line

    def row_done(self) -> None:
        self._taken = 0

    @staticmethod
    def _read(source: Source) -> Iterator[str]:
        for block, _ in source.blocks():
            text = block.decode("utf-8", "surrogateescape")
            # A line that was cut may have lost a closing quote. Without one the field would continue
            # through the rows after it.
            quote = '"' if len(block) >= BLOCK_BYTES and text.count("\n") == 1 and text.count('"') % 2 else ""
            yield from (line + quote + "\n" for line in text.removesuffix("\n").split("\n"))


def table_rows(source: Source, separator: str = ",") -> Iterator[tuple[int, Row]]:
    """The rows that are not blank, the header among them, each with its line number."""
    csv.field_size_limit(ROW_CHARACTERS)
    lines = _Lines(source)
    rows = csv.reader(lines, delimiter=separator)
    line = source.lines_from
    try:
        for row in rows:
            if row:
                yield line, row
            line = source.lines_from + rows.line_num
            lines.row_done()
    except csv.Error as error:
        raise BadInput(source.name, f"broken CSV: {error}", f"line {rows.line_num:,}") from None


def entries(source: Source) -> Iterator[Entry]:
    layout = _header_layout(source) or _bare_layout(source)
    rows = table_rows(source, layout.separator if layout else ",")
    if layout is None or (layout.has_header and source.lines_from == 1):
        _, header = next(rows, (1, []))
        layout = _layout_as_named(source, header, layout)
        source.warnings += head_table(source, layout.separator, header).unread(layout.columns)
    elif source.columns and source.lines_from == 1:
        _refuse_other_names(head_table(source, layout.separator), source)
    for line, row in rows:
        if line == 1 and not layout.has_header and _is_header(row, layout):
            continue
        yield _entry(row, line, layout)


def _layout_as_named(source: Source, names: Row, layout: _Layout | None) -> _Layout:
    """The layout by the whole header, which may be longer than the head. Raises BadInput for a table in doubt."""
    if layout is not None and len(names) == layout.width:
        return layout
    separator = layout.separator if layout else ","
    table = head_table(source, separator, names)
    columns = table.columns(is_named=True)
    if columns is None:
        tables = [table, *(head_table(source, other) for other in HEADER_SEPARATORS[1:])]
        if any(is_signature(encoded(name)) for one in tables for name in one.names):  # --column would lose this line
            raise BadInput(source.name, "it has signatures and no header; write one above, as text_signature", "line 1")
        raise max(tables, key=lambda one: len(one.names)).refusal(source, "line 1")
    return _Layout(separator, len(names), columns, has_header=True)


def _refuse_other_names(table: Table, source: Source) -> None:
    """Raise BadInput if a first line of words does not have the columns that the user names."""
    if not any(parse_hash(cell) or is_signature(encoded(cell)) for cell in table.names):
        raise table.refusal(source, "line 1")


def _is_header(row: Row, layout: _Layout) -> bool:
    """Whether the first line above lines without known names has names: words, and neither a hash nor a text."""
    return len(row) >= layout.width and all(cell.strip().isidentifier() and _is_name(cell) for cell in row)


def _entry(row: Row, line: int, layout: _Layout) -> Entry:
    columns = layout.columns
    if len(row) > layout.width:
        row = _with_one_text(row, columns.text, layout.width, layout.separator, not layout.has_header)
    if len(row) <= columns.text:
        return Entry(encoded(layout.separator.join(row)), line, reject_reason=BAD_ENTRY)
    hashes = columns.hashes[: bisect_left(columns.hashes, len(row))]  # a header may name a million, and a row have one
    written = [digits for at in hashes if (digits := row[at].strip())]
    kind = row[columns.kind] if columns.kind is not None and columns.kind < len(row) else None
    return columns.entry(encoded(row[columns.text]), line, written, kind)
