"""Rows with a signature: one JSON object a line, or pages, or a list of either, as 4byte.directory's.

``tables.py`` knows by the first rows which member has the text and which its hash. A page has rows under ``results``.
A row of another directory of this project may have EVIDENCE_FIELDS: what is known there of its text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from sigdir.pipeline.formats.json_lists import holds_objects
from sigdir.pipeline.formats.json_reader import document_of, first_object, first_values, is_document, is_json, values_of
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Columns, Table
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import MOST_CONTRACTS, Kind, Witness
from sigdir.signatures.grammar import OK, GrammarError

_MOST_NAMES = 1024
"""Of members that are looked at."""
_SHOWN_CHARACTERS = 300


def looks_like(source: Source) -> bool:
    """Rows of a table, or an empty page. What has objects inside may be anything, unless the name is clear."""
    if not is_json(source):
        return False
    values = _first_values(source)
    rows = _first_rows(values)
    head = _head(rows, source)
    if head.columns() is None:
        return bool(values) and isinstance(values[0], dict) and values[0].get("results") == []
    return "text_signature" in head.names or not any(map(holds_objects, chain(*head.rows)))


def entries(source: Source) -> Iterator[Entry]:
    reader = _reader(source)
    if first_object(source) is None and is_json(source):
        return _document_entries(document_of(source), reader)
    return _line_entries(source, reader)


def is_by_line(source: Source) -> bool:
    """Whether the input is JSON lines, and no document."""
    return first_object(source) is not None


# The first rows, which say what the members are.


def head_table(source: Source) -> Table:
    """The first rows as a table."""
    return _head(_first_rows(_first_values(source)), source)


def _first_values(source: Source) -> list[Any]:
    """The values of the first lines, or those of the document."""
    if first_object(source) is not None:
        return first_values(source, SAMPLE_ROWS)
    if not is_document(source):
        return []
    document = document_of(source)
    return document[:SAMPLE_ROWS] if isinstance(document, list) else [document]


def _first_rows(values: list[Any]) -> list[dict[str, Any]]:
    rows = (row for value in values for row in _rows(value) if isinstance(row, dict))
    return list(islice(rows, SAMPLE_ROWS))


def _head(rows: list[dict[str, Any]], source: Source) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in islice(row, _MOST_NAMES)))[:_MOST_NAMES]
    return Table(names, [[row.get(name) for name in names] for row in rows], source.columns)


class _Reader(NamedTuple):
    """The names of the members, and which of them is what."""

    columns: Columns
    names: Sequence[str]

    def entry(self, row: Any, number: int) -> Entry:
        columns, names = self.columns, self.names
        text = row.get(names[columns.text]) if isinstance(row, dict) else None
        if not isinstance(text, str):
            return rejected_entry(row, number)
        written = [digits for at in columns.hashes if (digits := row.get(names[at])) is not None]
        kind = None if columns.kind is None else row.get(names[columns.kind])
        entry = columns.entry(encoded(text), number, written, kind)
        if not written or entry.reject_reason != OK or row.keys().isdisjoint(EVIDENCE_FIELDS):
            return entry
        return _with_evidence(entry, row)


_PLAIN = _Reader(Columns(0, (1,)), ("text_signature", "hex_signature"))
"""Reads 4byte.directory's rows, and rejects all else."""


def _reader(source: Source) -> _Reader:
    """Raises BadInput, which shows the first object, for objects in doubt."""
    rows = _first_rows(_first_values(source)) if is_json(source) else []
    if not rows:
        return _PLAIN
    head = _head(rows, source)
    first = rejected_entry(rows[0], 1).text.decode()
    shown = first if len(first) <= _SHOWN_CHARACTERS else first[:_SHOWN_CHARACTERS] + "..."
    return _Reader(head.sure_columns(source, shown), head.names)


# All rows.


def _document_entries(document: Any, reader: _Reader) -> Iterator[Entry]:
    number = 0
    for value in document if isinstance(document, list) else [document]:
        for row in _rows(value):
            number += 1
            yield reader.entry(row, number)


def _line_entries(source: Source, reader: _Reader) -> Iterator[Entry]:
    for number, value in values_of(source.lines()):
        if isinstance(value, Entry):
            yield value
        else:
            for row in _rows(value):
                yield reader.entry(row, number)


def _rows(value: Any) -> list[Any]:
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        rows: list[Any] = value["results"]
        return rows
    return [value]


EVIDENCE_FIELDS = ("declaration", "kinds", "witness", "contracts")


def _with_evidence(entry: Entry, row: dict[str, Any]) -> Entry:
    """The entry with what its row says beyond the text. Values that do not fit are left out.

    What bytecode proves to another directory is declared here: we have not seen the bytecode.
    """
    said, kinds, contracts = entry.sighting, row.get("kinds"), row.get("contracts")
    if row.get("witness") in ("declared", "compiled"):
        said = said._replace(witness=Witness.DECLARED)
    if isinstance(kinds, list) and len(kinds) == 1 and kinds[0] in _KINDS.get(entry.declared_kind, ()):
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
        return canonicalise_one(declaration, entry.declared_kind).text.encode() == entry.text
    except GrammarError:
        return False
