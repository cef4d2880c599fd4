"""A canonical text as an entry of an ABI. Parts that a signature does not contain get neutral values: names are
empty, a function has no outputs, no event parameter is indexed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from sigdir.signatures.collections import EVENT_SIGNATURES, Collection

_MAX_CHARACTERS = 4096
_MAX_DEPTH = 16
_NAME = "%"  # stands for the name; no name contains it


def abi_json(collection: Collection, text: str) -> str | None:
    """The ABI of one entry as indented JSON; None if the text is too long or its tuples nest too deeply."""
    if len(text) > _MAX_CHARACTERS:
        return None
    name, _, parameters = text.partition("(")
    template = _template(collection, parameters)
    return template and template.replace(_NAME, name, 1)


@lru_cache(maxsize=4096)
def _template(collection: Collection, parameters: str) -> str | None:
    """The ABI of an entry with these parameters and a placeholder for its name. Many names share a parameter list."""
    inputs = _inputs(parameters)
    if inputs is None:
        return None
    entry: dict[str, Any] = {"type": "function", "name": _NAME, "inputs": inputs}
    if collection == EVENT_SIGNATURES:
        event_inputs = [{**parameter, "indexed": False} for parameter in inputs]
        entry = {"type": "event", "name": _NAME, "inputs": event_inputs, "anonymous": False}
    else:
        entry |= {"outputs": [], "stateMutability": "nonpayable"}
    return orjson.dumps([entry], option=orjson.OPT_INDENT_2).decode()


def _inputs(parameters: str) -> list[dict[str, Any]] | None:
    """The parameters of ``a,(b,c)[],d)``, or None."""
    lists: list[list[dict[str, Any]]] = [[]]
    word = ""
    for character in parameters:
        if character == "(":
            if len(lists) == _MAX_DEPTH:
                return None
            lists.append([])
        elif character in ",)":
            if word:
                _end(lists[-1], word)
            word = ""
            if character == ")" and len(lists) > 1:
                components = lists.pop()
                lists[-1].append({"name": "", "type": "tuple", "components": components})
        else:
            word += character
    return lists[0]


def _end(parameters: list[dict[str, Any]], word: str) -> None:
    """A word ends: a type, or the array behind a tuple."""
    if word.startswith("["):
        parameters[-1]["type"] += word
    else:
        parameters.append({"name": "", "type": word})
