"""ABI JSON: a list of entries. Also the reading of one entry, for the formats that hold ABIs.

Functions, events and errors are candidates; a constructor, fallback or receive entry has no
selector and is none. Old ABIs lack fields: an entry without a type is a function, one without
inputs has none.

Source: the Solidity documentation, "Contract ABI Specification", section JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from pipeline.candidates import Candidates, Entry, pack
from pipeline.errors import BadInput
from pipeline.formats.documents import encoded, entry_fault, is_document
from pipeline.grammar import BAD_NAME, EVENTS, FUNCTIONS, OK
from pipeline.source import Source

_WITHOUT_SELECTOR = frozenset(["constructor", "fallback", "receive"])

_COLLECTIONS = {"function": FUNCTIONS, "error": FUNCTIONS, "event": EVENTS}
NAME_PATTERN = r"[A-Za-z_$][A-Za-z0-9_$]*"
_NAME = re.compile(NAME_PATTERN)


def looks_like(source: Source) -> bool:
    return is_document(source, "[") and is_abi(source.document())


def is_abi(value: Any) -> bool:
    """Whether a JSON value is a list whose first members are ABI entries."""
    return isinstance(value, list) and all(
        isinstance(entry, dict) and ("type" in entry or "inputs" in entry) and "text_signature" not in entry
        for entry in value[:8]
    )


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not isinstance(document, list):
        raise BadInput(source.name, "not a JSON list of ABI entries")
    return pack(abi_entries(document), source.number)


def abi_entries(abi: list[Any]) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1."""
    for number, item in enumerate(abi, 1):
        if not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number)


def has_no_selector(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _WITHOUT_SELECTOR


def abi_entry(item: Any, number: int, declared: bytes = b"") -> Entry:
    """One ABI entry as a candidate. Events carry ``indexed`` and ``anonymous`` into the text."""
    if not isinstance(item, dict):
        return entry_fault(item, number)
    name, kind = item.get("name"), item.get("type")
    collection = _COLLECTIONS.get(kind) if isinstance(kind, str) else FUNCTIONS if kind is None else None
    if collection is None or not isinstance(name, str) or not name:
        return entry_fault(item, number)
    try:
        text = f"{name}({_types(item.get('inputs') or (), collection == EVENTS)})"
    except (LookupError, TypeError, ValueError, AttributeError):
        return entry_fault(item, number)
    if item.get("anonymous") is True:
        text += " anonymous"
    fault = OK if _NAME.fullmatch(name) else BAD_NAME
    return Entry(encoded(text), number, collection, declared, fault)


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


@lru_cache(maxsize=4096)
def one_type(kind: Any) -> str:
    """The type as written, if it is one: no comma outside parentheses, and these in pairs.

    What kind of type it is the grammar decides. Cached, for a whole dump has some thousand types.
    """
    depth = 0
    for character in kind:
        depth += (character == "(") - (character == ")")
        if depth < 0 or (character == "," and depth == 0):
            raise ValueError("not one type")
    if depth or not kind:
        raise ValueError("not one type")
    return str(kind)
