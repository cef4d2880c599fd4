"""How much of what is used a warehouse can name, by use and by distinct hash, and which misses matter most."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sigdir.pipeline.source import Source
from sigdir.pipeline.usage_counts import UsageCounts, usage_of
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.table.paths import existing


class Miss(NamedTuple):
    """A selector or topic without a text, and how often it is used."""

    hash: str
    uses: int


class Covered(NamedTuple):
    """Of one collection: the distinct hashes and their uses, and how many of them have a text; the misses used most."""

    hashes: int
    named: int
    uses: int
    named_uses: int
    misses: list[Miss]


class Coverage(NamedTuple):
    """The coverage of a table; ``unread`` says which of its ``rows`` were not read."""

    rows: int
    unread: list[str]
    collections: dict[Collection, Covered]

    def to_dict(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "unread": self.unread,
            "collections": {
                collection: one._asdict() | {"misses": [miss._asdict() for miss in one.misses]}
                for collection, one in self.collections.items()
            },
        }


def coverage_of(path: str, warehouse: Path, most: int) -> Coverage:
    """The coverage of a table of counts, with at most so many misses; raises BadInput, UnreadableWarehouse."""
    source = Source(path, explicit=True)
    with source.open(lambda _: None):
        usage = usage_of(source)
    reader = Reader(existing(warehouse))
    try:
        view = reader.current()
        found = {collection: _covered(view, collection, usage, most) for collection in COLLECTIONS}
    finally:
        reader.close()
    return Coverage(usage.rows, usage.unread, found)


def _covered(view: View, collection: Collection, usage: UsageCounts, most: int) -> Covered:
    hashes, counts = usage.hashes[collection], usage.counts[collection]
    is_named = view.has_hashes(collection, hashes)
    missed = np.flatnonzero(~is_named)
    first = missed[np.argsort(-counts[missed], kind="stable")][:most]
    misses = [Miss(f"0x{hashes[row].tobytes().hex()}", int(counts[row])) for row in first.tolist()]
    return Covered(
        len(hashes), int(is_named.sum()), int(counts.sum()), int(counts[is_named].sum()), misses
    )  # fmt: skip
