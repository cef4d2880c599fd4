"""Hashes as inputs write them."""

from __future__ import annotations

import re

from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN

_HASH = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")


def parse_hash(text: str) -> bytes | None:
    """4 or 32 bytes from their hex digits, with or without 0x; None where it is neither."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None


def collection_of(digest: bytes) -> int:
    """The collection that a hash's length says."""
    return {4: FUNCTIONS, 32: EVENTS}.get(len(digest), UNKNOWN)
