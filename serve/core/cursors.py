"""Cursors: a client's position in a collection, as a text that is valid for ever.

A cursor is the id of the last row seen. An id never changes and is never reused, so a cursor outlives every
version. Only this file knows its spelling: clients send it back as they got it.
"""

from __future__ import annotations

import re

from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection

_LETTERS: dict[Collection, str] = {SIGNATURES: "s", EVENT_SIGNATURES: "e"}


class InvalidCursor(Exception):
    """The text is not a cursor of this collection."""


def cursor_at(collection: Collection, id: int) -> str:
    """The cursor of a client that has seen all rows up to this id."""
    return f"{_LETTERS[collection]}{id:x}"


def id_of(collection: Collection, cursor: str) -> int:
    """The id of the last row seen; raises InvalidCursor."""
    if not re.fullmatch(f"{_LETTERS[collection]}(0|[1-9a-f][0-9a-f]{{0,14}})", cursor):
        raise InvalidCursor
    return int(cursor[1:], 16)
