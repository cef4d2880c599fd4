"""Etherface's signatures as CSV: the columns ``text`` and ``hash``, optionally ``kind``.

The hash has 32 bytes for functions too, so it does not tell the kinds apart. ``kind`` (function, error,
event) does if the table was joined with it.

Source: the tables ``signature`` and ``mapping_signature_*`` in Etherface's migrations.
"""

from __future__ import annotations

from collections.abc import Iterator

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.csv import KINDS, collection_of_kind, column_names, encoded, head_rows, table_rows
from sigdir.pipeline.formats.hashes import parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.evidence import LISTED
from sigdir.signatures.grammar import BAD_ENTRY


def looks_like(source: Source) -> bool:
    """Also checks the first row, because columns with these names may hold anything."""
    rows = head_rows(source, 2)
    row = dict(zip(map(str.lower, rows[0]), rows[1], strict=False)) if len(rows) == 2 else {}
    return parse_hash(row.get("hash", "")) is not None and "(" in row.get("text", "")


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    rows = table_rows(source)
    _, header = next(rows, (1, []))
    names = column_names(header)
    if not ("text" in names and "hash" in names):
        raise BadInput(source.name, "no columns text and hash", "line 1")
    text_at, hash_at = names.index("text"), names.index("hash")
    kind_at = names.index("kind") if "kind" in names else None
    for line, row in rows:
        if len(row) <= max(text_at, hash_at):
            yield Entry(encoded(",".join(row)), line, reject_reason=BAD_ENTRY)
            continue
        declared = parse_hash(row[hash_at].strip())
        kind = row[kind_at].strip() if kind_at is not None and kind_at < len(row) else ""
        text = encoded(row[text_at])
        if declared is None:
            yield Entry(text, line, reject_reason=BAD_ENTRY)
        else:
            sighting = KINDS.get(kind.lower(), LISTED)
            yield Entry(text, line, collection_of_kind(sighting.kind), declared, sighting=sighting)
