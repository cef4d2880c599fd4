"""Hashes as inputs write them."""

from __future__ import annotations

import re
from typing import Any

from pipeline.grammar import EVENTS, FUNCTIONS, UNSAID

_HASH = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")


def parse_hash(text: str) -> bytes | None:
    """4 or 32 bytes from their hex digits, with or without 0x; None where it is neither."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None


def digest_of(value: Any) -> bytes | None:
    """4 or 32 bytes from a column of bytes or of hex digits; None where it is neither."""
    if not isinstance(value, bytes):
        return None
    return value if len(value) in (4, 32) else parse_hash(value.decode("latin-1"))


def collection_of(digest: bytes) -> int:
    """The collection that a hash's length says."""
    return {4: FUNCTIONS, 32: EVENTS}.get(len(digest), UNSAID)
