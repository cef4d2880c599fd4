"""Does a text fit the arguments that a function's code shows?

evmole gives the types that the code needs: `uint256` where it uses a whole word and nothing tells its type, `address`
or `uint8` where it cuts the word, `bytes` for a string, an array of `uint256` for many arrays. So types are compared by
their encoding: static tuples and arrays are expanded to words, and ``uint256`` in the code fits any type of one word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

from sigdir.signatures.types import BadTypeList, Type, parameter_types

_WORD = re.compile(r"(?:u?int|bytes)\d+|address|bool|function|u?fixed\d+x\d+")
_MAX_WORDS = 256


class Fit(IntEnum):
    """How well a text fits; a higher number is better."""

    DIFFERS = 0
    """The number of values, or where dynamic ones stand, differs."""
    UNKNOWN = 1
    """The code does not show its arguments."""
    LOOSE = 2
    """A type of the text is cut or padded in another way than the code does it."""
    ALIKE = 3
    """Each type encodes as the code's."""
    SAME = 4
    """Each type is the code's."""


def fit_of(text: str, arguments: str | None) -> Fit:
    """How well a canonical text fits the arguments of a function's code."""
    if arguments is None:
        return Fit.UNKNOWN
    if text[text.find("(") :] == f"({arguments})":
        return Fit.SAME
    declared, used = heads_of(text), heads_of(f"({arguments})")
    return Fit.UNKNOWN if declared is None or used is None else fit_of_heads(declared, used)


def heads_of(text: str) -> list[str] | None:
    """The words and dynamic values that a text's arguments begin with; None for types that cannot be read."""
    try:
        return _heads(parameter_types(text))
    except BadTypeList:
        return None


def fit_of_heads(declared: Sequence[str], used: Sequence[str]) -> Fit:
    """How well these of a text fit those of a code; at best they are alike."""
    if len(declared) != len(used):
        return Fit.DIFFERS
    return min(map(_fit, declared, used), default=Fit.SAME)


def _fit(declared: str, used: str) -> Fit:
    """One value of the text beside one of the code; a dynamic one has an empty text or that of its type."""
    if declared == used:
        return Fit.ALIKE
    is_word, is_used_word = (_WORD.fullmatch(one) is not None for one in (declared, used))
    if is_word and is_used_word:
        return Fit.ALIKE if used in ("uint256", _ENCODED_AS.get(declared)) else Fit.LOOSE
    if is_word or is_used_word:
        # Code that never reads a dynamic value shows its offset, a word.
        return Fit.LOOSE if used == "uint256" else Fit.DIFFERS
    both = {declared, used}
    return Fit.ALIKE if both == {"string", "bytes"} or used.endswith("[]") == declared.endswith("[]") else Fit.LOOSE


_ENCODED_AS = {"address": "uint160", "bool": "uint8", "function": "bytes24"}


def _heads(types: tuple[Type, ...]) -> list[str]:
    found: list[str] = []
    for one in types:
        if is_dynamic(one) or len(found) > _MAX_WORDS:
            found.append(one.text)
        elif one.members is not None:
            found += _heads(one.members)
        elif one.element is not None:
            found += _heads((one.element,)) * min(one.length or 0, _MAX_WORDS)
        else:
            found.append(one.text)
    return found[: _MAX_WORDS + 1]


def is_dynamic(type: Type) -> bool:
    """Whether a type encodes to an offset."""
    if type.members is not None:
        return any(map(is_dynamic, type.members))
    if type.element is not None:
        return type.length is None or is_dynamic(type.element)
    return type.text in ("bytes", "string")
