"""Hashes that lookups did not find, and how often: a table of bounded size, in memory and in a file that workers share.

Invariants
    Nothing of a client is kept, and no time but that of a hash's first miss.
    Memory has the misses of the last ``_SECONDS``: at most twice ``LARGEST`` hashes, and those of the requests that are
    being answered. The file has ``LARGEST`` hashes.
    A count is never too high. It is too low by at most all misses / ``LARGEST`` (Misra and Gries): where the file is full,
    each count is lowered by that of the first hash without a place.
    A process that ends, by kill -9 too, loses what it counted since it last wrote.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import falcon
import numpy as np

from sigdir.serve.core.process import write_line
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import Reader, View, this_takes_long
from sigdir.warehouse.table.errors import UnreadableWarehouse

LARGEST = 10_000
_SECONDS = 2.0
_FEW = 4


@dataclass(frozen=True, slots=True)
class Wanted:
    """A selector or topic that nobody could name, ``0x...``, how often it was looked up, and when first."""

    collection: Collection
    hash: str
    count: int
    since: str


class Misses:
    """Counts for a process: in memory, written into the file two seconds after the first of them, or when they are many.

    A thread of its own writes them: 10,000 take 50 ms. Where it falls behind, the thread that answers writes them.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._counts: Counter[bytes] = Counter()
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._is_full = threading.Event()
        self._has_writer = False

    def add(self, hashes: Iterable[bytes]) -> None:
        """Count a miss of each hash."""
        if self._is_full.is_set():
            this_takes_long()  # it may wait for the file
        with self._lock:
            self._counts.update(hashes)
            count = len(self._counts)
            if count >= LARGEST:
                self._is_full.set()
            if count and not self._has_writer:
                threading.Thread(target=self._write_later, daemon=True).start()
                self._has_writer = True
        if count >= 2 * LARGEST:
            self.write()

    def _write_later(self) -> None:
        self._is_full.wait(_SECONDS)
        self.write()

    def write(self) -> None:
        """Add what was counted to the file. Where that fails the counts are lost, and a line says so."""
        with self._writing:
            with self._lock:
                counts, self._counts, self._has_writer = self._counts, Counter(), False
                self._is_full.clear()
            if counts:
                self._store(counts)

    def _store(self, counts: Counter[bytes]) -> None:
        now = int(time.time())
        try:
            with _opened(self._file) as file, file:
                file.execute("BEGIN IMMEDIATE")
                file.executemany(
                    "INSERT INTO misses VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count",
                    [(hash, count, now) for hash, count in counts.items()],
                )
                file.execute(
                    "UPDATE misses SET count = count - (SELECT count FROM misses ORDER BY count DESC LIMIT 1 OFFSET ?1)"
                    " WHERE (SELECT count(*) FROM misses) > ?1",
                    (LARGEST,),
                )
                file.execute("DELETE FROM misses WHERE count <= 0")
        except (sqlite3.Error, MemoryError) as error:
            write_line(f"error: misses are not counted: {self._file}: {error}")


def wanted(file: Path, view: View) -> list[Wanted]:
    """What is in the file and has no text in a view, the most wanted first; raises UnreadableWarehouse."""
    if not file.exists():
        return []
    try:
        with _opened(file) as opened:
            rows = opened.execute("SELECT hash, count, since FROM misses ORDER BY count DESC, since, hash").fetchall()
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{file}: {error}; it can be deleted") from None
    unknown = set(missed(view, [hash for hash, _, _ in rows]))
    return [
        Wanted(
            Collection.of_hash(hash), f"0x{hash.hex()}", count, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(since))
        )
        for hash, count, since in rows
        if hash in unknown
    ]


def missed(view: View, hashes: Sequence[bytes]) -> list[bytes]:
    """The hashes that have no text in a view."""
    if len(hashes) <= _FEW:  # to set up the arrays takes 20 us
        return [hash for hash in hashes if not view.with_hash(Collection.of_hash(hash), hash)]
    found = []
    for collection in COLLECTIONS:
        mine = [hash for hash in hashes if len(hash) == collection.hash_bytes]
        rows = np.frombuffer(b"".join(mine), np.uint8).reshape(len(mine), collection.hash_bytes)
        found += [mine[at] for at in np.flatnonzero(~view.has_hashes(collection, rows)).tolist()]
    return found


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as opened:
        # Readers make the table too: they may open the file before its first write. There is no write-ahead log, because
        # SQLite refuses one of two processes that switch a new file to it at once, without waiting.
        opened.execute(
            "CREATE TABLE IF NOT EXISTS misses (hash BLOB PRIMARY KEY, count INTEGER, since INTEGER) WITHOUT ROWID"
        )
        yield opened


@dataclass
class MissCounter:
    """Middleware: counts what an answer looked up, which its resource leaves in ``req.context.looked_up``, and did not find.

    A hash counts once for a request, however often that has it.
    """

    _misses: Misses
    _reader: Reader

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        # A request that used up its memory may start no thread. Its answer stays; the next miss starts one.
        with suppress(MemoryError, RuntimeError):
            if hashes := sorted(set(getattr(req.context, "looked_up", ()))):
                self._misses.add(missed(self._reader.held(), hashes))
