"""What the warehouse must contain: every response that was received, and what it implies for later reads.

Every check raises an AssertionError that says in one line how the warehouse or the server is wrong: a finding.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from sigdir.signatures.collections import COLLECTIONS, Collection
from tests.serve.support import Row, digest
from tests.torture.plan import Text

Rows = list[Row]
"""All rows of one collection as they were read, oldest first."""
Owed = Mapping[str, Row | None]
"""The texts that must be there, each with the row that was acknowledged; None if it was reported as present."""


def row_of(record: Mapping[str, Any]) -> Row:
    """A row from a record of the API. Its two forms of the hash must agree."""
    hash = bytes.fromhex(record["hex_signature"][2:])
    assert record["bytes_signature"].encode("latin-1") == hash, f"two hashes differ: {record}"
    at = np.datetime64(record["created_at"].removesuffix("Z"), "us")
    return Row(record["id"], int(at.astype(np.int64)), record["text_signature"], hash)


class Ledger:
    """What was sent and acknowledged. Threads may share it during a round; ``check`` runs between rounds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owed: dict[Collection, dict[str, Row | None]] = {c: {} for c in COLLECTIONS}
        self._sent: dict[Collection, set[str]] = {c: set() for c in COLLECTIONS}
        self.seen: dict[Collection, Rows] = {c: [] for c in COLLECTIONS}
        """The rows at the end of the previous round."""

    def send(self, texts: Iterable[Text]) -> None:
        """Record that these texts are being sent; from now on they may be stored."""
        with self._lock:
            for collection, text in texts:
                self._sent[collection].add(text)

    def acknowledge(self, collection: Collection, row: Row) -> None:
        """Record that a POST was answered with this row."""
        check_hash(collection, row)
        with self._lock:
            known = self._owed[collection].get(row.text)
            assert known is None, f"{collection}: {row.text} is acknowledged twice, as {known} and {row}"
            self._owed[collection][row.text] = row

    def exists(self, texts: Iterable[Text]) -> None:
        """Record that these texts are stored: a 400 or a finished import says so."""
        with self._lock:
            for collection, text in texts:
                self._owed[collection].setdefault(text, None)

    def owed(self, collection: Collection) -> Owed:
        """A copy of what must be there."""
        with self._lock:
            return dict(self._owed[collection])

    def acknowledged(self, collection: Collection) -> Rows:
        """Every row acknowledged so far."""
        return [row for row in self.owed(collection).values() if row is not None]

    def check(self, collection: Collection, rows: Rows, where: str) -> None:
        """Compare the ledger with all rows of a collection."""
        check_order(collection, rows, where)
        check_owed(collection, rows, self.owed(collection), where)
        strange = {row.text for row in rows} - self._sent[collection]
        assert not strange, f"{where}: {collection} has {min(strange)}, which no client sent"
        seen = self.seen[collection]
        assert rows[: len(seen)] == seen, f"{where}: {collection} does not begin with the {len(seen)} rows of before"

    def remember(self, collection: Collection, rows: Rows) -> None:
        """Record all rows, all of them folded. From now on they must be the first rows."""
        for row in rows[len(self.seen[collection]) :]:
            check_hash(collection, row)
        self.seen[collection] = rows


def check_hash(collection: Collection, row: Row) -> None:
    assert row.hash == digest(row.text)[: collection.hash_bytes], f"{collection}: the hash of {row} is wrong"


def check_order(collection: Collection, rows: Rows, where: str) -> None:
    """Check that ids and times rise and that no text occurs twice."""
    for older, newer in pairwise(rows):
        is_newer = newer.id > older.id and newer.created_at > older.created_at
        assert is_newer, f"{where}: {collection}: {newer} comes after {older}"
    for one, other in pairwise(sorted(row.text for row in rows)):
        assert one != other, f"{where}: {collection}: {one} is stored more than once"


def check_owed(collection: Collection, rows: Rows, owed: Owed, where: str) -> None:
    """Check that the rows contain every acknowledged row unchanged, and every text that was reported as present."""
    found = {row.text: row for row in rows}
    for text, row in owed.items():
        stored = found.get(text)
        assert stored is not None, f"{where}: {collection}: {row or text} is missing"
        assert row in (None, stored), f"{where}: {collection}: acknowledged as {row}, stored as {stored}"
