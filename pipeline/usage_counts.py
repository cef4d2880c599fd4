"""How often selectors and topics are used: the counts of a table, added up by hash.

A table has a column of hashes and one of counts: Parquet, CSV with a header, or JSON lines, as Dune, cryo or BigQuery give
them. Where it has columns of chains and contracts the counts of each contract are kept too. Days add up, and of a column of
days the first and the last are kept. What cannot be read is counted by what is wrong, with the number of the first such row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.column_tables import (
    CHAIN_NAMES,
    BadRows,
    ColumnBatch,
    chains_of,
    column_batches,
    days_of,
    hashes_of,
    integers_of,
    roles_of,
)
from sigdir.pipeline.source import Source
from sigdir.signatures.arrow import Array, values
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.evidence.contracts import (
    ADDRESS_BYTES,
    NO_DAYS,
    PLACE_BYTES,
    TABLES,
    Counts,
    Days,
    by_contract,
    write_usage,
)
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.table.paths import existing

MAX_COUNT = 1 << 48
"""A row with more uses than this is taken for damage: all chains together have had fewer calls."""
NAMES = {
    "hash": (
        "selector", "topic", "topic0", "hexsignature", "hash", "methodid", "functionselector", "functionsig", "sighash",
        "bytes4", "signature", "sig", "eventtopic", "eventhash",
    ),
    "topic": ("topic", "topic0"),
    "chain": CHAIN_NAMES,
    "day": ("day", "date", "blockdate", "blockday", "blocktime"),
    "address": ("contract", "contractaddress", "address", "to", "toaddress"),
    "count": (
        "count", "calls", "uses", "usage", "cnt", "n", "total", "transactions", "txs", "txcount", "logs", "events",
        "countstar()", "count()", "len",
    ),
}  # fmt: skip


@dataclass
class UsageCounts:
    """How often each key is used. ``rows`` were read of the table; ``unread`` says which were not.

    ``days`` are the first and the last.
    """

    tables: Counts = field(default_factory=dict)
    rows: int = 0
    unread: list[str] = field(default_factory=list)
    days: Days = field(default_factory=NO_DAYS.copy)

    def to_dict(self) -> dict[str, Any]:
        """What was counted, for a report."""
        uses = sum(int(self.tables[collection][1].sum()) for collection in COLLECTIONS)
        hashes = {collection.value: len(self.tables[collection][0]) for collection in COLLECTIONS}
        return {"rows": self.rows, "hashes": hashes, "uses": uses, "days": self.days.astype(str).tolist()}


class UsageSums:
    """The distinct keys of a table, and how often each is used, added up while they come.

    Memory grows with the distinct keys, not with the rows that have them: at most twice as many rows wait as were left.
    """

    def __init__(self, table: str) -> None:
        self._table, self._parts = table, list[tuple[Array, npt.NDArray[np.int64]]]()
        self._waiting = self._left = 0

    def add(self, keys: Array, counts: npt.NDArray[np.int64]) -> None:
        """Keys, uint8 of (rows, width), in any order and with repeats, and a count of each."""
        self._parts.append((keys, counts))
        self._waiting += len(keys)
        if self._waiting > 2 * self._left:
            self.merged()

    def merged(self) -> tuple[Array, npt.NDArray[np.int64]]:
        """The distinct keys, rising, uint8 of (rows, width), and the sums of their counts."""
        self._parts = [_added(TABLES[self._table], self._parts)]
        self._left, self._waiting = len(self._parts[0][0]), 0
        return self._parts[0]


class SourceUsage:
    """What the inputs of one source have counted together."""

    def __init__(self) -> None:
        self._sums, self._days = {table: UsageSums(table) for table in TABLES}, NO_DAYS

    def add(self, usage: UsageCounts) -> None:
        for table, some in self._sums.items():
            some.add(*usage.tables[table])
        self._days = _ends(self._days, usage.days)

    def write(self, path: Path) -> int:
        """Write a file of usage, to be synced; returns its rows."""
        return write_usage(path, {table: some.merged() for table, some in self._sums.items()}, self._days)


def usage_of(source: Source) -> UsageCounts:
    """The counts of an open source; raises BadInput for what is no such table."""
    roles = roles_of(source, NAMES)
    if "hash" not in roles or "count" not in roles:
        raise BadInput(source.name, "it has no column selector or topic beside a column count")
    sums = {table: UsageSums(table) for table in TABLES}
    found, bad = UsageCounts(), BadRows()
    for batch in column_batches(source, roles):
        found.rows += batch.rows
        is_read = _add(sums, batch, bad, source.contracts.chain if source.contracts is not None else 1)
        found.days = _ends(found.days, _days(batch, is_read, bad))
    found.tables = {table: some.merged() for table, some in sums.items()}
    found.unread = bad.sentences()
    return found


def _add(sums: dict[str, UsageSums], batch: ColumnBatch, bad: BadRows, chain: int) -> npt.NDArray[np.bool_]:
    """Add the counts of some rows; returns which rows were read."""
    counts, is_read = integers_of(batch.columns["count"])
    is_read &= counts <= MAX_COUNT
    bad.add(f"no count from 0 to {MAX_COUNT:,}", batch, is_read)
    found = [
        (collection, *hashes_of(batch.columns[role], collection.hash_bytes))
        for collection, role in ((SIGNATURES, "hash"), (EVENT_SIGNATURES, "hash"), (EVENT_SIGNATURES, "topic"))
        if role in batch.columns
    ]
    is_hash = np.any([has_one for *_, has_one in found], axis=0)
    bad.add("no selector of 4 bytes and no topic of 32", batch, is_hash | ~is_read)
    is_read &= is_hash
    places, is_place = _places(batch, is_read, bad, chain)
    is_left = is_read.copy()
    for collection, hashes, has_one in found:
        for table, keys, counted in (
            (str(collection), hashes, has_one),
            (by_contract(collection), np.hstack([hashes, places]), has_one & is_place),
        ):
            mine = np.flatnonzero(counted & is_left)
            sums[table].add(keys[mine], counts[mine].astype(np.int64))
        is_left &= ~has_one
    return is_read


def _places(
    batch: ColumnBatch, is_read: npt.NDArray[np.bool_], bad: BadRows, chain: int
) -> tuple[Array, npt.NDArray[np.bool_]]:
    """The chain and the address of each row, uint8 of (rows, PLACE_BYTES), and which rows have them."""
    addresses, is_place = np.zeros((batch.rows, ADDRESS_BYTES), np.uint8), np.zeros(batch.rows, np.bool_)
    if "address" in batch.columns:
        addresses, is_place = hashes_of(batch.columns["address"], ADDRESS_BYTES)
        is_none = values(batch.columns["address"].is_null())
        bad.add("no address of 20 bytes", batch, is_place | is_none | ~is_read, "counted without a contract: ")
    chains, is_chain = chains_of(batch, chain)
    bad.add("no number of a chain", batch, is_chain | ~is_place | ~is_read, "counted without a contract: ")
    places = np.hstack([chains.astype(">u8").view(np.uint8).reshape(-1, PLACE_BYTES - ADDRESS_BYTES), addresses])
    return places, is_place & is_chain


def _days(batch: ColumnBatch, is_read: npt.NDArray[np.bool_], bad: BadRows) -> Days:
    """The first and the last day of the rows that were read."""
    if "day" not in batch.columns:
        return NO_DAYS
    days = days_of(batch.columns["day"])
    is_day = values(days.is_valid())
    is_good = is_day | values(batch.columns["day"].is_null()) | ~is_read
    bad.add("none such as 2026-01-31", batch, is_good, "counted without a day: ")
    return _ends(values(days.view(pa.int64()))[is_day & is_read].view("M8[s]").astype(NO_DAYS.dtype))


def _ends(*days: Days) -> Days:
    """The first and the last of all days, or no day."""
    joined = np.concatenate(days)
    return np.array([joined.min(), joined.max()]) if len(joined) else NO_DAYS


def _added(width: int, parts: list[tuple[Array, npt.NDArray[np.int64]]]) -> tuple[Array, npt.NDArray[np.int64]]:
    hashes = np.concatenate([np.empty((0, width), np.uint8), *(hashes for hashes, _ in parts)])
    counts = np.concatenate([np.empty(0, np.int64), *(counts for _, counts in parts)])
    keys, places = np.unique(np.ascontiguousarray(hashes).view(f"S{width}")[:, 0], return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, places, counts)
    return keys.view(np.uint8).reshape(-1, width), sums


# How much of what is used a warehouse can name, by use and by distinct hash, and which misses matter most.


@dataclass(frozen=True)
class Miss:
    """A selector or topic without a text, and how often it is used."""

    hash: str
    uses: int


@dataclass(frozen=True)
class Covered:
    """Of one collection: the distinct hashes and their uses, and how many of them have a text; the misses used most."""

    hashes: int
    named: int
    uses: int
    named_uses: int
    misses: list[Miss]


@dataclass(frozen=True)
class Coverage:
    """The coverage of a table; ``unread`` says which of its ``rows`` were not read."""

    rows: int
    unread: list[str]
    collections: dict[Collection, Covered]


def coverage_of(path: str, warehouse: Path, most: int) -> Coverage:
    """The coverage of a table of counts, with at most so many misses; raises BadInput, UnreadableWarehouse."""
    source = Source(path, explicit=True)
    with source.open(lambda _: None):
        usage = usage_of(source)
    reader = Reader(existing(warehouse), makes_staging=False)
    try:
        view = reader.current()
        found = {collection: _covered(view, collection, usage, most) for collection in COLLECTIONS}
    finally:
        reader.close()
    return Coverage(usage.rows, usage.unread, found)


def _covered(view: View, collection: Collection, usage: UsageCounts, most: int) -> Covered:
    hashes, counts = usage.tables[collection]
    is_named = view.has_hashes(collection, hashes)
    missed = np.flatnonzero(~is_named)
    first = missed[np.argsort(-counts[missed], kind="stable")][:most]
    misses = [Miss(f"0x{hashes[row].tobytes().hex()}", int(counts[row])) for row in first.tolist()]
    return Covered(
        len(hashes), int(is_named.sum()), int(counts.sum()), int(counts[is_named].sum()), misses
    )  # fmt: skip
