"""The entries of an ABI beside the runtime code of its contract: which of them are compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from sigdir.signatures.bytecode import RuntimeCode, contract_key, witness_of
from sigdir.signatures.candidates import Entry
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import Contract, Kind, Sighting
from sigdir.signatures.grammar import OK, GrammarError

_CACHED_BYTES = 256
_KEYWORDS = {b"function": Kind.FUNCTION, b"event": Kind.EVENT, b"error": Kind.ERROR}


def witnessed(entries: Iterable[Entry], code: RuntimeCode) -> Iterator[Entry]:
    """The entries of one contract's ABI with their witness, and with the contract's key.

    An entry that has a reject reason, or that no grammar accepts, stays as it is. So do all entries beside code that holds
    no hash.
    """
    if code.is_empty:
        yield from entries
        return
    key = contract_key(code.code)
    for entry in entries:
        said = entry.sighting
        kind = said.kind or kind_of(entry)
        digest = _digest(entry, kind)
        if digest is None:
            yield entry
            continue
        contract = Contract(said.contract.name if said.contract else "", key)
        witness = witness_of(kind, digest, code)
        # Made at once: _replace takes three times as long.
        sighting = Sighting(said.kind, witness, said.declaration, contract, said.contracts, said.verified)
        yield Entry(entry.text, entry.line, entry.declared_kind, entry.declared_hash, entry.reject_reason, sighting)


def kind_of(entry: Entry) -> Kind:
    """The kind that the entry or its text states."""
    if entry.sighting.kind is not Kind.UNKNOWN:
        return entry.sighting.kind
    if entry.declared_kind == EVENTS:
        return Kind.EVENT
    return _KEYWORDS.get(entry.text.partition(b" ")[0], Kind.UNKNOWN)


def _digest(entry: Entry, kind: Kind) -> bytes | None:
    """The whole hash of the entry's canonical text; None for a reject."""
    if entry.reject_reason != OK:
        return None
    collection = EVENTS if kind is Kind.EVENT else FUNCTIONS
    return (_cached_digest if len(entry.text) <= _CACHED_BYTES else _text_digest)(entry.text, collection)


def _text_digest(text: bytes, collection: int) -> bytes | None:
    try:
        return canonicalise_one(text.decode(), collection)[1]
    except (GrammarError, UnicodeDecodeError):
        return None


_cached_digest = lru_cache(maxsize=1 << 14)(_text_digest)
