"""4byte.directory's rows: one JSON object a line, or pages, or a list of either.

A row has ``text_signature`` and usually ``hex_signature``. A page has rows under ``results``. A row of another directory
of this project may have EVIDENCE_FIELDS: what is known there of its text.
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
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import OK, GrammarError
from sigdir.signatures.rank import MOST_CONTRACTS


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
    entry = entry_with_hash(encoded(text), number, parse_hash(digits) if isinstance(digits, str) else None)
    return entry if entry.reject_reason != OK or row.keys().isdisjoint(EVIDENCE_FIELDS) else _with_evidence(entry, row)


EVIDENCE_FIELDS = ("declaration", "kinds", "witness", "contracts")


def _with_evidence(entry: Entry, row: dict[str, Any]) -> Entry:
    """The entry with what its row says beyond the text. Values that do not fit are left out.

    What bytecode proves to another directory is declared here: we have not seen the bytecode.
    """
    said, kinds, contracts = entry.sighting, row.get("kinds"), row.get("contracts")
    if row.get("witness") in ("declared", "compiled"):
        said = said._replace(witness=Witness.DECLARED)
    if isinstance(kinds, list) and len(kinds) == 1 and kinds[0] in _KINDS[entry.declared_kind]:
        said = said._replace(kind=Kind[kinds[0].upper()])
    if type(contracts) is int and 0 < contracts <= MOST_CONTRACTS:
        said = said._replace(contracts=contracts)
    declaration = row.get("declaration")
    if isinstance(declaration, str) and _declares(declaration, entry):
        # The text of a candidate may be its declaration, which is then read with it.
        return entry._replace(text=declaration.encode(), sighting=said)
    return entry._replace(sighting=said)


_KINDS = {FUNCTIONS: ("function", "error"), EVENTS: ("event",)}


def _declares(declaration: str, entry: Entry) -> bool:
    try:
        return canonicalise_one(declaration, entry.declared_kind)[0].encode() == entry.text
    except GrammarError:
        return False
