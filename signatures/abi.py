"""An ABI entry to a candidate: the function, event or error in words.

Functions, events and errors are candidates; a constructor, fallback or receive entry has no
selector and is none. Old ABIs lack fields: an entry without a type is a function, one without
inputs has none; ``constant`` and ``payable`` stand in place of ``stateMutability``.

An entry becomes ``function transfer(address to,uint256 amount) returns (bool)``, which is then read like any other
text. What a declaration does not have is lost: compilers' internal types, and names that are no identifiers.

Source: the Solidity documentation, "Contract ABI Specification", section JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import FUNCTIONS
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, BAD_NAME, MAX_TEXT_BYTES, OK
from sigdir.signatures.types import KINDS, MUTABILITIES, NAME_PATTERN, is_parameter_name, one_type

_WITHOUT_SELECTOR = frozenset(["constructor", "fallback", "receive"])

_NAME = re.compile(NAME_PATTERN)


def abi_entries(abi: list[Any]) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1."""
    for number, item in enumerate(abi, 1):
        if not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number)


def has_no_selector(kind: Any) -> bool:
    return isinstance(kind, str) and kind in _WITHOUT_SELECTOR


def abi_entry(item: Any, number: int, declared: bytes = b"", contract: Contract | None = None) -> Entry:
    """One ABI entry as a candidate. ``contract`` is the one whose ABI it is, where that is known."""
    kind = KINDS.get(_word(item), Kind.UNKNOWN)
    return _entry(item, number, declared, Sighting(kind or Kind.FUNCTION, Witness.DECLARED, contract=contract))


def listed_entry(item: Any, number: int, declared: bytes = b"") -> Entry:
    """One entry of a list that has the shape of an ABI: its text and its kind, without what only an ABI says."""
    return _entry(item, number, declared, Sighting(KINDS.get(_word(item), Kind.UNKNOWN)))


def _word(item: Any) -> str:
    word = item.get("type") if isinstance(item, dict) else None
    return word if isinstance(word, str) else ""


def _entry(item: Any, number: int, declared: bytes, sighting: Sighting) -> Entry:
    name = item.get("name") if isinstance(item, dict) else None
    kind, is_event = sighting.kind, sighting.kind is Kind.EVENT
    if not isinstance(name, str) or not name or (item.get("type") is not None and _word(item) not in KINDS):
        return rejected_entry(item, number)
    is_listed = sighting.witness is Witness.LISTED
    try:
        text = f"{name}({_list_of(item.get('inputs') or (), is_event, with_names=not is_listed)})"
    except _WRONG_SHAPE:
        return rejected_entry(item, number)
    if not is_listed:
        text = f"{kind.name.lower()} {text}"
    if is_event and item.get("anonymous") is True:
        text += " anonymous"
    elif kind is Kind.FUNCTION and not is_listed:
        text += _mutability(item) + _returns(item.get("outputs"))
    reason = OK if _NAME.fullmatch(name) else BAD_NAME
    return Entry(encoded(text), number, kind.collection or FUNCTIONS, declared, reason, sighting)


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
