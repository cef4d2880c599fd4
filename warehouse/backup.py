"""A consistent copy of a warehouse in use. Backing up into the same folder again copies only what is new.

Invariants
    Every row that was acknowledged before the backup began is in the copy once.
    The copy always opens as the state of one moment. After an interrupted backup it is the previous state or one in
    between. A first backup that was interrupted is marked as unfinished.
    Nothing is written into a folder that is not a backup of this warehouse, or that was written to since.

Protocol
    0. Copy the states of mirrors and their spools. The rows that a state counts are in its spool or published,
       so a state may be older than the table and must not be newer: it is put in place last.
    1. Copy staging, as it is at one moment, into a file beside.
    2. Read the log after that. Rows that were folded in between are in both and count as folded because of
       the log's watermark; in the opposite order they would be in neither.
    3. Copy the data files, rejects and evidence that the copy lacks: a name is never used twice, so a file that is there
       is right. Then the log's entries in their order, and staging last, in one transaction.

    A log that is newer than its staging file is a consistent state, for the reason given in 2. That is why
    staging comes last, and why an interrupted copy can be opened.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import failpoints
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.evidence.manifest import manifest_of, sources_paths
from sigdir.warehouse.files import FileLock, RunFolder, make_folder, remove_dead_runs, sync, write_file
from sigdir.warehouse.identity import Identity, read_identity, require_format, usable_identity, write_identity
from sigdir.warehouse.log.checkpoint import newest_checkpoint
from sigdir.warehouse.log.entry import LogEntry, read_entries
from sigdir.warehouse.log.evidence import manifest_of_entry
from sigdir.warehouse.paths import Paths, existing, mirror_spool
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.backup import is_as_backed_up, replace_by, settle
from sigdir.warehouse.staging.writer import Staging

_TRIES = 10


@dataclass
class Report:
    """What a backup did. ``present`` files were there already; ``bytes`` counts copied files, not linked ones."""

    version: int = -1
    rows: int = 0
    staged: int = 0
    copied: int = 0
    linked: int = 0
    present: int = 0
    log_entries: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 3)}


def backup(
    source: Paths, copy: Paths, link: bool = False, progress: Callable[[Report], None] = lambda _: None
) -> Report:
    """Bring ``copy`` up to date; raises UnreadableWarehouse, and Busy where another backup into it is running.

    ``link`` makes hard links of data files where the file system can. ``progress`` is called with the report
    after every file.
    """
    began = time.monotonic()
    existing(source.root)
    here, there = source.root.resolve(), copy.root.resolve()
    if here in (there, *there.parents) or there in here.parents:
        raise UnreadableWarehouse(f"{copy.root} is not apart from {source.root}")
    staging = Staging(source.staging)
    try:
        identity = usable_identity(source)
        _refuse_foreign(copy, identity)
        make_folder(copy.root)
        with FileLock(copy.lock, wait=False):
            if not copy.identity.exists():
                write_identity(copy, Identity(identity.format, identity.id, unfinished=True))
            remove_dead_runs(copy.tmp)
            with RunFolder(copy.tmp) as folder, _naming(copy.root):
                work = _Backup(source, copy, folder.path, link, progress)
                work.run(staging)
            write_identity(copy, identity)
    finally:
        staging.close()
    work.report.seconds = time.monotonic() - began
    return work.report


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Add the folder to errors of the system that name no file: a sync on a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error


def _refuse_foreign(copy: Paths, identity: Identity) -> None:
    if not copy.root.exists() or not {entry.name for entry in copy.root.iterdir()} - {copy.lock.name}:
        return
    if not copy.identity.exists():
        raise UnreadableWarehouse(f"{copy.root} is neither empty nor a backup")
    found = read_identity(copy)
    require_format(copy.root, found.format)
    if found.id != identity.id:
        raise UnreadableWarehouse(f"{copy.root} is another warehouse: {found.id}, not {identity.id}")


class _Backup:
    """One backup, step by step."""

    def __init__(
        self, source: Paths, copy: Paths, folder: Path, link: bool, progress: Callable[[Report], None]
    ) -> None:
        self.source, self.copy, self.folder = source, copy, folder
        self.link, self.progress = link, progress
        self.report = Report()
        self.brought: set[Path] = set()
        """The evidence files that the copy has."""

    def run(self, staging: Staging) -> None:
        mirrors = self.copy_mirrors()
        staged = self.folder / self.source.staging.name
        staging.copy(staged)
        snapshot = read_snapshot(self.source)
        entries = list(read_entries(self.source, snapshot.version))
        self.refuse_used(snapshot.version)
        self.report.version = snapshot.version
        self.report.rows = sum(snapshot.count(collection) for collection in COLLECTIONS)
        self.report.staged = settle(staged, snapshot.high_water)
        needed = {file.path for file in snapshot.all_files()}
        self.bring_suppressed()
        self.bring_files(entries, needed)
        self.bring_evidence(entries, snapshot)
        failpoints.reach("brought")
        self.bring_log(snapshot.version)
        failpoints.reach("logged")
        replace_by(self.copy.staging, staged)
        sync(self.copy.root)
        failpoints.reach("replaced")
        self.bring_mirrors(mirrors)

    def copy_mirrors(self) -> list[tuple[Path, Path]]:
        """Copy each mirror's spool with the state that counts its rows; returns the pairs, spool first.

        A mirror that changes faster than its spool can be copied is left out: the copy keeps its older state.
        """
        taken = []
        for state in self.source.mirror_states():
            folder = self.folder / state.parent.name
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

    def bring_mirrors(self, taken: list[tuple[Path, Path]]) -> None:
        """Put each spool in place, then its state: a mirror starts again where its spool is shorter than its state counts."""
        for files in taken:
            to = self.copy.mirror(files[0].parent.name)
            make_folder(to)
            for file in files:
                if file.exists():
                    sync(file)
                    file.replace(to / file.name)
                    sync(to)
                    failpoints.reach("mirrored")

    def refuse_used(self, version: int) -> None:
        """Raise UnreadableWarehouse for a copy that was written to: it is a warehouse of its own now."""
        if read_identity(self.copy).unfinished:  # nothing could open it
            return
        used = not is_as_backed_up(self.copy.staging)
        for file in self.copy.log_entries():
            entry = self.source.log / file.name
            used |= int(file.stem) > version or not entry.exists() or entry.read_bytes() != file.read_bytes()
        if used:
            raise UnreadableWarehouse(
                f"{self.copy.root} was written to since it was a backup: it has a history of its own"
            )

    def bring_suppressed(self) -> None:
        """Copy the list first: a copy that opens hides what its source hides."""
        if self.source.suppressed.exists():
            write_file(self.copy.suppressed, self.source.suppressed.read_bytes())
        else:
            self.copy.suppressed.unlink(missing_ok=True)

    def bring_files(self, entries: list[LogEntry], needed: set[Path]) -> None:
        """Copy the data files and rejects of all versions; those of older versions may have been vacuumed."""
        folders = set()
        for entry in entries:
            rejects = [self.source.rejects_file(entry.summary["run"])] if entry.summary is not None else []
            for file in [*(added.path for added in entry.added), *rejects]:
                if file in needed or file.exists():
                    to = self.copy.root / file.relative_to(self.source.root)
                    make_folder(to.parent)
                    self.bring(file, to)
                    folders.add(to.parent)
        for folder in folders:
            sync(folder)

    def bring_evidence(self, entries: list[LogEntry], snapshot: Snapshot) -> None:
        """Copy the evidence of all versions, each manifest after its files.

        So a manifest that is in the copy is complete.
        """
        manifests = [snapshot.manifest, *(manifest_of_entry(self.source, entry) for entry in reversed(entries))]
        for manifest in dict.fromkeys(found for found in manifests if found is not None):
            to = self.copy.evidence / manifest.path.name
            is_newest = manifest == snapshot.manifest
            if is_newest or (manifest.path.exists() and not to.exists()):
                evidence = manifest_of(manifest)
                for file in evidence.all_files():
                    if file.path not in self.brought and (is_newest or file.path.exists()):
                        self.brought.add(file.path)
                        self.bring(file.path, self.to_folder(file.path))
                for collection in COLLECTIONS:
                    self.sync_copied(self.copy.evidence / collection)
                for document in (*sources_paths(self.source, evidence), manifest.path):
                    self.bring_document(document, self.to_folder(document))
                    self.sync_copied(self.copy.evidence)

    def bring_document(self, file: Path, to: Path) -> None:
        if not to.exists() or to.stat().st_size != file.stat().st_size:
            self.report.bytes += self.bring_bytes(file, to)

    def to_folder(self, file: Path) -> Path:
        """Where a file goes; its folder is made."""
        to = self.copy.root / file.relative_to(self.source.root)
        make_folder(to.parent)
        return to

    def sync_copied(self, folder: Path) -> None:
        if folder.is_dir():
            sync(folder)

    def bring(self, file: Path, to: Path) -> None:
        if to.exists() and to.stat().st_size == file.stat().st_size:
            self.report.present += 1
        elif self.link and self.linked(file, to):
            self.report.linked += 1
        else:
            self.report.bytes += self.bring_bytes(file, to)
            self.report.copied += 1
        self.progress(self.report)

    def linked(self, file: Path, to: Path) -> bool:
        try:
            to.hardlink_to(file)
            return True
        except FileExistsError:
            to.unlink()  # of another size: not this file
            return self.linked(file, to)
        except OSError:  # another file system, or one without links
            return False

    def bring_bytes(self, file: Path, to: Path) -> int:
        part = self.folder / "part"
        shutil.copyfile(file, part)
        sync(part)
        part.replace(to)
        return to.stat().st_size

    def bring_log(self, version: int) -> None:
        """Copy the entries in their order, each whole: the copy opens at the last one that is there."""
        make_folder(self.copy.log)
        for number in range(version + 1):
            to = self.copy.log_entry(number)
            if not to.exists():
                self.bring_bytes(self.source.log_entry(number), to)
                sync(self.copy.log)
                self.report.log_entries += 1
        self.bring_checkpoints(version)

    def bring_checkpoints(self, version: int) -> None:
        """The checkpoint that is read instead of the entries up to it, unless it is of a version since ``version``."""
        newest = newest_checkpoint(self.source)
        if newest is None or newest.version > version:
            return
        for file in newest.files:
            to = self.copy.log / file.name
            if not to.exists():
                self.bring_bytes(file, to)
        sync(self.copy.log)
        write_file(self.copy.last_checkpoint, newest.pointer)
