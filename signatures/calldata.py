"""The largest calldata that is decoded, and decoded values as JSON has them. ``abi_decoder.py`` decodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import Type

MAX_BYTES = 128 << 10
"""Of calldata; larger transactions are rarely relayed."""

_KEPT_TEXT = 256
_EXACT_BITS = 48  # integers up to this width are JSON numbers: 2^53 is where those cease to be exact

JsonForm = Callable[[Any], Any]
"""Gives a value of one type as JSON has it."""


def as_json(type: Type, value: Any, *, checksums: bool = False) -> Any:
    """A value as JSON has it. The kind of JSON depends on the type alone, never on the value.

    Bytes are hex with 0x, addresses lower-case, integers of up to 48 bits numbers and wider ones decimal text,
    fixed-point numbers decimal text, tuples and arrays lists. With ``checksums`` addresses have the capitals of EIP-55.
    """
    return json_form(type, checksums=checksums)(value)


def json_form(type: Type, *, checksums: bool = False) -> JsonForm:
    """What ``as_json`` does for one type: to walk the type for each value would take three times as long."""
    return _kept_form(type, checksums) if len(type.text) <= _KEPT_TEXT else _form(type, checksums)


def _form(type: Type, checksums: bool) -> JsonForm:
    if type.members is not None:
        forms = [_form(member, checksums) for member in type.members]
        return lambda value: [form(one) for form, one in zip(forms, value, strict=True)]
    if type.element is not None:
        element = _form(type.element, checksums)
        return lambda value: [element(one) for one in value]
    if type.text == "address":
        return checksummed if checksums else _itself
    if type.text.startswith(("bytes", "function")):
        return lambda value: "0x" + value.hex()
    if type.text.startswith(("fixed", "ufixed")):
        return lambda value: f"{value:f}"
    is_exact = type.text in ("bool", "string") or int(type.text.lstrip("uint")) <= _EXACT_BITS
    return _itself if is_exact else str


_kept_form = lru_cache(maxsize=2048)(_form)


def _itself(value: Any) -> Any:
    return value


def checksummed(address: str) -> str:
    """An address (0x and 40 hex digits, in any case) with the capitals of EIP-55.

    A letter is a capital if the hash of the lower-case digits has a digit of 8 or more at its place.
    """
    digits = address[2:].lower()
    marks = keccak256(digits.encode()).hex()[: len(digits)]
    return "0x" + "".join(digit.upper() if mark >= "8" else digit for digit, mark in zip(digits, marks, strict=True))
