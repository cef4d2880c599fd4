"""What calls give back: values by the declarations of their functions, and the errors that the compiler makes.

A canonical text says what a function takes. What it returns only declarations say, and those of one text may differ:
ERC-20's `transfer` returns a bool, and many tokens declare nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import FUNCTIONS
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.standards import standard_declarations
from sigdir.signatures.types import Type, parsed_declaration

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
