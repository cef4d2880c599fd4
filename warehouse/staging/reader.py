"""Reading the staging file: for one look, or as a handle that follows the writers.

The stamp is a file beside the database, in shared memory, that shows each commit and the highest ids given out. It holds
a number that changes with every commit, the highest ids, and a checksum of these. The number is ``OPEN`` while a process
may commit: what it commits can be read before the new number is there. The ids are written after the commit and not
synced, so they may be behind the database, never ahead.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sqlite3
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.staging.transaction import ACCEPT, RESTORE, HighWaterMark, Loss, Transaction, create
from sigdir.warehouse.table.errors import DiskFull, UnreadableWarehouse
from sigdir.warehouse.table.files import has_locks, is_disk_full, is_read_only
from sigdir.warehouse.table.identity import usable_identity
from sigdir.warehouse.table.paths import Paths

_BYTES = 32
_GIVEN = struct.Struct(f"<{len(COLLECTIONS)}qI")
_CHECKSUM_BYTES = 4

OPEN = b"\xff" * 8
"""The number while a process may commit. It stays where that process dies, until the next commit."""


def given_out(paths: Paths) -> dict[Collection, int]:
    """The highest ids that were given out, as far as the stamp has them."""
    try:
        return _given_in(paths.staging_stamp.read_bytes()[:_BYTES])
    except OSError:
        return dict.fromkeys(COLLECTIONS, 0)


@contextmanager
def open_stamp(stamp: mmap.mmap, given: Mapping[Collection, int]) -> Iterator[None]:
    """Mark the stamp as open, and show at the end that there was a commit, and ``given``, the highest ids it gave out.

    The caller excludes all other writers.
    """
    (previous,) = struct.unpack("<q", stamp[:8])
    stamp[:8] = OPEN
    try:
        yield
        _note_given(stamp, given)
    finally:
        stamp[:8] = struct.pack("<q", max(previous + 1, time.time_ns()))


def _note_given(stamp: mmap.mmap, given: Mapping[Collection, int]) -> None:
    if given:
        known = _given_in(stamp[:_BYTES])
        ids = struct.pack(f"<{len(COLLECTIONS)}q", *(max(known[c], given.get(c, 0)) for c in COLLECTIONS))
        stamp[8 : 8 + _GIVEN.size] = ids + zlib.crc32(ids).to_bytes(_CHECKSUM_BYTES, "little")


def writable_stamp(path: Path) -> mmap.mmap:
    """The stamp, made where it is missing; raises UnreadableWarehouse."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    try:
        # Allocate the block now: on a full disk this is an error, writing to a hole is a SIGBUS.
        os.posix_fallocate(handle, 0, _BYTES)
        return mmap.mmap(handle, _BYTES)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    finally:
        os.close(handle)


def readable_stamp(path: Path) -> mmap.mmap:
    """The stamp as writers change it; zeros where there is none."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return mmap.mmap(-1, 8)


def _given_in(stamp: bytes) -> dict[Collection, int]:
    """The highest ids by a stamp; zeros where it has none, or was not written as a whole."""
    found = stamp[8 : 8 + _GIVEN.size].ljust(_GIVEN.size, b"\0")
    *ids, checksum = _GIVEN.unpack(found)
    is_whole = checksum == zlib.crc32(found[:-_CHECKSUM_BYTES])
    return dict(zip(COLLECTIONS, ids if is_whole else [0] * len(COLLECTIONS), strict=True))


WAIT_SECONDS = 60.0
"""SQLite's limit for another's transaction. Writers wait before that in a queue without a limit.

A transaction takes a few milliseconds, one that looks a late row up in its batch 50 ms for 10 M rows, and a commit to a
store as long as its requests.
"""


def is_for_readers(paths: Paths) -> bool:
    """Whether nobody here can write into a warehouse: it is on read-only media, or its file system has no locks."""
    return is_read_only(paths.root) or not has_locks(paths.identity)


def cannot_use(path: Path, error: Exception) -> UnreadableWarehouse:
    """What SQLite says of a staging file; of a full disk it may say `disk I/O error`."""
    is_told = "disk is full" in str(error)
    if is_told or (isinstance(error, sqlite3.OperationalError) and is_disk_full(path.parent)):
        return DiskFull(f"{path}: {error}{'' if is_told else '; the disk is full'}")
    return UnreadableWarehouse(f"{path}: {error}")


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
        if is_fixed or has_locks(Paths(path.parent).identity):
            connection = sqlite3.connect(
                f"{path.as_uri()}?{mode}", uri=True, timeout=WAIT_SECONDS, isolation_level=None
            )
        else:  # SQLite would wait for its own lock
            connection = _in_memory(path)
        try:
            connection.execute("BEGIN")
            yield Transaction(connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise cannot_use(path, error) from error


def _live(path: Path) -> sqlite3.Connection | None:
    """A connection that follows the writers of a file; None if nobody has it open for writing."""
    if not Paths(path.parent).staging_wal.exists() or not has_locks(Paths(path.parent).identity):
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
        create(memory, usable_identity(Paths(path.parent)).id)
        return memory
    with TemporaryDirectory(prefix="sigdir-staging-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        if (log := Paths(path.parent).staging_wal).exists():
            shutil.copyfile(log, Paths(copy.parent).staging_wal)
        with closing(sqlite3.connect(copy)) as source:
            source.backup(memory)
    return memory


def copy_database(connection: sqlite3.Connection, path: Path) -> None:
    """Give the file at ``path`` the content of a database, in one transaction; raises sqlite3.Error."""
    with closing(sqlite3.connect(path, timeout=WAIT_SECONDS)) as other:
        other.execute("PRAGMA synchronous = FULL")
        connection.backup(other)


def _connect(database: str) -> sqlite3.Connection:
    return sqlite3.connect(
        database, uri=True, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
    )  # fmt: skip


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
            raise cannot_use(path, error) from error
        self._stamp = readable_stamp(paths.staging_stamp)

    def stamp(self) -> bytes:
        """Eight bytes in shared memory that change with every commit of any process, or ``OPEN`` while one may commit.

        Reading them takes 0.2 microseconds, SQLite's data version 13. A reader that looks into the database when they
        have changed, and while they are ``OPEN``, misses no row that another reader has shown before.
        """
        return self._stamp[:8]

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One read transaction: everything read inside belongs to one state. Raises UnreadableWarehouse."""
        try:
            with self._connection:
                self._connection.execute("BEGIN")
                yield Transaction(self._connection)
        except sqlite3.Error as error:
            raise cannot_use(self._path, error) from error

    def copy(self, path: Path) -> None:
        """Write the current state into a new file. Others may write meanwhile. Raises UnreadableWarehouse."""
        try:
            copy_database(self._connection, path)
        except sqlite3.Error as error:  # names the copy, whose disk may be full
            raise cannot_use(path, error) from error

    def data_version(self) -> int:
        """A number that changes when another process or handle commits, never by our own commits. Raises UnreadableWarehouse."""
        try:
            (number,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.Error as error:
            raise cannot_use(self._path, error) from error
        return int(number)

    def require_whole(self, high_water: Mapping[Collection, HighWaterMark]) -> None:
        """Raise UnreadableWarehouse where pages, indexes or rows are damaged, or rows were lost.

        For the start of a server or publisher: SQLite reads the whole file, 10 ms for 10,000 rows.
        """
        with self.reading() as transaction:
            problems = transaction.integrity_problems()
        if problems:
            raise UnreadableWarehouse(f"{self._path}: damaged: {' '.join(problems[0].split())}; {RESTORE}")
        for loss in self.losses(high_water):
            raise UnreadableWarehouse(f"{self._path}: {loss}; {ACCEPT}")

    def losses(self, high_water: Mapping[Collection, HighWaterMark]) -> list[Loss]:
        """The rows that were POSTed and are lost, because the file or its write-ahead log is damaged or was removed."""
        given = given_out(Paths(self._path.parent))  # before the transaction, after which others give out more
        with self.reading() as transaction:
            return transaction.losses(given, high_water)

    def close(self) -> None:
        self._connection.close()
        self._stamp.close()
