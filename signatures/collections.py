"""The two collections: everything that differs between functions and events, in one place."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, Self

# The numbers by which the compiled kernels know what a text is.
UNKNOWN: Final = 0
"""The input does not state the kind."""
FUNCTIONS: Final = 1
EVENTS: Final = 2


class Collection(StrEnum):
    """A collection of signatures; its value is its name in URLs, in the table's partitions and in the log.

    Functions and custom errors share ``signatures``: both are found by the first four bytes of the hash.
    """

    SIGNATURES = "signatures", FUNCTIONS, 4, "signatures", "Signature"
    EVENT_SIGNATURES = "event-signatures", EVENTS, 32, "event_signatures", "Event Signature"

    code: int
    """Its number in the compiled kernels."""
    hash_bytes: int
    """How much of the keccak-256 digest it keeps: a selector, or the whole topic."""
    view_name: str
    """Its view in SQL."""
    row_title: str
    """What 4byte.directory's API calls one of its rows."""

    def __new__(cls, value: str, code: int, hash_bytes: int, view_name: str, row_title: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.code, member.hash_bytes = code, hash_bytes
        member.view_name, member.row_title = view_name, row_title
        return member

    @classmethod
    def of_code(cls, code: int) -> Collection:
        """The collection of a kernel's number; raises KeyError for UNKNOWN."""
        return _BY_CODE[code]

    @classmethod
    def of_name(cls, name: str) -> Collection:
        """The collection of a name in a URL, a partition or the log; raises KeyError."""
        return _BY_NAME[name]

    @classmethod
    def of_hash(cls, hash: bytes) -> Collection:
        """The collection of a selector (4 bytes) or a topic (32 bytes)."""
        return SIGNATURES if len(hash) == SIGNATURES.hash_bytes else EVENT_SIGNATURES


SIGNATURES: Final = Collection.SIGNATURES
EVENT_SIGNATURES: Final = Collection.EVENT_SIGNATURES
COLLECTIONS: Final = (SIGNATURES, EVENT_SIGNATURES)
_BY_CODE: Final = {collection.code: collection for collection in COLLECTIONS}
_BY_NAME: Final = {collection.value: collection for collection in COLLECTIONS}
_HASH: Final = re.compile(r"(?:0[xX])?([0-9a-fA-F]{8}(?:[0-9a-fA-F]{56})?)")


def parse_hash(text: str) -> bytes | None:
    """A selector or a topic, 4 or 32 bytes, from its hex digits, with or without 0x; None for anything else."""
    found = _HASH.fullmatch(text)
    return bytes.fromhex(found[1]) if found else None
