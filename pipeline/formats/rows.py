"""4byte.directory's rows: one JSON object a line, or pages, or a list of either.

A row has ``text_signature`` and usually ``hex_signature``. A page has rows under ``results``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.formats.documents import is_document, is_json
from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.formats.json_lines import first_object, lines_of_json, packed
from sigdir.pipeline.source import Source, line_pieces
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack


def looks_like(source: Source) -> bool:
    return is_json(source) and _is_row_or_page(_first(source))


def read(source: Source) -> Iterator[Candidates]:
    if first_object(source) is None and is_json(source):
        return pack(_document_entries(source.document()), source.number)
    return packed(_line_entries(source), source)


def pieces(source: Source) -> list[range]:
    """The pieces of JSON lines; none of a document."""
    return line_pieces(source) if first_object(source) is not None else []


def _first(source: Source) -> Any:
    """The first line's object, the document, or the first member of its list."""
    value: Any = first_object(source)
    if value is None and is_document(source):
        value = source.document()
        if isinstance(value, list):
            value = value[0] if value else None
    return value


def _is_row_or_page(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    rows = value.get("results")
    return "text_signature" in value or (isinstance(rows, list) and (not rows or any(map(_is_row, rows))))


def _is_row(value: Any) -> bool:
    return isinstance(value, dict) and "text_signature" in value


def _document_entries(document: Any) -> Iterator[Entry]:
    number = 0
    for value in document if isinstance(document, list) else [document]:
        for row in _rows(value):
            number += 1
            yield _entry(row, number)


def _line_entries(source: Source) -> Iterator[Entry]:
    for number, value in lines_of_json(source):
        if isinstance(value, Entry):
            yield value
        else:
            for row in _rows(value):
                yield _entry(row, number)


def _rows(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        rows: list[Any] = value["results"]
        return rows
    return [value]


def _entry(row: Any, number: int) -> Entry:
    text = row.get("text_signature") if isinstance(row, dict) else None
    if not isinstance(text, str):
        return rejected_entry(row, number)
    digits = row.get("hex_signature")
    if digits is None:
        return Entry(encoded(text), number)
    return entry_with_hash(encoded(text), number, parse_hash(digits) if isinstance(digits, str) else None)
