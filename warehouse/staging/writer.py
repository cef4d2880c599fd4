"""One process's handle on the staging file for writing."""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from sigdir.signatures.collections import Collection
from sigdir.warehouse.staging.reader import (
    WAIT_SECONDS,
    StagingReader,
    cannot_use,
    given_out,
    is_for_readers,
    open_stamp,
    writable_stamp,
)
from sigdir.warehouse.staging.transaction import HighWaterMark, Transaction, create
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import file_identity, lock, make_folder, unlock
from sigdir.warehouse.table.identity import FORMAT, Identity, require_format, usable_identity, write_identity
from sigdir.warehouse.table.paths import Paths


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
            self._stamp = writable_stamp(paths.staging_stamp)
            undo.callback(self._stamp.close)
            self._queue = os.open(paths.staging_stamp, os.O_RDWR | os.O_CLOEXEC)
            undo.callback(os.close, self._queue)
            try:
                self._connection = sqlite3.connect(
                    path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False
                )
                undo.callback(self._connection.close)
                self._connect_wal()
                self._connection.execute("PRAGMA synchronous = FULL")
                with self.exclusive():
                    id = self._prepare(path, identity)
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # a damaged name may be in SQLite's message
                raise cannot_use(path, error) from error
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
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _prepare(self, path: Path, identity: Identity) -> str:
        """Make the tables of a new file; returns the warehouse's id."""
        if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'about'").fetchone():
            create(self._connection, identity.id or uuid.uuid4().hex)
        staging = Transaction(self._connection)
        require_format(path, staging.format())
        id = staging.warehouse()
        if identity.id and id != identity.id:
            raise UnreadableWarehouse(f"{path} belongs to another warehouse: to {id}, not to {identity.id}")
        return id

    @contextmanager
    def exclusive(self) -> Iterator[Transaction]:
        """One write transaction: durable once the block has ended, undone where it raises."""
        with self.exclusive_statement() as transaction, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            yield transaction

    @contextmanager
    def exclusive_unsynced(self) -> Iterator[Transaction]:
        """Like ``exclusive`` for what may be lost with the power: without an fsync, and readers are told nothing."""
        with self._alone():
            self._connection.execute("PRAGMA synchronous = NORMAL")
            try:
                with self._connection:
                    self._connection.execute("BEGIN IMMEDIATE")
                    yield Transaction(self._connection)
            finally:
                self._connection.execute("PRAGMA synchronous = FULL")

    @contextmanager
    def exclusive_statement(self) -> Iterator[Transaction]:
        """Exclude all other writers. Every statement is durable by itself, so a single one needs no transaction."""
        transaction = Transaction(self._connection)
        with self._alone(), open_stamp(self._stamp, transaction.given):
            yield transaction

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Exclude all other writers; raises UnreadableWarehouse."""
        # SQLite polls for its own lock at growing intervals; the kernel wakes whoever waits in its queue.
        lock(self._queue)
        try:
            self._require_own_files()
            yield
        except sqlite3.Error as error:
            raise cannot_use(self._path, error) from error
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

    def accept_losses(self, high_water: Mapping[Collection, HighWaterMark]) -> None:
        """Go on without the rows that were lost: their ids are not given out again. ``high_water`` is the table's."""
        given = given_out(Paths(self._path.parent))
        with self.exclusive() as transaction:
            for collection, last in high_water.items():
                transaction.reserve(collection, 0, HighWaterMark(max(last.id, given[collection]), last.created_at))

    def close(self) -> None:
        super().close()
        os.close(self._queue)


def open_staging(paths: Paths, *, makes: bool = True) -> StagingReader:
    """The staging file, for reading alone where nobody here can write into the warehouse; raises UnreadableWarehouse.

    Without ``makes`` a folder without one gets none: that of a store would be none with it.
    """
    reads = is_for_readers(paths) or not (makes or paths.staging.exists())
    return (StagingReader if reads else Staging)(paths.staging)


def make_warehouse(paths: Paths) -> bool:
    """Make an empty warehouse where the folder holds none, and return whether it did; raises UnreadableWarehouse."""
    if paths.hold_warehouse():
        return False
    refuse_other_files(paths)
    make_folder(paths.root)
    Staging(paths.staging).close()
    return True


def refuse_other_files(paths: Paths) -> None:
    """Raise UnreadableWarehouse for a folder that holds files of something else and no warehouse.

    Ours would be strewn among them, and a folder named by mistake would look like an empty directory of signatures.
    """
    if paths.hold_warehouse() or not (files := paths.other_files()):
        return
    named = ", ".join(map(repr, files[:3])) + (" and more" if len(files) > 3 else "")
    raise UnreadableWarehouse(
        f"{paths.root}: no warehouse, and none is made here, because the folder has other files: {named};"
        " name a new or an empty folder: --warehouse DIR"
    )
