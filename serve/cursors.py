"""Cursors: where a client stands in a collection, as a text that is valid for ever.

A cursor is the id of the last row that was seen, and an id never changes nor comes back, so it outlives
every version. Its spelling is nobody's business but this file's: clients hand it back as they got it.
"""

from __future__ import annotations

import re

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection

_LETTERS: dict[Collection, str] = {SIGNATURES: "s", EVENT_SIGNATURES: "e"}


class InvalidCursor(Exception):
    """The text is no cursor of this collection."""


def cursor_at(collection: Collection, id: int) -> str:
    """The cursor of a client that has seen everything up to this row."""
    return f"{_LETTERS[collection]}{id:x}"


def id_of(collection: Collection, cursor: str) -> int:
    """The id that a cursor stands at; raises InvalidCursor."""
    if not re.fullmatch(f"{_LETTERS[collection]}(0|[1-9a-f][0-9a-f]{{0,14}})", cursor):
        raise InvalidCursor
    return int(cursor[1:], 16)
