"""A canonical text as an entry of an ABI. What a signature does not tell is filled in: names are empty, outputs
are left out, and nothing is indexed."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import orjson

from sigdir.signatures.collections import EVENT_SIGNATURES, Collection

_MAX_CHARACTERS = 4096
_MAX_DEPTH = 16
_NAME = "%"  # in no text


def abi_json(collection: Collection, text: str) -> str | None:
    """The ABI of one entry as indented JSON; None where tuples nest too deeply for it to be of use."""
    if len(text) > _MAX_CHARACTERS:
        return None
    name, _, parameters = text.partition("(")
    told = _json_of(collection, parameters)
    return told and told.replace(_NAME, name, 1)


@lru_cache(maxsize=4096)
def _json_of(collection: Collection, parameters: str) -> str | None:
    """The ABI of an entry with these parameters; names differ, lists of parameters hardly do."""
    inputs = _inputs(parameters)
    if inputs is None:
        return None
    entry: dict[str, Any] = {"type": "function", "name": _NAME, "inputs": inputs}
    if collection == EVENT_SIGNATURES:
        entry = {"type": "event", "name": _NAME, "inputs": [_of_event(i) for i in inputs], "anonymous": False}
    else:
        entry |= {"outputs": [], "stateMutability": "nonpayable"}
    return orjson.dumps([entry], option=orjson.OPT_INDENT_2).decode()


def _of_event(parameter: dict[str, Any]) -> dict[str, Any]:
    return {**parameter, "indexed": False}


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
