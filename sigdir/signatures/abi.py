"""An ABI entry to a candidate: the text of a function, event or error, and what the entry says about it.

Functions, events and errors are candidates; a constructor, fallback or receive entry has no
selector and is none. Old ABIs lack fields: an entry without a type is a function, one without
inputs has none.

Source: the Solidity documentation, "Contract ABI Specification", section JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.declaration import declaration_of
from sigdir.signatures.evidence import Contract, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, BAD_NAME, MAX_TEXT_BYTES, OK
from sigdir.signatures.types import one_type

_WITHOUT_SELECTOR = frozenset(["constructor", "fallback", "receive"])

_COLLECTIONS = {"function": FUNCTIONS, "error": FUNCTIONS, "event": EVENTS}
NAME_PATTERN = r"[A-Za-z_$][A-Za-z0-9_$]*"
_NAME = re.compile(NAME_PATTERN)


def abi_entries(abi: list[Any]) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1."""
    for number, item in enumerate(abi, 1):
        if not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number)


def has_no_selector(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _WITHOUT_SELECTOR


def abi_entry(item: Any, number: int, declared: bytes = b"", contract: Contract | None = None) -> Entry:
    """One ABI entry as a candidate. Events carry ``indexed`` and ``anonymous`` into the text.

    ``contract`` is the one whose ABI it is, where that is known.
    """
    if not isinstance(item, dict):
        return rejected_entry(item, number)
    name, kind = item.get("name"), item.get("type")
    collection = _COLLECTIONS.get(kind) if isinstance(kind, str) else FUNCTIONS if kind is None else None
    if collection is None or not isinstance(name, str) or not name:
        return rejected_entry(item, number)
    try:
        text = f"{name}({_types(item.get('inputs') or (), collection == EVENTS)})"
    except (LookupError, TypeError, ValueError, AttributeError):
        return rejected_entry(item, number)
    if item.get("anonymous") is True:
        text += " anonymous"
    if not _NAME.fullmatch(name):
        return Entry(encoded(text), number, collection, declared, BAD_NAME)
    spelled = declaration_of(item)
    sighting = Sighting(spelled.kind, Witness.DECLARED, spelled.declaration, contract)
    return Entry(encoded(text), number, collection, declared, OK, sighting)


def _types(inputs: Any, with_indexed: bool) -> str:
    """The parameter list of ``inputs``; raises TypeError or ValueError for a wrong shape.

    Tuples nest as deep as the JSON does, so they are walked with a stack.
    """
    parts: list[str] = []
    open_lists = [iter(_list(inputs))]
    suffixes = [""]
    while True:
        for item in open_lists[-1]:
            kind = item["type"]
            if parts and parts[-1] != "(":
                parts.append(",")
            if kind.startswith("tuple") and "components" in item:
                parts.append("(")
                open_lists.append(iter(_list(item["components"])))
                suffixes.append(kind[5:] + (" indexed" if with_indexed and item.get("indexed") else ""))
                break
            parts.append(one_type(kind))
            if with_indexed and item.get("indexed"):
                parts.append(" indexed")
        else:
            open_lists.pop()
            if not open_lists:
                return "".join(parts)
            parts.append(")" + suffixes.pop())


def _list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise TypeError("not a list")
    return value


def encoded(text: str) -> bytes:
    """Text of a JSON string as bytes; a lone surrogate becomes bytes that are no UTF-8."""
    return text.encode("utf-8", "surrogatepass")


def rejected_entry(value: Any, number: int) -> Entry:
    """An entry that is not of the format's shape, shown as the JSON it was."""
    try:
        shown = json.dumps(value)
    except RecursionError:
        shown = "(nested too deeply to be shown)"
    return Entry(shown.encode()[:MAX_TEXT_BYTES], number, reject_reason=BAD_ENTRY)
