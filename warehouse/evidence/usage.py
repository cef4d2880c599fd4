"""How often selectors and topics are used, as sources have counted: a file a source, which its next import replaces.

Its columns (``mapped.py``): for each of ``TABLES`` the distinct keys, rising, and how often each was used. A key is a hash,
or a hash with the chain and the address of the contract that was called or made the log, where the source says so. ``days``
has the first and the last day that were counted, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.rank import Summary
from sigdir.signatures.readings import Known, Membership
from sigdir.warehouse.evidence.contracts import ADDRESS_BYTES, deployed_contract
from sigdir.warehouse.evidence.mapped import open_columns, write_columns
from sigdir.warehouse.log.manifest import USAGE, Manifest, MappedFile

Counts = Mapping[str, tuple[Array, npt.NDArray[np.int64]]]
"""For each table the keys, uint8 of (rows, width), rising, and their counts."""

Days = npt.NDArray[np.datetime64]
NO_DAYS: Days = np.empty(0, "<M8[D]")

PLACE_BYTES = 28
"""Of a chain, 8, and an address."""
MAX_CONTRACTS = 64
"""So many contracts are asked which texts of a hash they have, those that use it most."""


def by_contract(collection: Collection) -> str:
    """The table of a collection's uses by contract."""
    return f"{collection} by contract"


TABLES: Mapping[str, int] = {str(collection): collection.hash_bytes for collection in COLLECTIONS} | {
    by_contract(collection): collection.hash_bytes + PLACE_BYTES for collection in COLLECTIONS
}
"""The bytes of a key of each."""


def write_usage(path: Path, counts: Counts, days: Days) -> int:
    """Write a file of usage, to be synced; returns its rows. ``days`` are the first and the last, or none."""
    columns: dict[str, Array] = {"days": days.astype(NO_DAYS.dtype)}
    for table, (keys, uses) in counts.items():
        columns |= {table: np.ascontiguousarray(keys).view(f"S{TABLES[table]}").reshape(-1), f"{table} uses": uses}
    write_columns(path, columns)
    return sum(len(keys) for keys, _ in counts.values())


def with_uses(manifest: Manifest, hash: bytes, texts: Sequence[Summary]) -> Sequence[Summary]:
    """The texts of a hash with their uses by contracts that have one of them and no other; raises UnreadableWarehouse."""
    if len(texts) < 2:
        return texts
    uses = dict.fromkeys((one.text for one in texts), 0)
    known = [Known(text) for text in uses]
    for chain, address, count in _callers(manifest, hash):
        contract = deployed_contract(manifest, chain, address)
        had = [one.text for one in contract.preferred(hash, known) if one.membership is Membership.HAS]
        if len(had) == 1:
            uses[had[0]] += count
    return [replace(one, uses=uses[one.text]) for one in texts] if any(uses.values()) else texts


def _callers(manifest: Manifest, hash: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Chain, address and count of the contracts that use a hash most, in each file."""
    name = by_contract(Collection.of_hash(hash))
    for columns in map(open_columns, manifest.mapped_of(USAGE)):
        keys = columns[name]
        first, last = (
            int(keys.searchsorted(np.array([hash + end], keys.dtype))[0]) for end in (b"", b"\xff" * PLACE_BYTES)
        )
        uses = columns[f"{name} uses"][first:last]
        for row in np.argsort(-uses, kind="stable")[:MAX_CONTRACTS].tolist():
            place = keys[first + row : first + row + 1].tobytes()[len(hash) :]
            yield int.from_bytes(place[:-ADDRESS_BYTES], "big"), place[-ADDRESS_BYTES:], int(uses[row])


def uses_of(manifest: Manifest, hash: bytes) -> int:
    """How often a selector or topic is used, over all sources that counted it; raises UnreadableWarehouse."""
    return int(uses_of_hashes(manifest, np.frombuffer(hash, np.uint8)[np.newaxis])[0])


def hashes_used(manifest: Manifest, collection: Collection, least: int, most: int) -> Array:
    """The hashes, rising, that all sources together have counted so often, at least once: uint8 of (rows, width)."""
    columns = [open_columns(file) for file in manifest.mapped_of(USAGE)]
    hashes = np.concatenate([np.empty(0, f"S{collection.hash_bytes}"), *(one[collection] for one in columns)])
    distinct, places = np.unique(hashes, return_inverse=True)
    uses = np.zeros(len(distinct), np.int64)
    np.add.at(uses, places, np.concatenate([uses[:0], *(one[f"{collection} uses"] for one in columns)]))
    return distinct[(least <= uses) & (uses <= most)].view(np.uint8).reshape(-1, collection.hash_bytes)


def uses_of_hashes(manifest: Manifest, hashes: Array) -> npt.NDArray[np.int64]:
    """The same for hashes of one collection, uint8 of (rows, width)."""
    found = np.zeros(len(hashes), np.int64)
    for file in manifest.mapped_of(USAGE):
        found += uses_in(file, hashes)
    return found


def uses_in(file: MappedFile, hashes: Array) -> npt.NDArray[np.int64]:
    """How often each of these hashes is used by what one file has counted."""
    width = hashes.shape[1]
    collection = next(one for one in COLLECTIONS if one.hash_bytes == width)
    columns, wanted = open_columns(file), np.ascontiguousarray(hashes).view(f"S{width}").reshape(-1)
    known, uses = columns[collection], columns[f"{collection} uses"]
    if not len(known):
        return np.zeros(len(hashes), np.int64)
    at = np.minimum(known.searchsorted(wanted), len(known) - 1)
    return np.where(known[at] == wanted, uses[at], 0)


def days_in(file: MappedFile) -> Days:
    """The first and the last day that a file has counted; none where its source did not say."""
    return open_columns(file).get("days", NO_DAYS)
