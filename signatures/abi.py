"""An ABI entry to a candidate: the text of a function, event or error, and what the entry says about it.

Functions, events and errors are candidates; a constructor, fallback or receive entry has no
selector and is none. Old ABIs lack fields: an entry without a type is a function, one without
inputs has none; ``constant`` and ``payable`` stand in place of ``stateMutability``.

``declaration_of`` spells an entry as ``function transfer(address to, uint256 amount) returns (bool)``. What a
declaration does not have is lost: compilers' internal types, and names that are no identifiers.

Source: the Solidity documentation, "Contract ABI Specification", section JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import Spelled, spelled
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import LISTED, Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, BAD_NAME, MAX_TEXT_BYTES, OK
from sigdir.signatures.types import KINDS, MUTABILITIES, NAME_PATTERN, is_parameter_name, one_type

_WITHOUT_SELECTOR = frozenset(["constructor", "fallback", "receive"])

_COLLECTIONS = {"function": FUNCTIONS, "error": FUNCTIONS, "event": EVENTS}
_LISTED: dict[str | None, Sighting] = {None: LISTED} | {word: Sighting(kind) for word, kind in KINDS.items()}
_NAME = re.compile(NAME_PATTERN)


def abi_entries(abi: list[Any]) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1."""
    for number, item in enumerate(abi, 1):
        if not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number)


def has_no_selector(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _WITHOUT_SELECTOR


def abi_entry(item: Any, number: int, declared: bytes = b"", contract: Contract | None = None) -> Entry:
    """One ABI entry as a candidate with its declaration. ``contract`` is the one whose ABI it is, where that is known."""
    entry = listed_entry(item, number, declared)
    if entry.reject_reason != OK:
        return entry
    found = declaration_of(item)
    return entry._replace(sighting=Sighting(found.kind, Witness.DECLARED, found.declaration, contract))


def listed_entry(item: Any, number: int, declared: bytes = b"") -> Entry:
    """The text of one ABI entry, and its kind. Events carry ``indexed`` and ``anonymous`` into the text."""
    if not isinstance(item, dict):
        return rejected_entry(item, number)
    name, kind = item.get("name"), item.get("type")
    collection = _COLLECTIONS.get(kind) if isinstance(kind, str) else FUNCTIONS if kind is None else None
    if collection is None or not isinstance(name, str) or not name:
        return rejected_entry(item, number)
    try:
        text = f"{name}({_list_of(item.get('inputs') or (), collection == EVENTS)})"
    except _WRONG_SHAPE:
        return rejected_entry(item, number)
    if item.get("anonymous") is True:
        text += " anonymous"
    if not _NAME.fullmatch(name):
        return Entry(encoded(text), number, collection, declared, BAD_NAME)
    return Entry(encoded(text), number, collection, declared, OK, _LISTED[kind])


def declaration_of(item: dict[str, Any]) -> Spelled:
    """The kind of an ABI entry and its declaration, which is empty if the entry has none of the specification's shape."""
    word = item.get("type", "function")
    kind = KINDS.get(word, Kind.UNKNOWN) if isinstance(word, str) else Kind.UNKNOWN
    name = item.get("name")
    if kind == Kind.UNKNOWN or not isinstance(name, str) or not _NAME.fullmatch(name):
        return Spelled(kind, "")
    try:
        text = f"{word} {name}({_list_of(item.get('inputs') or (), kind == Kind.EVENT, with_names=True)})"
    except _WRONG_SHAPE:
        return Spelled(kind, "")
    if kind == Kind.EVENT and item.get("anonymous") is True:
        text += " anonymous"
    elif kind == Kind.FUNCTION:
        text += _mutability(item) + _returns(item.get("outputs"))
    return spelled(text, kind)


def _mutability(item: dict[str, Any]) -> str:
    written = item.get("stateMutability")
    if isinstance(written, str):
        return f" {written}" if written in MUTABILITIES else ""
    return " view" if item.get("constant") is True else " payable" if item.get("payable") is True else ""


def _returns(outputs: Any) -> str:
    """The list of returns, empty if it is of a wrong shape: the declaration says the rest."""
    try:
        return f" returns ({_list_of(outputs, False, with_names=True)})" if outputs else ""
    except _WRONG_SHAPE:
        return ""


_WRONG_SHAPE = (LookupError, TypeError, ValueError, AttributeError)
"""What ``_list_of`` raises for another shape than the specification's."""


def _list_of(parameters: Any, with_indexed: bool, with_names: bool = False) -> str:
    """Parameters in words.

    Tuples nest as deep as the JSON does, so they are walked with a stack.
    """
    parts: list[str] = []
    open_lists = [iter(_checked(parameters))]
    suffixes = [""]
    while True:
        for item in open_lists[-1]:
            kind, words = item["type"], _words(item, with_indexed, with_names)
            if parts and parts[-1] != "(":
                parts.append(",")
            if kind.startswith("tuple") and "components" in item:
                parts.append("(")
                open_lists.append(iter(_checked(item["components"])))
                suffixes.append(kind[5:] + words)
                break
            parts.append(one_type(kind) + words)
        else:
            open_lists.pop()
            if not open_lists:
                return "".join(parts)
            parts.append(")" + suffixes.pop())


def _words(parameter: dict[str, Any], with_indexed: bool, with_names: bool) -> str:
    """What follows a parameter's type."""
    words = " indexed" if with_indexed and parameter.get("indexed") else ""
    if with_names and is_parameter_name(name := parameter.get("name")):
        words += f" {name}"
    return words


def _checked(value: Any) -> Any:
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
