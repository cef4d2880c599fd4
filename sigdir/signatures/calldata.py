"""Calldata, and the texts of its selector, to values, or to the reason why a text does not fit.

Data over ``MAX_BYTES`` and types over the bounds of ``types.py`` are refused. ``abi_decoder.py`` decodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from sigdir.signatures.abi_decoder import Budget, attempt
from sigdir.signatures.address import checksummed
from sigdir.signatures.decode_attempt import SELECTOR_BYTES, DecodeAttempt
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.types import Type

MAX_BYTES = 128 << 10
"""Of calldata; larger transactions are rarely relayed."""

_KEPT_TEXT = 256
_EXACT_BITS = 48  # integers up to this width are JSON numbers: 2^53 is where those cease to be exact


class BadCalldata(SigdirError):
    """The data is not calldata: not hex, too short for a selector, or too long."""


def calldata(text: str) -> bytes:
    """The bytes of hex digits, with 0x or without; white space is left out. Raises BadCalldata."""
    digits = "".join(text.split())
    digits = digits[2:] if digits[:2] in ("0x", "0X") else digits
    if len(digits) > 2 * MAX_BYTES:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; at most {MAX_BYTES} are decoded")
    wrong = re.search("[^0-9a-fA-F]", digits)
    if wrong:
        raise BadCalldata(f"calldata: {wrong[0]!a} at digit {wrong.start() + 1} is not a hex digit")
    if len(digits) % 2:
        raise BadCalldata(f"calldata: {len(digits)} hex digits are not a whole number of bytes")
    if len(digits) < 2 * SELECTOR_BYTES:
        raise BadCalldata(f"calldata: {len(digits) // 2} bytes; a selector has {SELECTOR_BYTES}")
    return bytes.fromhex(digits)


def decode(data: bytes, texts: Iterable[str]) -> list[DecodeAttempt]:
    """Try each text on the calldata; the best first, those that fit equally well in the order given.

    Texts are canonical and have the data's selector. Best is the text whose values encode to the same data, then
    one that uses all of it in another order, then the one that leaves the least over, then one that does not decode.
    """
    budget = Budget.of(len(data))
    return sorted((attempt(data[SELECTOR_BYTES:], text, budget) for text in texts), key=_rank)


def _rank(attempt: DecodeAttempt) -> tuple[bool, bool, int]:
    return attempt.values is None, not attempt.exact, attempt.left_over


# Values as JSON.


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
