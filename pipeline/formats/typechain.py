"""TypeChain's types of a contract, `.ts` and `.d.ts`: `"transfer(address,uint256)": FunctionFragment` and the like.

ethers 5's have the text of each function and event, ethers 6's that of each event and of overloaded functions. Of the
other functions they have names and the types of TypeScript, which do not tell those of the ABI, so they are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.formats.javascript import is_javascript
from sigdir.pipeline.source import Source, numbered_matches
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import Kind, Sighting, Witness

_TYPED = re.compile(
    rb"""["']([A-Za-z_$][\w$]*+\([^"'\n]*+(?<=\)))["'](?:\s*+\))?:\s*+"""
    rb"""(?:(FunctionFragment|TypedContractMethod\b)|EventFragment|TypedContractEvent\b)"""
)


def looks_like(source: Source) -> bool:
    return is_javascript(source) and next(entries(source), None) is not None


def entries(source: Source) -> Iterator[Entry]:
    function, event = (
        Sighting(kind, Witness.DECLARED, "", contract_of_file(source)) for kind in (Kind.FUNCTION, Kind.EVENT)
    )
    for line, found in numbered_matches(_TYPED, source.parsed(_code, "TypeScript source")):
        kind, sighting = (FUNCTIONS, function) if found[2] else (EVENTS, event)
        yield Entry(found[1], line, kind, sighting=sighting)


def _code(_name: str, raw: bytes) -> bytes:
    return raw
