"""Hashes in inputs, and candidates that come with one."""

from __future__ import annotations

import re

from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.grammar import BAD_ENTRY

_HASH = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")


def parse_hash(text: str) -> bytes | None:
    """4 or 32 bytes from their hex digits, with or without 0x; None for anything else."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None


def collection_of(digest: bytes) -> int:
    """The collection that a hash of this length belongs to."""
    return {4: FUNCTIONS, 32: EVENTS}.get(len(digest), UNKNOWN)


def entry_with_hash(text: bytes, line: int, declared: bytes | None) -> Entry:
    """A text with the hash that the input gives for it. The entry is rejected if the hash is None: malformed."""
    if declared is None:
        return Entry(text, line, reject_reason=BAD_ENTRY)
    return Entry(text, line, collection_of(declared), declared)
