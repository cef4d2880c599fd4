"""CSV with a header that names a text column, and perhaps a hash column."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hashes import collection_of, parse_hash
from sigdir.pipeline.source import BLOCK_BYTES, Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY

TEXT_COLUMNS = ("text_signature", "signature")
HASH_COLUMNS = ("hex_signature", "hash", "selector")
ROW_CHARACTERS = 4 * BLOCK_BYTES


def looks_like(source: Source) -> bool:
    names = _names(next(iter(head_rows(source, 1)), []))
    return any(name in names for name in TEXT_COLUMNS)


def head_rows(source: Source, count: int) -> list[list[str]]:
    """The first lines as rows; none where they are no CSV."""
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
    """The lines, as csv.reader takes them.

    Of one row it may have ``ROW_CHARACTERS`` and a line: a row goes on over line ends as long as
    fields are quoted, and csv bounds a field only.
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
            # A line that was cut may have lost the quote that closes its field, and without it the
            # field would go on through the rows behind it.
            mend = '"' if len(block) >= BLOCK_BYTES and text.count("\n") == 1 and text.count('"') % 2 else ""
            yield from (line + mend + "\n" for line in text.removesuffix("\n").split("\n"))


def table_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The names of the columns in small letters, then the rows that are not blank, with their lines."""
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
    written = row[hash_at].strip() if hash_at is not None and hash_at < len(row) else ""
    if not written:
        return Entry(text, line)
    declared = parse_hash(written)
    if declared is None:
        return Entry(text, line, reject_reason=BAD_ENTRY)
    return Entry(text, line, collection_of(declared), declared)


def encoded(text: str) -> bytes:
    """Text of a field as the bytes that it was."""
    return text.encode("utf-8", "surrogateescape")
