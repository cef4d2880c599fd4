"""What ``solc --hashes`` prints: `hash: text` lines under headings, for each contract.

::

    ======= contracts/Token.sol:Token =======
    Function signatures:
    a9059cbb: transfer(address,uint256)

    Error signatures:
    ...
    Event signatures:
    ...

Source: ``CommandLineInterface::handleSignatureHashes`` of solc 0.8, and its tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sigdir.pipeline.formats.hashes import collection_of, parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import BAD_ENTRY

_HEADING = re.compile(
    rb"(?P<kind>Function|Error|Event) signatures:|======= (?:(?P<path>.*):)?(?P<contract>[^:]*) ======="
)
_KINDS = {b"Function": Kind.FUNCTION, b"Error": Kind.ERROR, b"Event": Kind.EVENT}
_BEGINNING = re.compile(rb"\s*(?:======= [^\n]* =======\s*)?(?:Function|Error|Event) signatures:\s*?(?:\n|\Z)")


def looks_like(source: Source) -> bool:
    return _BEGINNING.match(source.head) is not None


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    declares = Sighting(witness=Witness.DECLARED)
    for number, line in source.lines():
        heading = _HEADING.fullmatch(line)
        if heading is not None:
            declares = _under(heading, declares, source.below)
            continue
        written, colon, text = line.partition(b":")
        declared = parse_hash(written.decode("latin-1"))
        if not colon or declared is None:
            yield Entry(line, number, reject_reason=BAD_ENTRY)
        else:
            yield Entry(text.strip(), number, collection_of(declared), declared, sighting=declares)


def _under(heading: re.Match[bytes], declares: Sighting, path: str) -> Sighting:
    """What the lines under a heading say: their kind, or their contract."""
    if heading["kind"]:
        return declares._replace(kind=_KINDS[heading["kind"]])
    names = ((heading[group] or b"").decode("utf-8", "replace") for group in ("path", "contract"))
    source, name = names
    return declares._replace(contract=Contract.at(source or path, name))
