"""A canonical text, or a declaration, as an entry of an ABI."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.types import BadDeclaration, Declaration, canonical_declaration, parse_declaration

_MAX_CHARACTERS = 4096
_MOST_INDENTED = 6  # times as long: three levels of tuples make it four times as long


def abi_json(collection: Collection, text: str) -> str | None:
    """The ABI of one entry as indented JSON; None if the text is too long or its tuples nest too deeply.

    Parts that a signature does not contain get neutral values: names are empty, a function has no outputs, no event
    parameter is indexed.
    """
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return _json(text, partial(canonical_declaration, kind=kind))


def declared_abi_json(declaration: str) -> str | None:
    """The ABI of one declaration, with its names, as indented JSON; None if there is none or it is too long."""
    return _json(declaration, parse_declaration)


def _json(text: str, read: Callable[[str], Declaration]) -> str | None:
    if len(text) > _MAX_CHARACTERS:
        return None
    try:
        return indented([read(text).abi_entry()])
    except BadDeclaration:
        return None


def indented(entries: list[dict[str, Any]]) -> str:
    """An ABI as indented JSON; in one line where it is nested so deep that it would be blanks for the most part."""
    packed, shown = orjson.dumps(entries), orjson.dumps(entries, option=orjson.OPT_INDENT_2)
    return (shown if len(shown) <= _MOST_INDENTED * len(packed) else packed).decode()
