"""An ABI of chosen texts: each entry from the commonest declaration, with the names of its parameters.

A selector or a topic gives the first of its texts by rank. A text without a declaration gives an entry without names,
as a function where no source says its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from sigdir.pipeline.errors import BadTarget, printable
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.canonicalise import spelled
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import parse_declaration
from sigdir.warehouse import Warehouse

_TEXTS = "SELECT collection, hash, text_signature, declaration FROM ranked WHERE hash IN ({}) ORDER BY position"
_Declared = tuple[str, str | None]
"""A text and its declaration."""


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
    wanted = dict.fromkeys([*map(_of_text, texts), *map(_of_hash, hashes)])
    ranked = _ranked(warehouse, wanted)
    entries: list[dict[str, Any]] = []
    counts = {SIGNATURES: 0, EVENT_SIGNATURES: 0}
    for one in wanted:
        texts_of_hash = ranked.get((one.collection, one.digest), ())
        found = next((each for each in texts_of_hash if one.text in ("", each[0])), None)
        declaration = _declaration(one.collection, *found) if found else ""
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


def _ranked(warehouse: Warehouse, wanted: Iterable[_Wanted]) -> dict[tuple[Collection, bytes], list[_Declared]]:
    """The texts of each hash that has any, the best first, with their declarations."""
    digests = sorted({one.digest for one in wanted})
    found: dict[tuple[Collection, bytes], list[_Declared]] = {}
    query = _TEXTS.format(", ".join("?" * len(digests)))
    for collection, hash, text, declaration in warehouse.sql(query, digests).rows():
        found.setdefault((Collection.of_name(collection), hash), []).append((text, declaration))
    return found


def _declaration(collection: Collection, text: str, declaration: str | None) -> str:
    """The declaration of a text; "" where it is too long or nested too deeply for one."""
    kind = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.FUNCTION
    return declaration or spelled(f"{kind.name.lower()} {text}", kind).declaration
