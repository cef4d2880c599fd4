"""How often selectors and topics are used: the counts of a table, added up by hash.

A table has a column of hashes and one of counts: Parquet, CSV with a header, or JSON lines, as Dune, cryo or BigQuery give
them. What cannot be read is counted by what is wrong, with the number of the first such row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.column_tables import (
    BadRows,
    ColumnBatch,
    column_batches,
    hashes_of,
    integers_of,
    roles_of,
)
from sigdir.pipeline.source import Source
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection

Array = npt.NDArray[Any]

MAX_COUNT = 1 << 48
"""A row with more uses than this is taken for damage: all chains together have had fewer calls."""
NAMES = {
    "hash": (
        "selector", "topic", "topic0", "hexsignature", "hash", "methodid", "functionselector", "functionsig", "sighash",
        "bytes4", "signature", "sig", "eventtopic", "eventhash",
    ),
    "topic": ("topic", "topic0"),
    "count": ("count", "calls", "uses", "usage", "cnt", "n", "total", "transactions", "txs", "txcount", "logs", "events"),
}  # fmt: skip


@dataclass
class UsageCounts:
    """The distinct hashes of each collection as rows of bytes, and how often each is used.

    ``rows`` were read of the table; ``unread`` says which were not.
    """

    hashes: dict[Collection, Array] = field(default_factory=dict)
    counts: dict[Collection, npt.NDArray[np.int64]] = field(default_factory=dict)
    rows: int = 0
    unread: list[str] = field(default_factory=list)


def usage_of(source: Source) -> UsageCounts:
    """The counts of an open source; raises BadInput for what is no such table."""
    roles = roles_of(source, NAMES)
    if "hash" not in roles or "count" not in roles:
        raise BadInput(source.name, "it has no column selector or topic beside a column count")
    parts: dict[Collection, list[tuple[Array, Array]]] = {collection: [] for collection in COLLECTIONS}
    found, bad = UsageCounts(), BadRows()
    for batch in column_batches(source, roles):
        found.rows += batch.rows
        _add(parts, batch, bad)
    for collection, some in parts.items():
        found.hashes[collection], found.counts[collection] = added(collection, some)
    found.unread = bad.sentences()
    return found


def _add(parts: dict[Collection, list[tuple[Array, Array]]], batch: ColumnBatch, bad: BadRows) -> None:
    counts, is_count = integers_of(batch.columns["count"])
    is_count &= counts <= MAX_COUNT
    bad.add(f"no count from 0 to {MAX_COUNT:,}", batch, is_count)
    is_hash = np.zeros(batch.rows, np.bool_)
    for collection, role in ((SIGNATURES, "hash"), (EVENT_SIGNATURES, "hash"), (EVENT_SIGNATURES, "topic")):
        if role in batch.columns:
            hashes, has_one = hashes_of(batch.columns[role], collection.hash_bytes)
            mine = np.flatnonzero(has_one & ~is_hash & is_count)
            parts[collection].append(added(collection, [(hashes[mine], counts[mine].astype(np.int64))]))
            is_hash |= has_one
    bad.add("no selector of 4 bytes and no topic of 32", batch, is_hash)


def added(collection: Collection, parts: list[tuple[Array, Array]]) -> tuple[Array, npt.NDArray[np.int64]]:
    """The distinct hashes, rising, uint8 of (rows, width), and the sums of their counts."""
    width = collection.hash_bytes
    hashes = np.concatenate([np.empty((0, width), np.uint8), *(hashes for hashes, _ in parts)])
    counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in parts)])
    keys = np.ascontiguousarray(hashes).view(">u4" if width == 4 else f"S{width}")[:, 0]
    order = np.argsort(keys.astype(np.uint32) if width == 4 else keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    sums = np.add.reduceat(counts[order], starts) if len(keys) else np.empty(0, np.int64)
    return hashes[order[starts]], sums
