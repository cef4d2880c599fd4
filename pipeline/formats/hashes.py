"""Hashes in inputs, and candidates that come with one."""

from __future__ import annotations

import re

from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.evidence import LISTED, LISTED_EVENT, Sighting
from sigdir.signatures.grammar import BAD_ENTRY, GrammarError, normalise
from sigdir.signatures.keccak import keccak256

_HASH = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")


def parse_hash(text: str) -> bytes | None:
    """4 or 32 bytes from their hex digits, with or without 0x; None for anything else."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None


def is_hash_of(declared: bytes, text: bytes) -> bool:
    """Whether a hash of 4 or 32 bytes is that of a text."""
    try:
        signature = normalise(text, collection_of(declared))
    except GrammarError:
        return False
    return keccak256(signature.text.encode()).startswith(declared)


def collection_of(digest: bytes) -> int:
    """The collection that a hash of this length belongs to."""
    return {4: FUNCTIONS, 32: EVENTS}.get(len(digest), UNKNOWN)


def listed(collection: int) -> Sighting:
    """What a list says about a text of a collection: an event is one, a function may be an error."""
    return LISTED_EVENT if collection == EVENTS else LISTED


def entry_with_hash(text: bytes, line: int, declared: bytes | None, collection: int = UNKNOWN) -> Entry:
    """A text with the hash that the input gives for it, whose length tells the collection where nothing else does.

    The entry is rejected if the hash is None: malformed.
    """
    if declared is None:
        return Entry(text, line, reject_reason=BAD_ENTRY)
    collection = collection or collection_of(declared)
    return Entry(text, line, collection, declared, sighting=listed(collection))
