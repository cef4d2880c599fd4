"""Texts that clients send: the candidates of an ABI or of Solidity, canonicalised, hashed, and stored in batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from sigdir.pipeline.formats.solidity import MAX_TOKENS, declarations, has_too_many_tokens
from sigdir.serve.core.writer import Writer
from sigdir.serve.http.bodies import Upload, loads, text_field
from sigdir.serve.http.errors import field_error
from sigdir.signatures.abi import abi_entries as entries_of_abi
from sigdir.signatures.abi import has_no_selector
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise, canonicalise_one
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import Rows
from sigdir.signatures.evidence import LISTED, Kind
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.staging.transaction import NewText, StagedRow


def abi_entries(text: str) -> list[Entry]:
    """The candidates of an ABI, or of a compiler's artifact, given as JSON text; raises HttpError.

    ABIs that 4byte.directory refuses are accepted too: errors, receive entries, functions without outputs.
    """
    try:
        abi = loads(text)
    except (ValueError, RecursionError):
        raise field_error("contract_abi", "Invalid JSON") from None
    if isinstance(abi, dict):
        abi = abi.get("abi")
    if not isinstance(abi, list) or not all(map(_is_abi_entry, abi)):
        raise field_error("contract_abi", "Could not validate ABI")
    return list(entries_of_abi(abi))


def _is_abi_entry(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.setdefault("type", "function")
    if has_no_selector(kind):
        return True
    if kind not in ("function", "event", "error") or not isinstance(item.get("name"), str) or not item["name"]:
        return False
    inputs = item.get("inputs")
    return isinstance(inputs, list) and all(isinstance(i, dict) and isinstance(i.get("type"), str) for i in inputs)


def solidity_entries(fields: dict[str, Any]) -> list[Entry]:
    """The candidates of ``source_code`` and ``source_file``; raises HttpError. Both may be missing."""
    sources: dict[str, bytes] = {}
    if "source_code" in fields:
        sources["source_code"] = text_field(fields, "source_code").encode("utf-8", "replace")
    if "source_file" in fields:
        sources["source_file"] = _source_file(fields["source_file"])
    for field, code in sources.items():
        if has_too_many_tokens(code):
            raise field_error(field, f"Ensure this source has at most {MAX_TOKENS} words and marks.")
    return [entry for code in sources.values() for entry in declarations(code)]


def _source_file(value: Any) -> bytes:
    if value is None:
        raise field_error("source_file", "This field may not be null.")
    if not isinstance(value, Upload):
        text = "The submitted data was not a file. Check the encoding type on the form."
        raise field_error("source_file", text)
    if not value.data:
        raise field_error("source_file", "The submitted file is empty.")
    return value.data


# One transaction of 200,000 rows would hold up every POST for eight seconds.
_TRANSACTION_ROWS = 500
_PAUSE_SECONDS = 0.001


def canonical_text(collection: Collection, text: str) -> NewText:
    """Canonicalise a text for one collection; raises GrammarError, for the other collection's keyword too."""
    stated = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.UNKNOWN
    return NewText(collection, *canonicalise_one(text, collection.code, stated))


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
        one = said[row] if said is not None else LISTED
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
