"""Addresses as people see them."""

from __future__ import annotations

from sigdir.signatures.keccak import keccak256


def checksummed(address: str) -> str:
    """An address (0x and 40 hex digits, in any case) with the capitals of EIP-55.

    A letter is a capital if the hash of the lower-case digits has a digit of 8 or more at its place.
    """
    digits = address[2:].lower()
    marks = keccak256(digits.encode()).hex()[: len(digits)]
    return "0x" + "".join(digit.upper() if mark >= "8" else digit for digit, mark in zip(digits, marks, strict=True))
