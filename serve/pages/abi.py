"""A canonical text as an entry of an ABI. Parts that a signature does not contain get neutral values: names are
empty, a function has no outputs, no event parameter is indexed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.declaration import BadDeclaration, parse_declaration
from sigdir.signatures.types import split_types

_MAX_CHARACTERS = 4096
_MAX_DEPTH = 16
_MOST_INDENTED = 6  # times as long: three levels of tuples make it four times as long
_NAME = "%"  # stands for the name; no name contains it


def abi_json(collection: Collection, text: str) -> str | None:
    """The ABI of one entry as indented JSON; None if the text is too long or its tuples nest too deeply."""
    if len(text) > _MAX_CHARACTERS:
        return None
    name, _, parameters = text.partition("(")
    template = _template(collection, parameters)
    return template and template.replace(_NAME, name, 1)


def declared_abi_json(declaration: str) -> str | None:
    """The ABI of one declaration, with its names, as indented JSON; None if there is none or it is too long."""
    if not declaration or len(declaration) > _MAX_CHARACTERS:
        return None
    try:
        entry = parse_declaration(declaration).abi_entry()
    except BadDeclaration:
        return None
    return indented([entry])


def indented(entries: list[dict[str, Any]]) -> str:
    """An ABI as indented JSON; in one line where it is nested so deep that it would be blanks for the most part."""
    packed, shown = orjson.dumps(entries), orjson.dumps(entries, option=orjson.OPT_INDENT_2)
    return (shown if len(shown) <= _MOST_INDENTED * len(packed) else packed).decode()


@lru_cache(maxsize=4096)
def _template(collection: Collection, parameters: str) -> str | None:
    """The ABI of an entry with these parameters and a placeholder for its name. Many names share a parameter list."""
    inputs = _inputs(parameters.removesuffix(")"))
    if inputs is None:
        return None
    entry: dict[str, Any] = {"type": "function", "name": _NAME, "inputs": inputs}
    if collection == EVENT_SIGNATURES:
        event_inputs = [{**parameter, "indexed": False} for parameter in inputs]
        entry = {"type": "event", "name": _NAME, "inputs": event_inputs, "anonymous": False}
    else:
        entry |= {"outputs": [], "stateMutability": "nonpayable"}
    return indented([entry])


def _inputs(parameters: str, depth: int = 1) -> list[dict[str, Any]] | None:
    """The ABI's inputs of a type list ``a,(b,c)[]``; None if its tuples nest too deeply."""
    if depth > _MAX_DEPTH:
        return None
    inputs: list[dict[str, Any]] = []
    for text in split_types(parameters) if parameters else ():
        members, is_tuple, array = text[1:].rpartition(")")
        entry: dict[str, Any] = {"name": "", "type": f"tuple{array}" if is_tuple else text}
        if is_tuple:
            entry["components"] = _inputs(members, depth + 1)
            if entry["components"] is None:
                return None
        inputs.append(entry)
    return inputs
