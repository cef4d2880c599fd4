"""The staging file: the sequences of ids and times, and POSTed rows that are not folded yet.

Invariants
    An id is given out once per collection, in order, and created_at rises with it.
    Every change is one transaction that is on stable storage when it returns (WAL, FULL); only the sighting of a
    text that was stored already may be lost with the power.
    A row is here with an id above the snapshot's watermark, or it is in the snapshot; never
    in neither. Rows at or below the watermark were left by a crash and count as folded.
    Damage is noticed when the file is opened: each row has a checksum, SQLite checks its pages and indexes, and
    the stamp has the highest ids that were given out. SQLite itself drops a write-ahead log from its first damaged
    frame on, without a word.

SQLite, because several processes write it at once and each commit is durable by itself
(0.15 ms an insert); a DuckDB file can be opened by one process only.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import struct
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import file_identity, lock, make_folder, sync, unlock
from sigdir.warehouse.identity import FORMAT, Identity, usable_identity, write_identity
from sigdir.warehouse.paths import Paths

_RESTORE = "put staging.sqlite and staging.sqlite-wal back from a backup"

# A writer waits up to this long for another's transaction. Each takes a few milliseconds; only a publisher
# that has to look a late row up in its batch takes longer (50 ms for 10 M rows).
_WAIT_SECONDS = 60.0

_SCRIPT = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL, warehouse TEXT, version INTEGER);
CREATE TABLE IF NOT EXISTS sequence (
    collection TEXT PRIMARY KEY,
    last_id INTEGER NOT NULL,
    last_created_at INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS imports (last_id INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS staged (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    text_signature TEXT NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS staged_text ON staged (collection, text_signature);
CREATE TABLE IF NOT EXISTS unfinished (run TEXT PRIMARY KEY) WITHOUT ROWID;
"""

_TRIGGER = """
CREATE TRIGGER IF NOT EXISTS advance AFTER INSERT ON staged BEGIN
    UPDATE sequence SET last_id = NEW.id, last_created_at = NEW.created_at WHERE collection = NEW.collection;
END
"""

# Created apart from the script, like the trigger: files of earlier program versions get both when they are opened.
_RESERVED = """
CREATE TABLE IF NOT EXISTS reserved (
    run TEXT NOT NULL,
    collection TEXT NOT NULL,
    first_id INTEGER NOT NULL,
    PRIMARY KEY (run, collection)
) WITHOUT ROWID
"""

# The digest of the log's newest entry, which no other entry has: see ``log/chain.py``.
_NEWEST_ENTRY = "CREATE TABLE IF NOT EXISTS newest_entry (version INTEGER NOT NULL, sha256 TEXT NOT NULL)"

# What POSTs say of texts beyond naming them, and that texts were POSTed which were stored already.
_SIGHTED = """
CREATE TABLE IF NOT EXISTS sighted (
    collection TEXT NOT NULL,
    id INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    declaration TEXT NOT NULL,
    PRIMARY KEY (collection, id)
) WITHOUT ROWID
"""
_NOTE_SIGHTING = """
INSERT INTO sighted VALUES (?, ?, ?, ?) ON CONFLICT (collection, id)
DO UPDATE SET kind = excluded.kind, declaration = excluded.declaration
WHERE declaration = '' AND excluded.declaration != ''
"""

_ADVANCE = "UPDATE sequence SET last_id = ?, last_created_at = ? WHERE collection = ?"

# What the stamp's file holds: a number that changes with every commit, the highest ids that were given out, and a
# checksum of these. It is written after the commit and not synced, so it may be behind the database, never ahead.
_STAMP_BYTES = 32
_GIVEN = struct.Struct(f"<{len(COLLECTIONS)}qI")

# Rows of one INSERT statement, which is durable without a transaction around it.
STAGED_TOGETHER = 64

_DIGEST_BYTES = 32
_CHECKSUM_BYTES = 4

_STAGE = "INSERT INTO staged VALUES {} ON CONFLICT (collection, text_signature) DO NOTHING"


def _now() -> int:
    return time.time_ns() // 1000


def _checksum(collection: Collection, id: int, created_at: int, text: str, digest: bytes) -> bytes:
    """The four bytes that follow a row's digest in the file; rows of earlier program versions have none."""
    row = f"{collection} {id} {created_at} {text}".encode()
    return zlib.crc32(row, zlib.crc32(digest)).to_bytes(4, "big")


def _given_in(stamp: bytes) -> dict[Collection, int]:
    """The highest ids by a stamp; zeros where it has none, or was not written as a whole."""
    found = stamp[8 : 8 + _GIVEN.size].ljust(_GIVEN.size, b"\0")
    *ids, checksum = _GIVEN.unpack(found)
    is_whole = checksum == zlib.crc32(found[:-_CHECKSUM_BYTES])
    return dict(zip(COLLECTIONS, ids if is_whole else [0] * len(COLLECTIONS), strict=True))


def given_out(paths: Paths) -> dict[Collection, int]:
    """The highest ids that were given out, as far as the stamp has them."""
    try:
        return _given_in(paths.staging_stamp.read_bytes()[:_STAMP_BYTES])
    except OSError:
        return dict.fromkeys(COLLECTIONS, 0)


@dataclass(frozen=True, slots=True)
class StagedRow:
    """A row that was POSTed and not folded; ``created_at`` in microseconds since 1970, UTC."""

    id: int
    created_at: int
    text: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class PostedSighting:
    """What a POST says of a text, which has this id; as in ``signatures/evidence.py``."""

    collection: Collection
    id: int
    kind: int = 0
    declaration: str = ""


@dataclass(frozen=True, slots=True)
class NewText:
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
class HighWaterMark:
    """The highest id and time of a collection. A sequence never falls below the snapshot's.

    So no id is given out twice where the staging file was lost or replaced and the table was not.
    """

    id: int = 0
    created_at: int = 0


NO_HIGH_WATER: Mapping[Collection, HighWaterMark] = MappingProxyType({c: HighWaterMark() for c in COLLECTIONS})


class Transaction:
    """What may be done inside one exclusive transaction."""

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

    def reserve_import(self, published: int) -> int:
        """The next import's number, above ``published``, the last one that the log names."""
        (last,) = self._connection.execute("SELECT last_id FROM imports").fetchone()
        number = max(int(last), published) + 1
        self._connection.execute("UPDATE imports SET last_id = ?", (number,))
        return number

    def stage(self, collection: Collection, text: str, digest: bytes, high_water: HighWaterMark) -> StagedRow | None:
        """Add a row; None if the text is staged already."""
        return self.stage_all([NewText(collection, text, digest)], {collection: high_water})[0]

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
        for one in sightings:
            self._connection.execute(_NOTE_SIGHTING, (one.collection, one.id, one.kind, one.declaration))

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
        added = self._connection.execute(_STAGE.format(",".join(["(?,?,?,?,?)"] * len(rows))), values).rowcount
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
            "SELECT id, created_at, text_signature, digest FROM staged"
            " WHERE collection = ? AND id > ? AND id <= ? ORDER BY id",
            (collection, above, limit),
        )
        return [self._checked(collection, *row) for row in found]

    def _checked(self, collection: Collection, id: int, created_at: int, text: str, stored: bytes) -> StagedRow:
        digest, checksum = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if checksum and checksum != _checksum(collection, id, created_at, text, digest):
            raise sqlite3.DatabaseError(f"the row of {collection} with id {id} is damaged; {_RESTORE}")
        return StagedRow(id, created_at, text, digest)

    def forget(self, collection: Collection, up_to: int) -> int:
        """Delete the rows with ``id <= up_to``, which are in the snapshot. Returns how many."""
        return self._connection.execute(
            "DELETE FROM staged WHERE collection = ? AND id <= ?", (collection, up_to)
        ).rowcount

    def remove(self, collection: Collection, ids: Sequence[int]) -> None:
        """Delete the rows with these ids, whose texts the table has."""
        rows = [(collection, id) for id in ids]
        self._connection.executemany("DELETE FROM staged WHERE collection = ? AND id = ?", rows)

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
        """The id of the warehouse that the file belongs to; empty in files that are older than the ids."""
        about = self._connection.execute("SELECT * FROM about").fetchone()
        return str(about[1]) if len(about) > 1 else ""

    def version(self) -> int:
        """The newest version whose publish was noted here; -1 for none.

        A log that ends at an earlier version has lost entries; nothing in the log itself shows that.
        """
        about = self._connection.execute("SELECT * FROM about").fetchone()
        return int(about[2]) if len(about) > 2 and about[2] is not None else -1

    def newest_entry(self) -> tuple[int, str] | None:
        """The newest version whose log entry's digest was noted here, and the sha256 in hex; None for none."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'newest_entry'").fetchone():
            return None
        found = self._connection.execute("SELECT version, sha256 FROM newest_entry").fetchone()
        return (int(found[0]), str(found[1])) if found else None

    def note_version(self, version: int, sha256: str) -> None:
        """Note the newest version and the digest of its log entry."""
        self._connection.execute("UPDATE about SET version = ?", (version,))
        self._connection.execute("DELETE FROM newest_entry")
        self._connection.execute("INSERT INTO newest_entry VALUES (?, ?)", (version, sha256))

    def lost(self, given: Mapping[Collection, int]) -> dict[Collection, tuple[int, int]]:
        """The ids, first and last, that were given out and are not known here: their rows are lost."""
        known = {collection: self.sequence(collection).id for collection in COLLECTIONS}
        return {c: (known[c] + 1, given[c]) for c in COLLECTIONS if given[c] > known[c]}

    def integrity_problems(self) -> list[str]:
        """The problems that SQLite finds in its pages and indexes."""
        found = [str(line) for (line,) in self._connection.execute("PRAGMA integrity_check(10)")]
        return [] if found == ["ok"] else found

    def is_as_backed_up(self) -> bool:
        """Whether the sequences are as a backup recorded them."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'backup'").fetchone():
            return False
        return self._connection.execute("SELECT * FROM sequence EXCEPT SELECT * FROM backup").fetchone() is None

    def begin_publish(self, run: str) -> None:
        """Record that files named after ``run`` may exist without a commit that names them."""
        self._connection.execute("INSERT OR IGNORE INTO unfinished VALUES (?)", (run,))

    def reserve_from(self, run: str, collection: Collection, first_id: int) -> None:
        """Record that ``run`` has reserved ids from ``first_id`` on, and that its rows are not visible yet."""
        self._connection.execute("INSERT INTO reserved VALUES (?, ?, ?)", (run, collection, first_id))

    def first_reserved(self, collection: Collection, high_water: HighWaterMark) -> int | None:
        """The lowest reserved id whose row may still appear; None if there is none.

        A reservation at or below the snapshot's highest id was published: one run publishes at a
        time, and the reservations of a dead one are deleted before the next run reserves.
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


def _shared(path: Path) -> mmap.mmap:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    try:
        # Allocate the block now: on a full disk this is an error, writing to a hole is a SIGBUS.
        os.posix_fallocate(handle, 0, _STAMP_BYTES)
        return mmap.mmap(handle, _STAMP_BYTES)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    finally:
        os.close(handle)


@contextmanager
def open_read_only(path: Path, briefly: bool = False) -> Iterator[Transaction]:
    """One read transaction on a staging file, which must exist and is not changed; raises UnreadableWarehouse.

    ``briefly`` makes none of the files that SQLite's readers and writers share: another user could not write them.
    It is for a look of a millisecond.
    """
    # On a read-only file system SQLite cannot make those files. Without a log the file itself is complete, and
    # nobody writes it.
    is_fixed = (briefly or not os.access(path.parent, os.W_OK)) and not Paths(path.parent).staging_wal.exists()
    mode = "immutable=1" if is_fixed else "mode=ro"
    try:
        connection = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True, timeout=_WAIT_SECONDS, isolation_level=None)
        try:
            connection.execute("BEGIN")
            yield Transaction(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error


def _live(path: Path) -> sqlite3.Connection | None:
    """A connection that follows the writers of a file; None if nobody has it open for writing."""
    if not Paths(path.parent).staging_wal.exists():
        return None
    connection = _connect(f"{path.as_uri()}?mode=ro")
    try:
        connection.execute("SELECT format FROM about").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        return None
    return connection


def _in_memory(path: Path) -> sqlite3.Connection:
    """A copy of a file with what is in its write-ahead log; an empty one where the file is missing."""
    memory = _connect(":memory:")
    if not path.exists():
        _create(memory, "")
        memory.execute(_RESERVED)
        return memory
    with TemporaryDirectory(prefix="sigdir-staging-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        if (log := Paths(path.parent).staging_wal).exists():
            shutil.copyfile(log, Paths(copy.parent).staging_wal)
        with closing(sqlite3.connect(copy)) as source:
            source.execute(_RESERVED)
            source.backup(memory)
    return memory


def _connect(database: str) -> sqlite3.Connection:
    return sqlite3.connect(
        database, uri=True, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )  # fmt: skip


def _create(connection: sqlite3.Connection, id: str) -> None:
    """Make the tables of a new file."""
    for statement in _SCRIPT.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO about VALUES (?, ?, -1)", (FORMAT, id))
    connection.execute("INSERT INTO imports VALUES (0)")
    for collection in COLLECTIONS:
        connection.execute("INSERT INTO sequence VALUES (?, 0, 0)", (collection,))


def _readable_stamp(path: Path) -> mmap.mmap:
    """The stamp as writers change it; zeros where there is none."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return mmap.mmap(-1, 8)


class StagingReader:
    """A handle on a staging file for reading. Not for use by two threads at once.

    Where the folder is read-only SQLite cannot make the files that it shares with writers. If a writer elsewhere has
    made them, this reads what it commits; otherwise nobody writes, and a copy in memory is read.
    """

    def __init__(self, path: Path) -> None:
        """Open the file, which may be missing; raises UnreadableWarehouse."""
        paths = Paths(path.parent)
        usable_identity(paths)
        self._path = path
        try:
            self._connection = _live(path) or _in_memory(path)
        except (sqlite3.Error, OSError) as error:
            raise UnreadableWarehouse(f"{path}: {error}") from error
        self._stamp = _readable_stamp(paths.staging_stamp)

    def stamp(self) -> bytes:
        """Eight bytes in shared memory that change after every commit of any process.

        Reading them takes 0.2 microseconds, SQLite's data version 13. A process that dies between its
        commit and the stamp has acknowledged nothing yet, so a reader that checks only the stamp misses
        no acknowledged row.
        """
        return self._stamp[:8]

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One read transaction: everything read inside belongs to one state. Raises UnreadableWarehouse."""
        try:
            self._connection.execute("BEGIN")
            try:
                yield Transaction(self._connection)
            finally:
                self._undo()
        except sqlite3.Error as error:
            raise UnreadableWarehouse(f"{self._path}: {error}") from error

    def data_version(self) -> int:
        """A number that changes when another process or handle commits, never by our own commits. Raises UnreadableWarehouse."""
        try:
            (number,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise UnreadableWarehouse(f"{self._path}: {error}") from error
        return int(number)

    def require_whole(self) -> None:
        """Raise UnreadableWarehouse where pages, indexes or rows are damaged, or rows were lost.

        For the start of a server or publisher: SQLite reads the whole file, 10 ms for 10,000 rows.
        """
        given = given_out(Paths(self._path.parent))  # before the transaction, after which others give out more
        with self.reading() as transaction:
            problems = transaction.integrity_problems()
            lost = transaction.lost(given) if not problems else {}
        if problems:
            raise UnreadableWarehouse(f"{self._path}: damaged: {' '.join(problems[0].split())}; {_RESTORE}")
        for collection, (first, last) in lost.items():
            raise UnreadableWarehouse(
                f"{self._path}: the rows of {collection} with the ids {first} to {last} are lost, because it or its"
                f" write-ahead log is damaged; {_RESTORE}, or go on without them: `sigdir repair`"
            )

    def _undo(self) -> None:
        if self._connection.in_transaction:  # SQLite may have rolled back by itself
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
        self._stamp.close()


class Staging(StagingReader):
    """One process's handle on the staging file. Not for use by two threads at once."""

    def __init__(self, path: Path) -> None:
        """Open the file, made where it is missing; raises UnreadableWarehouse."""
        paths = Paths(path.parent)
        identity = usable_identity(paths)
        with suppress(OSError):
            begin = path.read_bytes()[:16] if 0 < path.stat().st_size < 512 else b""
            if begin and not begin.startswith(b"SQLite format 3\0"):  # SQLite would treat it as a new file
                raise UnreadableWarehouse(f"{path}: file is not a database")
        self._path = path
        self._files: dict[bytes, bytes] = {}
        with ExitStack() as undo:  # a server that retries would run out of handles
            self._stamp = _shared(paths.staging_stamp)
            undo.callback(self._stamp.close)
            self._queue = os.open(paths.staging_stamp, os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, self._queue)
            try:
                self._connection = sqlite3.connect(
                    path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
                )
                undo.callback(self._connection.close)
                self._connect_wal()
                self._connection.execute("PRAGMA synchronous = FULL")
                with self.exclusive():
                    id = self._prepare(path, identity)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # a damaged name may be in SQLite's message
                raise UnreadableWarehouse(f"{path}: {error}") from error
            # After the transaction: if we crash here, the next process adopts the id.
            if not identity.id:
                write_identity(paths, Identity(FORMAT, id))
            self._files = {
                os.fsencode(file): file_identity(os.fsencode(file))
                for file in (path, paths.staging_wal, paths.staging_stamp)
            }
            undo.pop_all()

    def _connect_wal(self) -> None:
        """Turn WAL on. While several processes do so at once, SQLite fails with `locked` without waiting."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare(self, path: Path, identity: Identity) -> str:
        """Create what is missing; returns the warehouse's id."""
        execute = self._connection.execute
        if not execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
            _create(self._connection, identity.id or uuid.uuid4().hex)
            self._raise_sequences()
        execute(_TRIGGER)
        execute(_RESERVED)
        execute(_NEWEST_ENTRY)
        execute(_SIGHTED)
        if not execute("SELECT 1 FROM pragma_table_info('about') WHERE name = 'warehouse'").fetchone():
            execute("ALTER TABLE about ADD COLUMN warehouse TEXT")  # a file of an earlier program version
            execute("ALTER TABLE about ADD COLUMN version INTEGER")
            if not identity.id:
                execute("UPDATE about SET warehouse = ?", (uuid.uuid4().hex,))
        (id,) = execute("SELECT warehouse FROM about").fetchone()
        if identity.id and id != identity.id:
            raise UnreadableWarehouse(
                f"{path} belongs to another warehouse: to {id or 'one without an id'}, not to {identity.id}"
            )
        (found,) = execute("SELECT format FROM about").fetchone()
        if found != FORMAT:
            raise UnreadableWarehouse(f"{path} has format {found}; this version reads format {FORMAT}")
        return str(id)

    @contextmanager
    def exclusive(self) -> Iterator[Transaction]:
        """One write transaction: durable once the block has ended, undone where it raises."""
        with self.exclusive_statement() as transaction:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield transaction
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise

    @contextmanager
    def exclusive_unsynced(self) -> Iterator[Transaction]:
        """Like ``exclusive`` for what may be lost with the power: without an fsync, and readers are told nothing."""
        lock(self._queue)
        try:
            self._require_own_files()
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield Transaction(self._connection)
                self._connection.execute("COMMIT")
            except BaseException:
                self._undo()
                raise
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error as error:
            raise UnreadableWarehouse(f"{self._path}: {error}") from error
        finally:
            unlock(self._queue)

    @contextmanager
    def exclusive_statement(self) -> Iterator[Transaction]:
        """Exclude all other writers. Every statement is durable by itself, so a single one needs no transaction."""
        # SQLite polls for its own lock at growing intervals; the kernel wakes whoever waits in its queue.
        lock(self._queue)
        try:
            self._require_own_files()
            transaction = Transaction(self._connection)
            yield transaction
            if transaction.given:
                self._note_given(transaction.given)
            (previous,) = struct.unpack("<q", self._stamp[:8])
            self._stamp[:8] = struct.pack("<q", max(previous + 1, time.time_ns()))
        except sqlite3.Error as error:
            raise UnreadableWarehouse(f"{self._path}: {error}") from error
        finally:
            unlock(self._queue)

    def _require_own_files(self) -> None:
        """Raise UnreadableWarehouse where a file was removed or replaced since it was opened: 3 us.

        What is committed into a file without a name is lost when the process ends.
        """
        for file, identity in self._files.items():
            if file_identity(file) != identity:
                raise UnreadableWarehouse(
                    f"{os.fsdecode(file)} was removed or replaced while it was open; put it back and restart the servers"
                )

    def _note_given(self, given: Mapping[Collection, int]) -> None:
        known = _given_in(self._stamp[:_STAMP_BYTES])
        ids = struct.pack(f"<{len(COLLECTIONS)}q", *(max(known[c], given.get(c, 0)) for c in COLLECTIONS))
        self._stamp[8 : 8 + _GIVEN.size] = ids + zlib.crc32(ids).to_bytes(4, "little")

    def losses(self) -> dict[Collection, tuple[int, int]]:
        """The ids, first and last, that were given out and whose rows are lost."""
        given = given_out(Paths(self._path.parent))
        with self.reading() as transaction:
            return transaction.lost(given)

    def accept_losses(self) -> dict[Collection, tuple[int, int]]:
        """Go on without the rows that were lost: their ids are not given out again. Returns first and last ids."""
        with self.exclusive() as transaction:
            lost = transaction.lost(given_out(Paths(self._path.parent)))
            self._raise_sequences()
        return lost

    def _raise_sequences(self) -> None:
        """No id that was given out is given out again, also where the staging file is new."""
        for collection, id in given_out(Paths(self._path.parent)).items():
            self._connection.execute(
                "UPDATE sequence SET last_id = max(last_id, ?) WHERE collection = ?", (id, collection)
            )

    def copy(self, path: Path) -> None:
        """Write the current state into a new file. Others may write meanwhile. Raises UnreadableWarehouse."""
        try:
            _copy(self._connection, path)
        except sqlite3.Error as error:  # names the copy, whose disk may be full
            raise UnreadableWarehouse(f"{path}: {error}") from error

    def close(self) -> None:
        super().close()
        os.close(self._queue)


def make_warehouse(paths: Paths) -> bool:
    """Make an empty warehouse where the folder holds none, and return whether it did; raises UnreadableWarehouse."""
    if paths.hold_warehouse():
        return False
    make_folder(paths.root)
    Staging(paths.staging).close()
    return True


# A backup's staging file.


def settle(path: Path, high_water: Mapping[Collection, HighWaterMark]) -> int:
    """Make a copied staging file fit the snapshot of a backup; returns how many rows it still has.

    The sequences are recorded a second time: a difference later shows that the copy was written to.
    """
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            connection.execute("DELETE FROM unfinished")  # the copy has no files of unfinished runs
            staging = Transaction(connection)
            for collection, last in high_water.items():
                staging.forget(collection, last.id)
                connection.execute(
                    "UPDATE sequence SET last_id = max(last_id, ?), last_created_at = max(last_created_at, ?)"
                    " WHERE collection = ?",
                    (last.id, last.created_at, collection),
                )
            connection.execute("DROP TABLE IF EXISTS backup")
            connection.execute("CREATE TABLE backup AS SELECT * FROM sequence")
            (rows,) = connection.execute("SELECT count(*) FROM staged").fetchone()
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    return int(rows)


def is_as_backed_up(path: Path) -> bool:
    """Whether a staging file is a backup's and has given out no id since; raises UnreadableWarehouse."""
    with open_read_only(path) as staging:
        return staging.is_as_backed_up()


def replace_by(path: Path, copy: Path) -> None:
    """Give a staging file the content of another in one transaction, synced; raises UnreadableWarehouse."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            _copy(connection, path)
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    sync(path)


def _copy(connection: sqlite3.Connection, path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=_WAIT_SECONDS)) as other:
        other.execute("PRAGMA synchronous = FULL")
        connection.backup(other)
