"""Texts that clients send: canonicalised, hashed, and stored in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sigdir.serve.core.writer import Writer
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise, canonicalise_one
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import Rows
from sigdir.signatures.evidence import LISTED, Kind
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.staging.rows import NewText, StagedRow

# One transaction of 200,000 rows would hold up every POST for eight seconds.
_TRANSACTION_ROWS = 500
_PAUSE_SECONDS = 0.001


class Refused(NamedTuple):
    """Why a text is not stored; ``position`` counts from 1 in bytes, 0 where the whole text is wrong."""

    reason: str
    position: int = 0


def canonical_text(collection: Collection, text: str) -> NewText:
    """Canonicalise a text for one collection; raises GrammarError, for the other collection's keyword too."""
    stated = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.UNKNOWN
    return NewText(collection, *canonicalise_one(text, collection.code, stated))


def canonical_texts(collection: Collection, texts: list[str]) -> list[NewText | Refused]:
    """Canonicalise each text; the reason in the place of each that is rejected. Half of a surrogate pair is a `?`."""
    return [_canonical_or_refused(collection, text.encode("utf-8", "replace").decode()) for text in texts]


def _canonical_or_refused(collection: Collection, text: str) -> NewText | Refused:
    try:
        return canonical_text(collection, text)
    except GrammarError as error:
        return Refused(error.reason, error.column)


def store_texts(writer: Writer, new: list[NewText]) -> list[StagedRow | None]:
    """Store texts of any number; None in the place of each that is stored already or suppressed.

    They are stored in transactions with pauses between, so that other POSTs get their turn.
    """
    stored = []
    for at in range(0, len(new), _TRANSACTION_ROWS):
        stored += writer.store(new[at : at + _TRANSACTION_ROWS])
        time.sleep(_PAUSE_SECONDS)
    return stored


def _declared(collection: Collection, rows: Rows) -> Iterator[NewText]:
    """Accepted rows with what their source says about them."""
    said = rows.sightings
    for row, text in enumerate(rows.text.to_pylist()):
        one = said.values[said.of_row[row]] if said is not None else LISTED
        yield NewText(collection, text, keccak256(text.encode()), one.kind, one.declaration)


def store_entries(writer: Writer, entries: Iterable[Entry]) -> dict[str, int]:
    """Canonicalise candidates and store what is new, functions before events; gives 4byte.directory's four counters."""
    processed = ignored = 0
    texts: dict[Collection, list[NewText]] = {collection: [] for collection in COLLECTIONS}
    for candidates in pack(entries, 0):
        result = canonicalise(candidates)
        processed += result.read
        ignored += len(result.rejected.text)
        for collection, rows in result.accepted.items():
            texts[collection] += _declared(collection, rows)
    accepted = [new for collection in COLLECTIONS for new in texts[collection]]
    allowed = [new for new in accepted if not writer.refuses(new)]
    ignored += len(accepted) - len(allowed)
    stored = store_texts(writer, allowed)
    imported = sum(row is not None for row in stored)
    return {
        "num_processed": processed,
        "num_imported": imported,
        "num_duplicates": len(stored) - imported,
        "num_ignored": ignored,
    }
