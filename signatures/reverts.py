"""What a call that failed gives back: the errors that the compiler makes, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
