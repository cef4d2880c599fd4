"""What was pasted or uploaded, a list, an ABI or Solidity, as candidates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

import numpy as np

from sigdir.pipeline.formats.solidity import declarations, has_too_many_tokens, is_too_long_to_post
from sigdir.pipeline.formats.text import candidate_lines, without_comments
from sigdir.serve.core import posted_sources
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import detail
from sigdir.signatures.candidates import Entry

FORMATS = ("auto", "list", "abi", "solidity")
_SOLIDITY = re.compile(rb"\b(?:pragma\s++solidity|contract|interface|library)\b")


def candidates(text: bytes, format: str, file_name: str = "") -> Iterable[Entry]:
    """The candidates of a submission; raises HttpError. ``format`` is one of FORMATS."""
    if format == "auto":
        format = _detected(text, file_name)
    if format == "abi":
        return posted_sources.abi_entries(_abi_of(text.decode("utf-8", "replace")))
    if format == "solidity":
        if has_too_many_tokens(text) or is_too_long_to_post(text):
            raise detail(413, "This source is too long.")
        return declarations(text)
    return line_candidates(text)


def line_candidates(text: bytes) -> Iterator[Entry]:
    """One candidate a line, without comments and blank lines."""
    if b"/*" in text:
        text, _ = without_comments(text, inside=False)
    starts, ends, lines = candidate_lines(np.frombuffer(text, np.uint8), 1)
    for start, end, line in zip(starts.tolist(), ends.tolist(), lines.tolist(), strict=True):
        yield Entry(text[start:end], line)


def _detected(text: bytes, file_name: str) -> str:
    if text.lstrip()[:1] in (b"[", b"{") and not file_name.endswith(".sol"):
        return "abi"
    return "solidity" if file_name.endswith(".sol") or _has_solidity(text) else "list"


def _has_solidity(text: bytes) -> bool:
    """Whether a word of Solidity stands in front of a brace or a semicolon."""
    word = _SOLIDITY.search(text)
    return word is not None and any(text.find(mark, word.end()) >= 0 for mark in (b"{", b";"))


def _abi_of(text: str) -> str:
    """The ABI inside a compiler's artifact, or the text unchanged."""
    try:
        value = bodies.loads(text)
    except (ValueError, RecursionError):
        return text  # abi_entries reports what is wrong with it
    return json.dumps(value["abi"]) if isinstance(value, dict) and isinstance(value.get("abi"), list) else text
