"""JavaScript and TypeScript with ABIs in them: TypeChain's factories, wagmi's output, `parseAbi([...])`.

Go's texts and comments are written alike, so abigen's bindings with their ABI as a text are read in the same way.

Lists and objects that are written out are read, nothing is run: see ``javascript_literals.py``. What a spread, a
variable or a call puts into an ABI stands elsewhere; it is one reject, as is an entry with such a part.

TypeChain's types of a contract, `.ts` and `.d.ts`, have `"transfer(address,uint256)": FunctionFragment` and the like. ethers
5's have the text of each function and event, ethers 6's that of each event and of overloaded functions. Of the other
functions they have names and the types of TypeScript, which do not tell those of the ABI, so they are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.formats.javascript_literals import parse_literals
from sigdir.pipeline.formats.json_contracts import holds_something, read_value
from sigdir.pipeline.source import Source, numbered_matches
from sigdir.signatures.candidates import Entry, ReadTask
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import Kind, Sighting, Witness

ENDINGS = (*(f".{module}{language}s{x}" for module in ("", "c", "m") for language in "jt" for x in ("", "x")), ".go")
_SIGN = re.compile(rb"""\binputs\\?["']?\s*:|["'`](?:function|event|error)\s+[\w$]+\s*\(""")
"""What a source with an ABI has somewhere. A source without it, as most are, is not parsed."""


def is_javascript(source: Source) -> bool:
    """Whether a file's name is that of JavaScript, TypeScript or Go."""
    return source.has_ending(*ENDINGS)


def looks_like(source: Source) -> bool:
    """By its name and by an ABI in it, because a source may begin with anything."""
    if not is_javascript(source) or b"\0" in source.head:  # a film may be called .ts
        return False
    return holds_something(source, source.parsed(_literals, "JavaScript source"))


def read(source: Source) -> Iterator[ReadTask]:
    return read_value(source, source.parsed(_literals, "JavaScript source"))


def _literals(name: str, raw: bytes) -> Any:
    return parse_literals(name, raw) if _SIGN.search(raw) else None


# TypeChain's types.

_TYPED = re.compile(
    rb"""["']([A-Za-z_$][\w$]*+\([^"'\n]*+(?<=\)))["'](?:\s*+\))?:\s*+"""
    rb"""(?:(FunctionFragment|TypedContractMethod\b)|EventFragment|TypedContractEvent\b)"""
)


def has_types(source: Source) -> bool:
    return is_javascript(source) and next(type_entries(source), None) is not None


def type_entries(source: Source) -> Iterator[Entry]:
    function, event = (
        Sighting(kind, Witness.DECLARED, "", contract_of_file(source)) for kind in (Kind.FUNCTION, Kind.EVENT)
    )
    for line, found in numbered_matches(_TYPED, source.parsed(_as_is, "TypeScript source")):
        kind, sighting = (FUNCTIONS, function) if found[2] else (EVENTS, event)
        yield Entry(found[1], line, kind, sighting=sighting)


def _as_is(_name: str, raw: bytes) -> bytes:
    return raw
