"""The two imports over HTTP: an ABI or a Solidity file becomes candidates, judged as a file's are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from sigdir.pipeline.formats.solidity import MAX_TOKENS, declarations, has_too_many_tokens
from sigdir.serve.http.bodies import Upload, loads
from sigdir.serve.http.errors import field_error
from sigdir.serve.writer import Writer
from sigdir.signatures.abi import abi_entry, has_no_selector
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.grammar import OK, normalise_rows
from sigdir.signatures.keccak import keccak256, keccak256_rows
from sigdir.warehouse.staging import NewText, StagedRow

_AT_ONCE = 500


def abi_entries(text: str) -> list[Entry]:
    """The candidates of an ABI given as JSON text; raises HttpError.

    ABIs of today are accepted too: errors, receive entries, functions without outputs.
    """
    try:
        abi = loads(text)
    except (ValueError, RecursionError):
        raise field_error("contract_abi", "Invalid JSON") from None
    if not isinstance(abi, list) or not all(map(_is_abi_entry, abi)):
        raise field_error("contract_abi", "Could not validate ABI")
    return [abi_entry(item, number) for number, item in enumerate(abi, 1) if not has_no_selector(item["type"])]


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
    """The candidates of ``source_code`` and ``source_file``; raises HttpError. Neither is fine."""
    sources = []
    if "source_code" in fields:
        value = fields["source_code"]
        if value is None:
            raise field_error("source_code", "This field may not be null.")
        text = (value.data.decode("utf-8", "replace") if isinstance(value, Upload) else str(value)).strip()
        if not text:
            raise field_error("source_code", "This field may not be blank.")
        sources.append(_checked("source_code", text.encode("utf-8", "replace")))
    if "source_file" in fields:
        value = fields["source_file"]
        if not isinstance(value, Upload):
            if value is None:
                raise field_error("source_file", "This field may not be null.")
            text = "The submitted data was not a file. Check the encoding type on the form."
            raise field_error("source_file", text)
        if not value.data:
            raise field_error("source_file", "The submitted file is empty.")
        sources.append(_checked("source_file", value.data))
    return [entry for code in sources for entry in declarations(code)]


def _checked(field: str, code: bytes) -> bytes:
    if has_too_many_tokens(code):
        raise field_error(field, f"Ensure this source has at most {MAX_TOKENS} words and marks.")
    return code


def store(writer: Writer, entries: Iterable[Entry]) -> dict[str, int]:
    """Judge the candidates and stage what is new, functions before events; gives the four counters."""
    processed = ignored = 0
    texts: dict[Collection, list[NewText]] = {collection: [] for collection in COLLECTIONS}
    for candidates in pack(entries, 0):
        result = canonicalise(candidates)
        processed += result.read
        ignored += len(result.rejected.text)
        for collection, rows in result.accepted.items():
            texts[collection] += [NewText(collection, text, keccak256(text.encode())) for text in rows.text.to_pylist()]
    stored = store_texts(writer, [new for collection in COLLECTIONS for new in texts[collection]])
    imported = sum(row is not None for row in stored)
    return {
        "num_processed": processed,
        "num_imported": imported,
        "num_duplicates": len(stored) - imported,
        "num_ignored": ignored,
    }


def store_texts(writer: Writer, new: list[NewText]) -> list[StagedRow | None]:
    """Stage texts of any number; None in the place of each that is stored already."""
    # In several transactions with room between: one of 200,000 rows would hold up every POST for eight seconds.
    stored = []
    for at in range(0, len(new), _AT_ONCE):
        stored += writer.store(new[at : at + _AT_ONCE])
        time.sleep(0.001)
    return stored


def new_texts(collection: Collection, texts: list[str]) -> list[NewText | None]:
    """Each text normalised for the collection, as ``new_text`` does one; None in the place of each refused."""
    code = collection.code
    found: list[NewText | None] = []
    for rows in pack((Entry(text.encode("utf-8", "replace"), 0) for text in texts), 0):
        said = np.full(len(rows), code, np.uint8)
        result = normalise_rows(rows.data, rows.starts, rows.ends, said, code)
        digests = keccak256_rows(result.data, result.offsets)
        fine = (result.reasons == OK) & (result.collections == code)
        data, ends = result.data.tobytes(), result.offsets.tolist()
        for row, is_fine in enumerate(fine.tolist()):
            text = data[ends[row] : ends[row + 1]].decode()
            found.append(NewText(collection, text, digests[row].tobytes()) if is_fine else None)
    return found
