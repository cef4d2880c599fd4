"""An ABI of chosen texts: each entry from the commonest declaration, with the names of its parameters.

A selector or a topic gives the first of its texts by rank. A text without a declaration gives an entry without names,
as a function where no source says its kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.declaration import parse_declaration
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.rank import Summary, ranked
from sigdir.signatures.spelling import spelled
from sigdir.warehouse import Warehouse
from sigdir.warehouse.evidence.lookup import Text, TextEvidence, texts_evidence

_ROWS = "SELECT id, text_signature FROM {} WHERE hex_signature = $hex ORDER BY id"
_SHARED = "SELECT count(*) FROM (FROM {} WHERE starts_with(text_signature, $start) LIMIT 2)"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A hash, and the one of its texts that is wanted, "" for the best."""

    shown: str
    collection: Collection
    digest: bytes
    text: str = ""


def write_abi(
    warehouse: Warehouse, texts: Sequence[str], hashes: Sequence[str], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write the entries in the order of the texts and then the hashes; gives their number by collection.

    A text or a hash that the warehouse does not have, or that no ABI can have, is noted. Raises BadTarget for one that
    is none.
    """
    if not texts and not hashes:
        raise BadTarget("abi", "is of chosen signatures: name them with --text or --hashes")
    wanted = [*map(_of_text, texts), *map(_of_hash, hashes)]
    entries: list[dict[str, Any]] = []
    counts = {SIGNATURES: 0, EVENT_SIGNATURES: 0}
    for one in dict.fromkeys(wanted):
        found = _best(warehouse, one)
        declaration = _declaration(one.collection, found.summary) if found else ""
        if declaration:
            entries.append(parse_declaration(declaration).abi_entry())
            counts[one.collection] += 1
        else:
            problem = "its text is too long or nested too deeply for an ABI" if found else "not in the warehouse"
            progress.note(f"{printable(one.shown)}: {problem}")
    out.write(orjson.dumps(entries, option=orjson.OPT_INDENT_2) + b"\n")
    return counts


def _of_text(text: str) -> _Wanted:
    try:
        signature = normalise(text)
    except GrammarError as error:
        raise BadTarget(printable(text), str(error)) from None
    collection = next(one for one in (SIGNATURES, EVENT_SIGNATURES) if one.code == signature.collection)
    digest = keccak256(signature.text.encode())[: collection.hash_bytes]
    return _Wanted(signature.text, collection, digest, signature.text)


def _of_hash(hash: str) -> _Wanted:
    digits = hash.strip().lower().removeprefix("0x")
    collection = {8: SIGNATURES, 64: EVENT_SIGNATURES}.get(len(digits))
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        collection = None
    if collection is None:
        raise BadTarget(printable(hash), "is neither a selector nor a topic: 8 or 64 hex digits")
    return _Wanted(f"0x{digits}", collection, digest)


def _best(warehouse: Warehouse, wanted: _Wanted) -> TextEvidence | None:
    """The text, or the first by rank of the hash's; None if there is none."""
    view = wanted.collection.view_name
    rows = warehouse.sql(_ROWS.format(view), {"hex": f"0x{wanted.digest.hex()}"}).rows()
    texts = [Text(*row) for row in rows if wanted.text in ("", row[1])]
    if not texts:
        return None
    found = texts_evidence(warehouse.snapshot.evidence, wanted.collection, texts)

    def is_shared(name: str) -> bool:
        return bool(warehouse.sql(_SHARED.format(view), {"start": f"{name}("}).rows()[0][0] > 1)

    first = ranked(wanted.digest, [one.summary for one in found], is_shared)[0].summary
    return next(one for one in found if one.summary.id == first.id)


def _declaration(collection: Collection, summary: Summary) -> str:
    """The declaration of a text; "" where it is too long or nested too deeply for one."""
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return summary.declaration or spelled(f"{kind.name.lower()} {summary.text}", kind).declaration
