"""What the warehouse must contain: every response that was received, and what it implies for later reads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.keccak import keccak256
from tests.torture.plan import Text


class Finding(Exception):
    """The warehouse or the server is wrong. The message says how, in one line."""


class Row(NamedTuple):
    """A row as it was read or acknowledged; ``created_at`` in microseconds since 1970, UTC."""

    id: int
    created_at: int
    text: str
    hash: bytes

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Row:
        """A row from a record of the API. Its two forms of the hash must agree."""
        hash = bytes.fromhex(record["hex_signature"][2:])
        if record["bytes_signature"].encode("latin-1") != hash:
            raise Finding(f"bytes_signature and hex_signature differ: {record}")
        at = np.datetime64(record["created_at"].removesuffix("Z"), "us")
        return cls(record["id"], int(at.astype(np.int64)), record["text_signature"], hash)


Rows = list[Row]
"""All rows of one collection as they were read, oldest first."""


class Ledger:
    """What was sent and acknowledged. Threads may share it during a round; ``check`` runs between rounds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: dict[Collection, dict[str, Row]] = {c: {} for c in COLLECTIONS}
        self._order: list[tuple[Collection, Row]] = []
        self._present: dict[Collection, set[str]] = {c: set() for c in COLLECTIONS}
        self._sent: dict[Collection, set[str]] = {c: set() for c in COLLECTIONS}
        self._seen: dict[Collection, Rows] = {c: [] for c in COLLECTIONS}

    def send(self, texts: Iterable[Text]) -> None:
        """Record that these texts are being sent; from now on they may be stored."""
        with self._lock:
            for collection, text in texts:
                self._sent[collection].add(text)

    def acknowledge(self, collection: Collection, row: Row) -> None:
        """Record that a POST was answered with this row."""
        if row.hash != keccak256(row.text.encode())[: collection.hash_bytes]:
            raise Finding(f"{collection}: {row.text} is acknowledged with the hash {row.hash.hex()}")
        with self._lock:
            known = self._acknowledged[collection].setdefault(row.text, row)
            if known is not row:
                raise Finding(f"{collection}: {row.text} is acknowledged twice, with the ids {known.id} and {row.id}")
            self._order.append((collection, row))

    def exists(self, texts: Iterable[Text]) -> None:
        """Record that these texts are stored: a 400 or a finished import says so."""
        with self._lock:
            for collection, text in texts:
                self._present[collection].add(text)

    def acknowledged(self) -> list[tuple[Collection, Row]]:
        """Every row acknowledged so far, in the order of the answers."""
        with self._lock:
            return list(self._order)

    def owed(self) -> dict[Collection, tuple[dict[str, Row], set[str]]]:
        """A copy of the rows acknowledged and the texts present so far."""
        with self._lock:
            return {c: (dict(self._acknowledged[c]), set(self._present[c])) for c in COLLECTIONS}

    def seen(self, collection: Collection) -> Rows:
        """The rows at the end of the previous round."""
        return self._seen[collection]

    def check(self, collection: Collection, rows: Rows, where: str) -> None:
        """Compare the ledger with all rows of a collection. Raises Finding."""
        acknowledged, present = self.owed()[collection]
        check_order(collection, rows, where)
        check_acknowledged(collection, rows, acknowledged, present, where)
        for row in rows:
            if row.text not in self._sent[collection]:
                raise Finding(f"{where}: {collection} has {row.text}, which no client sent")
        seen = self._seen[collection]
        if rows[: len(seen)] != seen:
            raise Finding(f"{where}: {collection} does not begin with the {len(seen)} rows of the previous round")

    def remember(self, collection: Collection, rows: Rows) -> None:
        """Record all rows, all of them folded. From now on they must be the first rows."""
        for row in rows[len(self._seen[collection]) :]:
            if row.hash != keccak256(row.text.encode())[: collection.hash_bytes]:
                raise Finding(f"{collection}: {row.text} has the hash {row.hash.hex()}")
        self._seen[collection] = rows


def check_order(collection: Collection, rows: Rows, where: str) -> None:
    """Check that ids and times rise and that no text occurs twice. Raises Finding."""
    for older, newer in pairwise(rows):
        if newer.id <= older.id or newer.created_at <= older.created_at:
            raise Finding(f"{where}: {collection}: {newer} comes after {older}")
    for one, other in pairwise(sorted(row.text for row in rows)):
        if one == other:
            raise Finding(f"{where}: {collection}: {one} is stored more than once")


def check_acknowledged(
    collection: Collection, rows: Rows, acknowledged: Mapping[str, Row], present: set[str], where: str
) -> None:
    """Check that the rows contain every acknowledged row unchanged, and every present text. Raises Finding."""
    found = {row.text: row for row in rows}
    for text, row in acknowledged.items():
        if found.get(text) != row:
            raise Finding(f"{where}: {collection}: acknowledged as {row}, stored as {found.get(text)}")
    missing = present - found.keys()
    if missing:
        raise Finding(
            f"{where}: {collection}: {len(missing)} texts are missing that the server or an import reported as present: {min(missing)}"
        )
