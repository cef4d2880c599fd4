"""An ABI entry to a candidate: the function, event or error in words.

Functions, events and errors are candidates; a constructor, fallback or receive entry has no
selector and is none. Old ABIs lack fields: an entry without a type is a function, one without
inputs has none; ``constant`` and ``payable`` stand in place of ``stateMutability``.

An entry becomes ``function transfer(address to,uint256 amount) returns (bool)``, which is then read like any other
text. What a declaration does not have is lost: compilers' internal types, and names that are no identifiers.

Source: the Solidity documentation, "Contract ABI Specification", section JSON.

What calls give back: values by the declarations of their functions, and the errors that the compiler makes.

A canonical text says what a function takes. What it returns only declarations say, and those of one text may differ:
ERC-20's `transfer` returns a bool, and many tokens declare nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import FUNCTIONS
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY, BAD_NAME, MAX_TEXT_BYTES, OK, GrammarError
from sigdir.signatures.standards import standard_declarations
from sigdir.signatures.types import (
    KINDS,
    MUTABILITIES,
    NAME_PATTERN,
    Type,
    is_parameter_name,
    one_type,
    parsed_declaration,
)

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
            if kind.startswith("tuple") and kind[5:6] in ("", "[") and "components" in item:
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
    words = " indexed" if with_indexed and parameter.get("indexed") in (True, "true") else ""
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


MAX_DECLARATIONS = 1000
"""Of one selector, the commonest."""
NOTHING = "()"


@dataclass(slots=True)
class Returned:
    """The types that a function returns as somebody declares it: `(uint256,bool)`, NOTHING for none.

    ``declaration`` is the first one with these types, and ``outputs`` has their names; ``count`` says how often they are
    declared.
    """

    text: str
    types: str
    outputs: tuple[Type, ...]
    declaration: str
    count: int = 0
    is_given: bool = False
    """Whether it stands beside the data, and not in the directory."""


def returns_of(declarations: Iterable[tuple[str, int]], *, is_given: bool = False) -> list[Returned]:
    """What functions return by their declarations, each with its count: one for each text and list of types."""
    found: dict[tuple[str, str], Returned] = {}
    for declaration, count in declarations:
        one = _returned(declaration, is_given)
        if one is not None:
            found.setdefault((one.text, one.types), one).count += count
    return list(found.values())


def _returned(declaration: str, is_given: bool) -> Returned | None:
    """What a declaration says; None for one that is no function's, or that cannot be read."""
    parsed = parsed_declaration(declaration)
    if parsed is None or parsed.kind is not Kind.FUNCTION:
        return None
    types = ",".join(one.text for one in parsed.outputs)
    return Returned(parsed.text, f"({types})", parsed.outputs, declaration, is_given=is_given)


def given_returns(texts: Iterable[str]) -> list[Returned]:
    """What the declarations say that somebody gives with the data. One without `returns` says nothing."""
    found = []
    for text in texts:
        try:
            found.append((canonicalise_one(text, FUNCTIONS, Kind.UNKNOWN).declaration, 0))
        except GrammarError:
            continue
    return [one for one in returns_of(found, is_given=True) if one.types != NOTHING]


def with_standard(selector: bytes, known: list[Returned]) -> list[Returned]:
    """What is known of a selector, and what a standard declares: of each text and list of types the first."""
    found: dict[tuple[str, str], Returned] = {}
    for one in (*known, *_standard_returns(selector)):
        found.setdefault((one.text, one.types), one)
    return list(found.values())


@lru_cache(maxsize=1024)
def _standard_returns(selector: bytes) -> tuple[Returned, ...]:
    """What a standard declares that a selector's function returns; to read it takes a fifth of a short answer's time."""
    standard = standard_declarations().get(selector)
    return tuple(returns_of([(str(standard), 0)])) if standard is not None else ()


# What a call that failed gives back.

ERROR: Final = "Error(string)"
PANIC: Final = "Panic(uint256)"

BUILT_IN: Final[Mapping[bytes, str]] = {bytes.fromhex("08c379a0"): ERROR, bytes.fromhex("4e487b71"): PANIC}
"""The errors of the language by their selectors: known in every directory."""

PANICS: Final[Mapping[int, str]] = {
    0x00: "a panic that the compiler inserted for no listed reason",
    0x01: "an assertion failed",
    0x11: "arithmetic overflow or underflow outside of an unchecked block",
    0x12: "division or modulo by zero",
    0x21: "conversion of a number that is too large or negative to an enum",
    0x22: "a storage byte array that is encoded incorrectly",
    0x31: "pop() on an empty array",
    0x32: "an index out of bounds of an array, a bytesN or a slice",
    0x41: "too much memory was allocated, or an array is too large",
    0x51: "a call of a zero-initialised variable of internal function type",
}
"""The codes of ``Panic(uint256)``, from the Solidity documentation."""

EMPTY: Final = "No data: a revert or require without a message, out of gas, an invalid opcode, or a call of an address without code."


def panic(code: int) -> str:
    """The meaning of a panic's code, as a sentence without its end."""
    return f"panic 0x{code:02x}: {PANICS.get(code, 'a code that the compiler does not use')}"
