"""CSV with a header that names a text column and optionally a hash column."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.source import BLOCK_BYTES, Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY

TEXT_COLUMNS = ("text_signature", "signature")
HASH_COLUMNS = ("hex_signature", "hash", "selector")
ROW_CHARACTERS = 4 * BLOCK_BYTES
"""The longest row."""


def looks_like(source: Source) -> bool:
    names = _names(next(iter(head_rows(source, 1)), []))
    return any(name in names for name in TEXT_COLUMNS)


def head_rows(source: Source, count: int) -> list[list[str]]:
    """The first ``count`` lines as rows; empty if they are not CSV."""
    lines = source.head.split(b"\n", count)[:count]
    try:
        return list(csv.reader(line.decode("utf-8", "replace") for line in lines))
    except csv.Error:
        return []


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _names(header: list[str]) -> list[str]:
    return [name.strip().lower() for name in header]


class _Lines:
    """The lines for csv.reader, with a bound on the length of a row.

    A row continues over line ends inside quoted fields, and csv bounds fields only. So csv.Error is
    raised if one row takes another line after ``ROW_CHARACTERS``.
    """

    def __init__(self, source: Source) -> None:
        self._lines = self._read(source)
        self._taken = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._taken > ROW_CHARACTERS:
            raise csv.Error(f"a row of over {ROW_CHARACTERS:,} characters")
        line = next(self._lines)
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


def table_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The column names in lower case, then the rows that are not blank, each with its line number."""
    csv.field_size_limit(ROW_CHARACTERS)
    lines = _Lines(source)
    rows = csv.reader(lines)
    try:
        yield 1, _names(next(rows, []))
        line = rows.line_num + 1
        for row in rows:
            if row:
                yield line, row
            line = rows.line_num + 1
            lines.row_done()
    except csv.Error as error:
        raise BadInput(source.name, f"broken CSV: {error}", f"line {rows.line_num:,}") from None


def _entries(source: Source) -> Iterator[Entry]:
    rows = table_rows(source)
    _, names = next(rows)
    text_at = next((names.index(name) for name in TEXT_COLUMNS if name in names), None)
    hash_at = next((names.index(name) for name in HASH_COLUMNS if name in names), None)
    if text_at is None:
        raise BadInput(source.name, f"no column is named {' or '.join(TEXT_COLUMNS)}", "line 1")
    for line, row in rows:
        yield _entry(row, line, text_at, hash_at)


def _entry(row: list[str], line: int, text_at: int, hash_at: int | None) -> Entry:
    if len(row) <= text_at:
        return Entry(encoded(",".join(row)), line, reject_reason=BAD_ENTRY)
    text = encoded(row[text_at])
    digits = row[hash_at].strip() if hash_at is not None and hash_at < len(row) else ""
    return entry_with_hash(text, line, parse_hash(digits)) if digits else Entry(text, line)


def encoded(text: str) -> bytes:
    """The bytes of a field in the input."""
    return text.encode("utf-8", "surrogateescape")
