"""How often selectors and topics are used, as sources have counted: a file a source, which its next import replaces.

Its columns (``mapped.py``): for each collection the distinct hashes, rising, and how often each was used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.evidence.mapped import create_columns, open_columns
from sigdir.warehouse.log.manifest import USAGE, Manifest

Array = npt.NDArray[Any]
Counts = Mapping[Collection, tuple[Array, npt.NDArray[np.int64]]]
"""For each collection the hashes, uint8 of (rows, width), rising, and their counts."""


def write_usage(path: Path, counts: Counts) -> int:
    """Write a file of usage, to be synced; returns its rows."""
    shapes: dict[str, tuple[str, int, int | None]] = {}
    for collection, (hashes, _) in counts.items():
        shapes[collection] = (f"S{collection.hash_bytes}", len(hashes), None)
        shapes[f"{collection} uses"] = ("<i8", len(hashes), None)
    columns = create_columns(path, shapes)
    for collection, (hashes, uses) in counts.items():
        columns[collection][:] = np.ascontiguousarray(hashes).view(f"S{collection.hash_bytes}").reshape(-1)
        columns[f"{collection} uses"][:] = uses
    return sum(len(hashes) for hashes, _ in counts.values())


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
    width = hashes.shape[1]
    collection = next(one for one in COLLECTIONS if one.hash_bytes == width)
    wanted = np.ascontiguousarray(hashes).view(f"S{width}").reshape(-1)
    for columns in map(open_columns, manifest.mapped_of(USAGE)):
        known, uses = columns[collection], columns[f"{collection} uses"]
        if len(known):
            at = np.minimum(known.searchsorted(wanted), len(known) - 1)
            found += np.where(known[at] == wanted, uses[at], 0)
    return found
