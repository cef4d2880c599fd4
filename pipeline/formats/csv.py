"""CSV, TSV and the like: a text column and any number of hash columns, with a header or without one.

A header names the columns, and the values in them decide: a column `sig` may hold texts or selectors, `id` a
topic or a number. Without a header the first or last cells are the hash, and the rest of the line is the
text. A text that is not quoted may contain the separator.
"""

from __future__ import annotations

import csv
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hashes import collection_of, is_hash_of, listed, parse_hash
from sigdir.pipeline.formats.json_lines import packed
from sigdir.pipeline.source import BLOCK_BYTES, HEAD_BYTES, Source, line_pieces
from sigdir.signatures.candidates import Candidates, Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.evidence import LISTED, Kind, Sighting
from sigdir.signatures.grammar import BAD_ENTRY, HASH_MISMATCH, OK, is_signature

TEXT_COLUMNS = ("text_signature", "signature")
HASH_COLUMNS = ("hex_signature", "hash", "selector")
"""The columns that are read whatever their values are. Parquet files and databases have no others."""
ROW_CHARACTERS = 4 * BLOCK_BYTES
"""The longest row."""

_PLAIN_NAMES = frozenset(["text_signature", "function_signature", "event_signature", "error_signature"])
_TEXT_NAMES = (
    "text_signature", "function_signature", "event_signature", "error_signature", "signature", "text_sig", "sig",
    "text", "name",
)  # fmt: skip
_HASH_NAMES = frozenset(
    ["hex_signature", "hash", "selector", "hex", "bytes4", "topic0", "topic", "id", "sig", "signature", "byte_sig"]
)
_KIND_NAMES = ("kind", "type")
KINDS = {kind.name.lower(): Sighting(kind) for kind in (Kind.FUNCTION, Kind.ERROR, Kind.EVENT)}
"""What a row says whose kind stands beside its text."""
_NAME = re.compile(r"[\w .$/#()-]{0,64}")
_HEX = re.compile(r"0[xX][0-9a-fA-F]+")

_HEADER_SEPARATORS = ",\t;|"
_SEPARATORS = ",\t;|: "
"""Of lines without a header."""
_SAMPLE_ROWS = 64
_SURE_COLUMNS = 64
"""A first line with so many cells is a header, whatever the cells are."""
_SHOWN_CHARACTERS = 64
"""Of a column's name in a warning."""
_NEAREST_COLUMNS = 3
"""Without a header the hash is one of the first or last so many cells."""

Row = list[str]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a row has what."""

    separator: str
    width: int
    """The cells of a row whose text is one cell."""
    text: int
    hashes: tuple[int, ...]
    kind: int | None = None
    header: tuple[str, ...] = ()
    """The names in lower case; empty without a header."""


def looks_like(source: Source) -> bool:
    """Whether a header has a known name above signatures, or the lines without one have a hash and a signature."""
    return _has_plain_text(source) and (_header_layout(source) is not None or _bare_layout(source) is not None)


def read(source: Source) -> Iterator[Candidates]:
    return packed(_entries(source), source)


def pieces(source: Source) -> list[range]:
    """The pieces of a file whose layout is known by its head; a piece that ends in a quoted field is of no use."""
    header = source.head[:HEAD_BYTES].partition(b"\n")[0]
    is_known = (_header_layout(source) or _bare_layout(source)) is not None
    return line_pieces(source) if is_known and b'"' not in header else []


def head_rows(source: Source, count: int, separator: str = ",") -> list[Row]:
    """The first ``count`` lines as rows; empty if they are not CSV. A line that the head cuts is left out."""
    lines = source.head[:HEAD_BYTES].split(b"\n", count)[:count]
    if len(source.head) >= HEAD_BYTES and len(lines) > 1:
        lines.pop()
    texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in lines)
    try:
        return [row for row in csv.reader(texts, delimiter=separator) if row]
    except csv.Error:
        return []


def column_names(row: Row) -> list[str]:
    """The names in a header, in lower case and with `_` between words."""
    return [re.sub(r"[ -]+", "_", name.strip().lower()) for name in row]


# Which column is what.


def _has_plain_text(source: Source) -> bool:
    """Whether an input begins neither like a binary file nor like JSON or a Markdown table."""
    return b"\0" not in source.head[:HEAD_BYTES] and source.head.lstrip()[:1] not in (b"{", b"[", b"|")


def _header_layout(source: Source) -> _Layout | None:
    """The layout by a header; None if there is no header that is surely one."""
    for separator in _HEADER_SEPARATORS:
        header, *rows = head_rows(source, _SAMPLE_ROWS, separator) or [[]]
        if len(header) < _SURE_COLUMNS and not all(map(_NAME.fullmatch, header)):
            continue
        names = column_names(header)
        text = _text_column(names, rows)
        if text is not None:
            return _named_layout(names, rows, text, separator)
    return None


def _text_column(names: Sequence[str], rows: list[Row]) -> int | None:
    """The first column with a known name and signatures in it, or with a name that says it all."""
    known = [names.index(name) for name in _TEXT_NAMES if name in names]
    for column in known:
        good = sum(is_signature(encoded(text)) for text in _texts_of(rows, column, len(names)))
        if 0 < len(rows) <= 2 * good:
            return column
    return next((column for column in known if names[column] in _PLAIN_NAMES), None)


def _named_layout(names: Sequence[str], rows: list[Row], text: int, separator: str) -> _Layout:
    rows = [_with_one_text(row, text, len(names), separator) for row in rows]
    hashes = tuple(
        column for column, name in enumerate(names) if column != text and _is_hash_column(column, name, rows, text)
    )
    kind = next((names.index(name) for name in _KIND_NAMES if name in names), None)
    return _Layout(separator, len(names), text, hashes, kind if kind != text else None, tuple(names))


def _is_hash_column(column: int, name: str, rows: list[Row], text: int) -> bool:
    """Whether a column has hashes: by its name and its values, or because they are the hashes of the texts."""
    if name in HASH_COLUMNS:
        return True
    pairs = [(row[column].strip(), row[text]) for row in rows if max(column, text) < len(row) and row[column].strip()]
    hashes = [(declared, written) for cell, written in pairs if (declared := parse_hash(cell)) is not None]
    if not pairs or 2 * len(hashes) < len(pairs):
        return False
    return name in _HASH_NAMES or any(is_hash_of(declared, encoded(written)) for declared, written in hashes)


def _bare_layout(source: Source) -> _Layout | None:
    """The layout of lines without a header; None unless at least half of them have a hash and a signature."""
    for separator in _SEPARATORS:
        rows = head_rows(source, _SAMPLE_ROWS, separator)
        for at in range(_NEAREST_COLUMNS):
            first = _Layout(separator, at + 2, at + 1, (at,))
            last = _Layout(separator, at + 2, 0, (1,))
            for layout in (first, last):
                if 0 < len(rows) <= 2 * sum(_fits(row, layout) for row in rows):
                    return layout
    return None


def _fits(row: Row, layout: _Layout) -> bool:
    if len(row) < layout.width:
        return False
    cells = _with_one_text(row, layout.text, layout.width, layout.separator, bare=True)
    return parse_hash(cells[layout.hashes[0]].strip()) is not None and is_signature(encoded(cells[layout.text]))


def _texts_of(rows: list[Row], column: int, width: int) -> list[str]:
    rows = [_with_one_text(row, column, width, ",") for row in rows]
    return [row[column] for row in rows if column < len(row)]


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
                self._source.ends_inside = True
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
    line = 1
    try:
        for row in rows:
            if row:
                yield line, row
            line = rows.line_num + 1
            lines.row_done()
    except csv.Error as error:
        raise BadInput(source.name, f"broken CSV: {error}", f"line {rows.line_num:,}") from None


def _entries(source: Source) -> Iterator[Entry]:
    layout = _header_layout(source) or _bare_layout(source)
    rows = table_rows(source, layout.separator if layout else ",")
    if layout is None or (layout.header and source.is_first):
        _, header = next(rows, (1, []))
        layout = _layout_as_named(source, column_names(header), layout)
        source.warnings += _warnings(layout, head_rows(source, _SAMPLE_ROWS, layout.separator)[1:])
    for line, row in rows:
        yield _entry(row, line, layout)


def _layout_as_named(source: Source, names: list[str], layout: _Layout | None) -> _Layout:
    """The layout by the whole header, which may be longer than the head. Raises BadInput without a text column."""
    if layout is not None and len(names) == layout.width:
        return layout
    separator = layout.separator if layout else ","
    rows = head_rows(source, _SAMPLE_ROWS, separator)[1:]
    text = _text_column(names, rows)
    if text is None:
        text = next((names.index(name) for name in TEXT_COLUMNS if name in names), None)
    if text is None:
        raise BadInput(source.name, f"no column is named {' or '.join(TEXT_COLUMNS)}", "line 1")
    return _named_layout(names, rows, text, separator)


def _warnings(layout: _Layout, rows: list[Row]) -> list[str]:
    """A sentence for each column of 0x values that is not read."""
    found = []
    rows = [_with_one_text(row, layout.text, layout.width, layout.separator) for row in rows]
    read = {layout.text, *layout.hashes}
    for column, name in enumerate(layout.header):
        if column in read:
            continue
        values = [cell for row in rows if column < len(row) and (cell := row[column].strip())]
        if values and all(map(_HEX.fullmatch, values)):
            found.append(
                f"column {name[:_SHOWN_CHARACTERS]!r} has 0x values that are not hashes of the texts; it was not read"
            )
    return found


def _entry(row: Row, line: int, layout: _Layout) -> Entry:
    if len(row) > layout.width:
        row = _with_one_text(row, layout.text, layout.width, layout.separator, not layout.header)
    if len(row) <= layout.text:
        return Entry(encoded(layout.separator.join(row)), line, reject_reason=BAD_ENTRY)
    text = encoded(row[layout.text])
    sighting = LISTED
    if layout.kind is not None and layout.kind < len(row):
        sighting = KINDS.get(row[layout.kind].strip().lower(), LISTED)
    hashes = layout.hashes[: bisect_left(layout.hashes, len(row))]  # a header may name a million, and a row have one
    written = [digits for at in hashes if (digits := row[at].strip())]
    if written:
        return _entry_with_hashes(text, line, sighting, written)
    return Entry(text, line, collection_of_kind(sighting.kind), sighting=sighting)


def collection_of_kind(kind: Kind) -> int:
    """The collection of a kind; UNKNOWN for an unknown one."""
    return EVENTS if kind is Kind.EVENT else FUNCTIONS if kind else UNKNOWN


def _entry_with_hashes(text: bytes, line: int, sighting: Sighting, written: list[str]) -> Entry:
    """A text and its hashes. Hashes of one length tell the collection, a selector beside a whole hash does not."""
    declared = [parse_hash(digits) for digits in written]
    known = [digest for digest in declared if digest is not None]
    collection = collection_of_kind(sighting.kind)
    if len(known) < len(declared):
        return Entry(text, line, collection, reject_reason=BAD_ENTRY)
    longest = max(known, key=len)
    if collection == UNKNOWN and len(set(map(len, known))) == 1:
        collection, sighting = collection_of(longest), listed(longest)
    agree = all(longest.startswith(digest) for digest in known)
    return Entry(text, line, collection, longest, OK if agree else HASH_MISMATCH, sighting)


def encoded(text: str) -> bytes:
    """The bytes of a field in the input."""
    return text.encode("utf-8", "surrogateescape")
