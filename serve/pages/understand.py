"""What is in the search box: a selector, a topic, calldata, a text or a part of one. Nothing here knows HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256

Kind = Literal["nothing", "selector", "topic", "calldata", "address", "hex", "text", "fragment"]

MAX_CHARACTERS = 8000

_SELECTOR, _ADDRESS, _TOPIC, _WORD = 8, 40, 64, 64
_HEX = re.compile(r"(0[xX])?([0-9a-fA-F]+)")
_KEYWORD = re.compile(r"(function|event|error)\s+(?=\S)")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for.

    ``digits`` are those of a hash, or some of them; ``fragment`` is the part of a text to look for.
    ``canonical`` and ``digest`` belong to a text that is a signature. ``fault`` tells why one that looks like a signature is none.
    """

    given: str
    kind: Kind
    digits: str = ""
    fragment: str = ""
    canonical: str = ""
    digest: bytes = b""
    fault: str = ""


def understand(given: str) -> Asked:
    """Understand what was typed; never fails."""
    given = given.strip()[:MAX_CHARACTERS]
    if not given:
        return Asked("", "nothing")
    bare = _SPACE.sub("", given)
    found = _HEX.fullmatch(bare)
    if found and (found[1] or _is_whole(len(found[2]))):
        return _of_hex(given, found[2].lower())
    if bare.lower() == "0x":
        return Asked(given, "nothing")
    return _of_text(given)


def _is_whole(digits: int) -> bool:
    """Whether so many digits alone, without 0x, are a hash or calldata, where fewer may be part of a name."""
    return (digits >= _SELECTOR and (digits - _SELECTOR) % _WORD == 0) or digits == _TOPIC


def _of_hex(given: str, digits: str) -> Asked:
    if len(digits) < _SELECTOR:
        return Asked(given, "hex", digits)
    if len(digits) == _TOPIC:
        return Asked(given, "topic", digits)
    kind: Kind = "selector" if len(digits) == _SELECTOR else "address" if len(digits) == _ADDRESS else "calldata"
    return Asked(given, kind, digits[:_SELECTOR])


def _of_text(given: str) -> Asked:
    # Texts have no spaces, so that half of a declaration is looked for without its own.
    fragment = _SPACE.sub("", _KEYWORD.sub("", given, count=1)) if given.isascii() else given
    if "(" not in given:
        return Asked(given, "fragment", fragment=fragment)
    try:
        text = normalise(given).text
    except GrammarError as error:
        # Somebody who is still typing has not closed it, and need not be told.
        fault = f"{error.reason.replace('_', ' ')} at column {error.column}" if given.endswith((")", ";")) else ""
        return Asked(given, "fragment", fragment=fragment, fault=fault)
    return Asked(given, "text", fragment=text, canonical=text, digest=keccak256(text.encode()))
