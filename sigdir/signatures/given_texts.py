"""Texts that somebody gives with bytes, to be tried before those of a directory: canonical, or as declared in a source."""

from __future__ import annotations

import re

from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.spelling import spelled

_ANONYMOUS = re.compile(r"\)\s*+anonymous\s*+;?\s*+")


def is_anonymous(text: str) -> bool:
    """Whether a declaration ends with ``anonymous``."""
    close = text.rfind(")")
    return close >= 0 and _ANONYMOUS.fullmatch(text, close) is not None


def canonical_and_declared(text: str, *, is_event: bool) -> tuple[str, str]:
    """The canonical text of a declaration, and its spelled form, empty where it says no more.

    A text that the grammar refuses stays as it is: to try it gives the reason.
    """
    collection, kind = (EVENT_SIGNATURES, Kind.EVENT) if is_event else (SIGNATURES, Kind.UNKNOWN)
    try:
        canonical, _ = canonicalise_one(text, collection.code)
    except GrammarError:
        return text, ""
    return canonical, spelled(text, kind).declaration
