"""Huff: the lines `#define function`, `#define event` and `#define error`, which declare as Solidity does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.source import Source, numbered_matches
from sigdir.signatures.candidates import Entry
from sigdir.signatures.evidence import Sighting, Witness

_COMMENT = re.compile(rb"//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/)?")
_DEFINED = re.compile(
    rb"""^[ \t]*+\#define\s++(
        (?:function|event|error)\b [^\n(#]*+
        (?: \( (?:[^()#] | \([^()#]*+\))*+ \) [^\n(#]*+ )*+ [^\n#]*+ )""",
    re.MULTILINE | re.VERBOSE,
)
"""A declaration is a line, or more where its brackets are open."""


def looks_like(source: Source) -> bool:
    return source.has_ending(".huff") and next(entries(source), None) is not None


def entries(source: Source) -> Iterator[Entry]:
    declares = Sighting(witness=Witness.DECLARED, contract=contract_of_file(source))
    for line, found in numbered_matches(_DEFINED, source.parsed(_without_comments, "Huff source")):
        yield Entry(b" ".join(found[1].split()), line, sighting=declares)


def _without_comments(_name: str, raw: bytes) -> bytes:
    return _COMMENT.sub(lambda found: b"\n" * found[0].count(b"\n"), raw)
