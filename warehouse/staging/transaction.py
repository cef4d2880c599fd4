"""What the staging file holds, its tables, and what may be done in one transaction: rows, sightings, sequences, publishes."""

from __future__ import annotations

import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.errors import counted
from sigdir.warehouse.table.fields import FIELDS, PARTITION
from sigdir.warehouse.table.identity import FORMAT


class StagedRow(NamedTuple):
    """A row that was POSTed and not folded; ``created_at`` in microseconds since 1970, UTC."""

    id: int
    created_at: int
    text: str
    digest: bytes


class PostedSighting(NamedTuple):
    """What a POST says of a text, which has this id; as in ``signatures/evidence.py``."""

    collection: Collection
    id: int
    kind: int = 0
    declaration: str = ""


class NewText(NamedTuple):
    """A canonical text to stage; ``digest`` is all of its keccak-256. ``kind`` and ``declaration`` are as POSTed."""

    collection: Collection
    text: str
    digest: bytes
    kind: int = 0
    declaration: str = ""

    @property
    def is_declared(self) -> bool:
        """Whether the POST says more than the text."""
        return bool(self.kind or self.declaration)

    @property
    def hash(self) -> bytes:
        return self.digest[: self.collection.hash_bytes]


@dataclass(frozen=True, slots=True)
class Range:
    """Ids ``first_id`` up to and without ``first_id + rows``, and as many microseconds."""

    first_id: int
    first_created_at: int
    rows: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Ids, inclusive, whose rows the staging file has lost. Not every id need have had a row."""

    collection: Collection
    first_id: int
    last_id: int

    def __str__(self) -> str:
        rows = counted(self.last_id - self.first_id + 1, "row")
        return (
            f"the rows of {self.collection} with the ids {self.first_id} to {self.last_id} are lost, up to {rows},"
            " because the file or its write-ahead log is damaged or was removed"
        )


class HighWaterMark(NamedTuple):
    """The highest id and time of a collection. A sequence never falls below the snapshot's.

    So no id is given out twice where the staging file was lost or replaced and the table was not.
    """

    id: int = 0
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class NotedEntry:
    """The newest version whose publish was noted, -1 for none, and the sha256 of its log entry in hex."""

    version: int = -1
    sha256: str = ""


NO_HIGH_WATER: Mapping[Collection, HighWaterMark] = MappingProxyType({c: HighWaterMark() for c in COLLECTIONS})


_STAGED = {field.name: field.type.sqlite for field in (PARTITION, *FIELDS) if field.is_staged} | {"digest": "BLOB"}

STAGED_COLUMNS = tuple(_STAGED)
"""The columns of a staged row. ``digest`` is all of the text's keccak-256, and a checksum of the row."""

_TABLES = (
    # version and entry are those of ``NotedEntry``.
    "CREATE TABLE about (format INTEGER NOT NULL, warehouse TEXT NOT NULL, version INTEGER NOT NULL, entry TEXT NOT NULL)",
    """
CREATE TABLE sequence (
    collection TEXT PRIMARY KEY,
    last_id INTEGER NOT NULL,
    last_created_at INTEGER NOT NULL
) WITHOUT ROWID
""",
    f"""
CREATE TABLE staged (
    {", ".join(f"{name} {type} NOT NULL" for name, type in _STAGED.items())},
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
""",
    "CREATE UNIQUE INDEX staged_text ON staged (collection, text_signature)",
    """
CREATE TRIGGER advance AFTER INSERT ON staged BEGIN
    UPDATE sequence SET last_id = NEW.id, last_created_at = NEW.created_at WHERE collection = NEW.collection;
END
""",
    # What POSTs say of texts beyond naming them, and that texts were POSTed which were stored already.
    """
CREATE TABLE sighted (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
""",
    "CREATE TABLE unfinished (run TEXT PRIMARY KEY) WITHOUT ROWID",
    """
CREATE TABLE reserved (
    run TEXT NOT NULL,
    collection TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    PRIMARY KEY (run, collection)
) WITHOUT ROWID
""",
)


def create(connection: sqlite3.Connection, id: str) -> None:
    """Make the tables of a new file."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?, -1, '')", (FORMAT, id))
    for collection in COLLECTIONS:
        connection.execute("INSERT INTO sequence VALUES (?, 0, 0)", (collection,))


RESTORE = "put staging.sqlite and staging.sqlite-wal back from a backup"
ACCEPT = f"{RESTORE}, or go on without these rows: `sigdir fold --accept-losses`"

STAGED_TOGETHER = 64
"""Rows of one INSERT statement. A single statement is durable without a transaction around it."""

_DIGEST_BYTES = 32

_STAGE = "INSERT INTO staged VALUES {} ON CONFLICT (collection, text_signature) DO NOTHING"
_STAGED_VALUES = f"({','.join('?' * len(STAGED_COLUMNS))})"
_NOTE_SIGHTING = """
INSERT INTO sighted VALUES {} ON CONFLICT (collection, id)
DO UPDATE SET kind = excluded.kind, declaration = excluded.declaration
WHERE declaration = '' AND excluded.declaration != ''
"""

BACKED_UP = """
SELECT * FROM sequence UNION ALL SELECT 'sighted', count(*), coalesce(sum(length(declaration)), 0) FROM sighted
"""
"""What a POST changes: a copy that has not what its table ``backup`` has was written to since."""

_ADVANCE = "UPDATE sequence SET last_id = ?, last_created_at = ? WHERE collection = ?"


class Transaction:
    """What may be done inside one transaction; reading ones only read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.given: dict[Collection, int] = {}
        """The highest ids that this transaction gives out."""

    def reserve(self, collection: Collection, rows: int, high_water: HighWaterMark) -> Range:
        """Reserve ``rows`` ids and as many microseconds, all above everything given out so far.

        The times end at the current time where they can, so that a large import does not push the
        times of later rows into the future.
        """
        last = self._last(collection, high_water)
        first_id = last.id + 1
        first_created_at = max(last.created_at + 1, _now() - rows + 1)
        self._connection.execute(_ADVANCE, (first_id + rows - 1, first_created_at + rows - 1, collection))
        self.given[collection] = first_id + rows - 1
        return Range(first_id, first_created_at, rows)

    def stage_all(
        self, rows: Sequence[NewText], high_water: Mapping[Collection, HighWaterMark]
    ) -> list[StagedRow | None]:
        """Add rows; None in the place of each whose text is staged already.

        Up to STAGED_TOGETHER of them are one statement. Each call of SQLite releases the GIL, and reacquiring it
        on a busy server costs 100 us: four rows took 0.9 ms one by one.
        """
        found: list[StagedRow | None] = []
        for first in range(0, len(rows), STAGED_TOGETHER):
            found += self._insert(rows[first : first + STAGED_TOGETHER], high_water)
        self.note_sightings(
            PostedSighting(new.collection, row.id, new.kind, new.declaration)
            for new, row in zip(rows, found, strict=True)
            if row is not None and new.is_declared
        )
        return found

    def note_sightings(self, sightings: Iterable[PostedSighting]) -> None:
        """Keep what POSTs say of texts, one sighting a text: the first, or the first with a declaration."""
        rest = iter(sightings)
        while some := list(islice(rest, STAGED_TOGETHER)):
            values = [value for one in some for value in (one.collection, one.id, one.kind, one.declaration)]
            self._connection.execute(_NOTE_SIGHTING.format(",".join(["(?,?,?,?)"] * len(some))), values)

    def sightings(self) -> list[PostedSighting]:
        """What POSTs said that is not in the evidence yet."""
        found = self._connection.execute("SELECT collection, id, kind, declaration FROM sighted ORDER BY 1, 2")
        return [PostedSighting(Collection.of_name(name), *row) for name, *row in found]

    def forget_sightings(self, sightings: Iterable[PostedSighting]) -> None:
        """Delete sightings that are in the evidence, as far as no later POST changed them."""
        rows = [(one.collection, one.id, one.declaration) for one in sightings]
        self._connection.executemany("DELETE FROM sighted WHERE collection = ? AND id = ? AND declaration = ?", rows)

    def id_of_text(self, collection: Collection, text: str) -> int | None:
        """The id of a staged row; None if the text is not staged."""
        found = self._connection.execute(
            "SELECT id FROM staged WHERE collection = ? AND text_signature = ?", (collection, text)
        ).fetchone()
        return None if found is None else int(found[0])

    def _insert(
        self, rows: Sequence[NewText], high_water: Mapping[Collection, HighWaterMark]
    ) -> list[StagedRow | None]:
        """Add up to STAGED_TOGETHER rows in one statement; None in the place of each that is staged already."""
        first = {c: self._last(c, high_water[c]) for c in {row.collection for row in rows}}
        last = dict(first)
        now = _now()
        staged: list[StagedRow] = []
        values: list[Any] = []
        for row in rows:
            previous = last[row.collection]
            place = HighWaterMark(previous.id + 1, max(previous.created_at + 1, now))
            last[row.collection] = place
            staged.append(StagedRow(place.id, place.created_at, row.text, row.digest))
            checksum = _checksum(row.collection, place.id, place.created_at, row.text, row.digest)
            values += (row.collection, place.id, place.created_at, row.text, row.digest + checksum)
        added = self._connection.execute(_STAGE.format(",".join([_STAGED_VALUES] * len(rows))), values).rowcount
        if added == len(rows):
            self.given |= {collection: place.id for collection, place in last.items()}
            return list(staged)
        inserted = {(c, row.id) for c, above in first.items() for row in self.rows(c, above.id)}
        self.given |= {collection: self.sequence(collection).id for collection in first}
        return [new if (row.collection, new.id) in inserted else None for row, new in zip(rows, staged, strict=True)]

    def _last(self, collection: Collection, high_water: HighWaterMark) -> HighWaterMark:
        """The highest id and time that were given out or are published."""
        last = self.sequence(collection)
        return HighWaterMark(max(last.id, high_water.id), max(last.created_at, high_water.created_at))

    def rows(self, collection: Collection, above: int, up_to: int | None = None) -> list[StagedRow]:
        """The rows with ``above < id``, and ``id <= up_to`` where given, in id order; raises DatabaseError."""
        limit = 2**63 - 1 if up_to is None else up_to
        found = self._connection.execute(
            f"SELECT {', '.join(STAGED_COLUMNS[1:])} FROM staged"
            " WHERE collection = ? AND id > ? AND id <= ? ORDER BY id",
            (collection, above, limit),
        )
        return [self._checked(collection, *row) for row in found]

    def _checked(self, collection: Collection, id: int, created_at: int, text: str, stored: bytes) -> StagedRow:
        digest, checksum = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if checksum != _checksum(collection, id, created_at, text, digest):
            raise sqlite3.DatabaseError(f"the row of {collection} with id {id} is damaged; {RESTORE}")
        return StagedRow(id, created_at, text, digest)

    def forget(self, collection: Collection, up_to: int) -> None:
        """Delete the rows with ``id <= up_to``, which are in the snapshot."""
        self._connection.execute("DELETE FROM staged WHERE collection = ? AND id <= ?", (collection, up_to))

    def sequence(self, collection: Collection) -> HighWaterMark:
        """The highest id and time that were given out."""
        last = self._connection.execute(
            "SELECT last_id, last_created_at FROM sequence WHERE collection = ?", (collection,)
        ).fetchone()
        return HighWaterMark(*last)

    def format(self) -> int:
        (found,) = self._connection.execute("SELECT format FROM about").fetchone()
        return int(found)

    def warehouse(self) -> str:
        """The id of the warehouse that the file belongs to."""
        (id,) = self._connection.execute("SELECT warehouse FROM about").fetchone()
        return str(id)

    def newest_entry(self) -> NotedEntry:
        """What was noted of the newest version.

        A log that ends at an earlier version has lost entries; nothing in the log itself shows that.
        """
        version, sha256 = self._connection.execute("SELECT version, entry FROM about").fetchone()
        return NotedEntry(int(version), str(sha256))

    def note_version(self, noted: NotedEntry) -> None:
        """Note the newest version and the digest of its log entry."""
        self._connection.execute("UPDATE about SET version = ?, entry = ?", (noted.version, noted.sha256))

    def losses(self, given: Mapping[Collection, int], high_water: Mapping[Collection, HighWaterMark]) -> list[Loss]:
        """The ids that were given out and are neither known here nor in the table: their rows are lost.

        ``given`` has the highest ids that were given out, ``high_water`` the table's.
        """
        known = {c: self._last(c, high_water[c]).id for c in COLLECTIONS}
        return [Loss(c, known[c] + 1, given[c]) for c in COLLECTIONS if given[c] > known[c]]

    def integrity_problems(self) -> list[str]:
        """The problems that SQLite finds in its pages and indexes."""
        found = [str(line) for (line,) in self._connection.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def is_as_backed_up(self) -> bool:
        """Whether the sequences and the sightings are as a backup recorded them."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'backup'").fetchone():
            return False
        return self._connection.execute(f"SELECT * FROM backup EXCEPT SELECT * FROM ({BACKED_UP})").fetchone() is None

    def begin_publish(self, run: str) -> None:
        """Record that files named after ``run`` may exist without a commit that names them."""
        self._connection.execute("INSERT OR IGNORE INTO unfinished VALUES (?)", (run,))

    def reserve_from(self, run: str, collection: Collection, first_id: int) -> None:
        """Record that ``run`` has reserved ids from ``first_id`` on, and that its rows are not visible yet."""
        self._connection.execute("INSERT INTO reserved VALUES (?, ?, ?)", (run, collection, first_id))

    def first_reserved(self, collection: Collection, high_water: HighWaterMark) -> int | None:
        """The lowest reserved id whose row may still appear; None if there is none.

        A reservation at or below the snapshot's highest id was published: one run publishes at a
        time, and the reservations of a dead one are deleted before the next run reserves, or are below its ids.
        """
        (first,) = self._connection.execute(
            "SELECT min(first_id) FROM reserved WHERE collection = ? AND first_id > ?", (collection, high_water.id)
        ).fetchone()
        return None if first is None else int(first)

    def end_publish(self, run: str) -> None:
        """Delete the run's records: its rows are visible, or never will be."""
        self._connection.execute("DELETE FROM unfinished WHERE run = ?", (run,))
        self._connection.execute("DELETE FROM reserved WHERE run = ?", (run,))

    def unfinished(self) -> list[str]:
        return [run for (run,) in self._connection.execute("SELECT run FROM unfinished")]


def _now() -> int:
    return time.time_ns() // 1000


def _checksum(collection: Collection, id: int, created_at: int, text: str, digest: bytes) -> bytes:
    """The four bytes that follow a row's digest in the file."""
    row = f"{collection} {id} {created_at} {text}".encode()
    return zlib.crc32(row, zlib.crc32(digest)).to_bytes(4, "big")
