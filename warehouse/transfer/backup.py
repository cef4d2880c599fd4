"""A consistent copy of a warehouse in use, in a folder or in a store. The next backup there copies only what is new.

Invariants
    Every row that was acknowledged before the backup began is once in a copy that is a folder. A store gets the
    versions: rows that are POSTed and not folded are of none, and come after the next fold.
    The copy always opens as the state of one moment. After an interrupted backup it is the previous state or one in
    between. A first backup into a folder that was interrupted is marked as unfinished.
    Nothing is written into a place that is not a backup of this warehouse, or that was written to since.

Protocol for a folder
    0. Copy the states of mirrors and their spools. The rows that a state counts are in its spool or published,
       so a state may be older than the table and must not be newer: it is put in place last.
    1. Copy staging, as it is at one moment, into a file beside.
    2. Read the log after that. Rows that were folded in between are in both and count as folded because of
       the log's watermark; in the opposite order they would be in neither.
    3. Copy the versions (``transfer.py``), and put staging in place, in one transaction. A server of the copy takes no
       POST from the first entry until then.

    A log that is newer than its staging file is a consistent state, for the reason given in 2. That is why
    staging comes last, and why an interrupted copy can be opened.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.entry import read_entries
from sigdir.warehouse.log.manifest import ManifestFile, manifest_of_entry
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.reader import StagingReader, copy_database, open_read_only
from sigdir.warehouse.staging.transaction import BACKED_UP, HighWaterMark, Transaction
from sigdir.warehouse.staging.writer import Staging, open_staging
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import UnreadableWarehouse, VacuumedEvidence
from sigdir.warehouse.table.files import FileLock, RunFolder, make_folder, remove_dead_runs, sync, write_file
from sigdir.warehouse.table.identity import Identity, read_identity, require_format, usable_identity, write_identity
from sigdir.warehouse.table.paths import Paths, existing, mirror_spool
from sigdir.warehouse.table.places import Folder, NamedFile, put_suppressed, require_store, store_of
from sigdir.warehouse.table.stores import ObjectExists, Store, open_store
from sigdir.warehouse.transfer.transfer import (
    NAMES,
    Place,
    Progress,
    TransferReport,
    data_of,
    evidence_of,
    rejects_of,
    transfer,
)

_TRIES = 10


def backup(source: Paths, copy: Paths, link: bool = False, progress: Progress = lambda _: None) -> TransferReport:
    """Bring the folder ``copy`` up to date; raises UnreadableWarehouse, and Busy where another backup into it is running.

    ``link`` makes hard links of data files where the file system can. ``progress`` is called with the report
    after every file.
    """
    began = time.monotonic()
    existing(source.root)
    here, there = source.root.resolve(), copy.root.resolve()
    if here in (there, *there.parents) or there in here.parents:
        raise UnreadableWarehouse(f"{copy.root} is not apart from {source.root}")
    staging = open_staging(source, makes=False)
    try:
        identity = usable_identity(source)
        _refuse_foreign(copy, identity)
        make_folder(copy.root)
        with FileLock(copy.lock, wait=False):
            is_first = not copy.identity.exists() or read_identity(copy).unfinished
            if is_first:
                write_identity(copy, Identity(identity.format, identity.id, unfinished=True))
            remove_dead_runs(copy.tmp)
            with RunFolder(copy.tmp) as folder, _naming(copy.root):
                target = Folder(copy, folder.path, link, is_first)
                report = _back_up(source, target, folder.path, staging, progress)
            write_identity(copy, identity)
    finally:
        staging.close()
    report.seconds = time.monotonic() - began
    return report


def push(source: Paths, url: str, progress: Progress = lambda _: None) -> TransferReport:
    """Bring a store up to date with a warehouse in use; ``progress`` is called after every file.

    Raises StoreError, UnreadableWarehouse; the store is then at the version it had, or at one in between.
    """
    began = time.monotonic()
    existing(source.root)
    if store_of(source) is not None:
        raise UnreadableWarehouse(f"{source.root} is a copy of a warehouse in a store; push the warehouse itself")
    store = open_store(url)
    require_store(store)
    _claim(store, source, usable_identity(source))
    snapshot = read_snapshot(source)
    held = _held_version(source, store, snapshot.version)
    raw = source.suppressed.read_bytes() if source.suppressed.exists() else b""
    if raw or store.find(str(NAMES.suppressed)) is not None:  # first: a replica hides what its source hides
        put_suppressed(source, store, raw)
    report = TransferReport(staged=_staged(source, snapshot))
    _copy_versions(source, store, snapshot, held, held, report, progress)
    report.seconds = time.monotonic() - began
    return report


def _copy_versions(
    source: Paths, target: Place, snapshot: Snapshot, held: int, since: int, report: TransferReport, progress: Progress,
    publishing: AbstractContextManager[object] | None = None,
) -> None:  # fmt: skip
    """Copy the entries after version ``held``, what the newest version needs, and what those after ``since`` still have.

    ``publishing`` is the context in which the entries get their names.
    """
    entries = [entry for entry in read_entries(source, snapshot.version) if entry.version > since]
    manifests = (manifest_of_entry(source, entry) for entry in entries if entry.version > held)
    older = [
        *data_of(source, (file for entry in entries for file in entry.added), is_needed=False),
        *rejects_of(source, entries),
        *_older_evidence(source, manifests),
    ]  # fmt: skip
    newest = [*data_of(source, snapshot.all_files()), *evidence_of(source, snapshot.manifest)]
    versions = range(held + 1, snapshot.version + 1)
    try:
        transfer([*older, *newest], versions, Folder(source), target, report, progress=progress, publishing=publishing)
    except ObjectExists as error:
        raise UnreadableWarehouse(f"{target} was written to by another: {error}") from None
    report.version = snapshot.version
    report.rows = sum(snapshot.count(collection) for collection in COLLECTIONS)


def _older_evidence(source: Paths, manifests: Iterable[ManifestFile | None]) -> Iterator[NamedFile]:
    """What is left of the evidence of older versions. A vacuum that runs now, or was killed, may have begun to delete it."""
    for manifest in manifests:
        with suppress(VacuumedEvidence):
            yield from evidence_of(source, manifest, is_needed=False)


def _held_version(source: Paths, target: Place, newest: int) -> int:
    """The version that the target has, -1 for none; raises UnreadableWarehouse where it has another history."""
    entries = [each.name for each in target.list(str(NAMES.log)) if each.name.endswith(".json")]
    held = len(entries) - 1
    if held < 0:
        return held
    compared = entries if isinstance(target, Folder) else entries[-1:]
    if (
        held > newest
        or entries[-1] != source.name(source.log_entry(held))
        or any(target.read(name) != (source.root / name).read_bytes() for name in compared)
    ):
        raise UnreadableWarehouse(
            f"{target} was written to by another: it has a history of its own up to {entries[-1]}"
        )
    return held


# Into a store.


def _claim(store: Store, source: Paths, identity: Identity) -> None:
    """Write the warehouse's identity where the store has none; raises UnreadableWarehouse for another one."""
    name = str(NAMES.identity)
    try:
        store.create(name, source.identity.read_bytes())
    except ObjectExists:
        found = json.loads(store.read(name))
        if found.get("id") != identity.id or found.get("format") != identity.format:
            raise UnreadableWarehouse(
                f"{store} holds another warehouse: {found.get('id')} of format {found.get('format')}, not"
                f" {identity.id} of format {identity.format}"
            ) from None


def _staged(source: Paths, snapshot: Snapshot) -> int:
    """Rows that were POSTed and are in no version yet."""
    if not source.staging.exists():
        return 0
    with open_read_only(source.staging, briefly=True) as staging:
        return sum(len(staging.rows(c, snapshot.high_water[c].id)) for c in COLLECTIONS)


# Into a folder.


def _refuse_foreign(copy: Paths, identity: Identity) -> None:
    if not copy.root.exists() or not {entry.name for entry in copy.root.iterdir()} - {copy.lock.name}:
        return
    if not copy.identity.exists():
        raise UnreadableWarehouse(f"{copy.root} is neither empty nor a backup")
    found = read_identity(copy)
    require_format(copy.root, found.format)
    if found.id != identity.id:
        raise UnreadableWarehouse(f"{copy.root} is another warehouse: {found.id}, not {identity.id}")
    if not found.unfinished and not copy.staging.exists():
        raise UnreadableWarehouse(
            f"{copy.staging}: missing, so {copy.root} is a store or a damaged backup; name a store as file://{copy.root}"
        )


def _back_up(
    source: Paths, target: Folder, scratch: Path, staging: StagingReader, progress: Progress
) -> TransferReport:
    """The protocol's steps."""
    copy = target.paths
    mirrors = _copied_mirrors(source, scratch)
    staged = scratch / source.staging.name
    staging.copy(staged)
    snapshot = read_snapshot(source)
    staging.require_whole(snapshot.high_water)  # the copy may have the rows that are lost here
    held = -1 if target.is_unfinished else _held_version(source, target, snapshot.version)
    if not target.is_unfinished:
        with open_read_only(copy.staging) as of_copy:
            _require_as_backed_up(copy, of_copy)
    report = TransferReport(staged=drop_published_rows(staged, snapshot.high_water))
    if source.suppressed.exists():  # first: a copy that opens hides what its source hides
        write_file(copy.suppressed, source.suppressed.read_bytes())
    else:
        copy.suppressed.unlink(missing_ok=True)
    _copy_versions(source, target, snapshot, held, -1, report, progress, _replacing_staging(target, staged))
    _put_mirrors(copy, mirrors)
    return report


@contextmanager
def _replacing_staging(target: Folder, staged: Path) -> Iterator[None]:
    """Replace the copy's staging after the block. A server of the copy takes no POST from the check until then.

    Its row would be lost with the old staging, or have the id of a row of the new entries.
    """
    copy = target.paths
    with ExitStack() as locked:
        if copy.staging_stamp.exists():  # a copy that nobody has opened for writing gets none: a restore would bring it
            of_copy = locked.enter_context(closing(Staging(copy.staging)))
            _require_as_backed_up(copy, locked.enter_context(of_copy.exclusive_statement()))
        yield
        replace_by(copy.staging, staged)
    sync(copy.root)
    failpoints.reach("replaced")


def _require_as_backed_up(copy: Paths, staging: Transaction) -> None:
    if not staging.is_as_backed_up():
        raise UnreadableWarehouse(f"{copy.root} was written to since it was a backup: it has rows of its own")


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Add the folder to errors of the system that name no file: a sync on a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error


def _copied_mirrors(source: Paths, scratch: Path) -> list[tuple[Path, Path]]:
    """Copy each mirror's spool with the state that counts its rows; returns the pairs, spool first.

    A mirror that changes faster than its spool can be copied is left out: the copy keeps its older state.
    """
    taken = []
    for state in source.mirror_states():
        folder = scratch / state.parent.name
        folder.mkdir(exist_ok=True)
        spool = folder / mirror_spool(state).name
        for _ in range(_TRIES):
            content = state.read_bytes() if state.exists() else b""
            with suppress(FileNotFoundError):
                shutil.copyfile(mirror_spool(state), spool)
            if content and state.exists() and state.read_bytes() == content:
                (folder / state.name).write_bytes(content)
                taken.append((spool, folder / state.name))
                break
    return taken


def _put_mirrors(copy: Paths, taken: list[tuple[Path, Path]]) -> None:
    """Put each spool in place, then its state: a mirror starts again where its spool is shorter than its state counts."""
    for files in taken:
        to = copy.mirror(files[0].parent.name)
        make_folder(to)
        for file in files:
            if file.exists():
                sync(file)
                file.replace(to / file.name)
                sync(to)
                failpoints.reach("mirrored")


def drop_published_rows(path: Path, high_water: Mapping[Collection, HighWaterMark]) -> int:
    """Make a copied staging file fit the snapshot of a backup; returns how many rows it still has.

    The sequences and the number of sightings are recorded a second time: a difference later shows that the copy was
    written to.
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
            connection.execute(f"CREATE TABLE backup AS {BACKED_UP}")
            (rows,) = connection.execute("SELECT count(*) FROM staged").fetchone()
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    return int(rows)


def replace_by(path: Path, copy: Path) -> None:
    """Give a staging file the content of another in one transaction, synced; raises UnreadableWarehouse."""
    try:
        with closing(sqlite3.connect(copy)) as connection:
            copy_database(connection, path)
    except sqlite3.Error as error:
        raise UnreadableWarehouse(f"{path}: {error}") from error
    sync(path)
