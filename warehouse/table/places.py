"""Where a warehouse is: in a folder or in a store (``stores.py``), under the same names. A commit is given its place.

Invariants
    A file that has its name in a folder is whole: it is written and synced elsewhere, then renamed or linked.
    A version of a store is visible from the moment at which its log entry is created there. All files that it names
    are uploaded before. If several publishers create the same entry, exactly one succeeds.
    A working copy has no entry that its store has not.
    No object that a version names is ever replaced: names begin with the run's, and each attempt to commit is a run
    of its own.

A working copy is a warehouse folder with ``store.json`` in it, which names the store. A publish into it commits to the
store: ``place_of`` gives the place whose ``upload``, ``place_entry`` and ``upload_checkpoint`` do so. For any other
folder these link the entry, and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sigdir.signatures.interruption import check
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import CommitConflict, UnreadableWarehouse
from sigdir.warehouse.table.files import make_folder, sync, write_file
from sigdir.warehouse.table.parallel import for_each, ordered_map
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.stores import MissingObject, Object, ObjectExists, Store, StoreError, open_store
from sigdir.warehouse.table.suppressed import sealed, sealed_version, unsealed

REQUESTS = 8
"""Files that are copied at the same time."""

SWEEP_AGE = timedelta(hours=24)
"""Objects of a run that no version names are removed at this age: no lock shows whether the run still lives."""

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file that a version names, by its name below the warehouse. ``size`` and ``sha256`` are None if not recorded.

    One that is not needed is of an older version, and may have been vacuumed.
    """

    name: str
    size: int | None = None
    sha256: str | None = None
    is_needed: bool = True

    def require_same(self, where: str, size: int, sha256: str) -> None:
        """Raise DamagedFile unless a copy has the recorded size and digest."""
        if self.size not in (None, size) or self.sha256 not in (None, sha256):
            raise DamagedFile(f"{where}: damaged: not what was written: {size:,} bytes with sha256 {sha256}")

    @property
    def is_document(self) -> bool:
        """Whether it is one of the small files that name others."""
        return self.name.endswith(".json")


class DamagedFile(StoreError, UnreadableWarehouse):
    """A file or an object is not what was written."""


class Folder:
    """A warehouse's folder as a place. Files are copied into it by way of ``scratch``, on the same file system."""

    store: Store | None = None
    """Where the folder's versions are committed, if it is a working copy."""

    def __init__(self, paths: Paths, scratch: Path | None = None, links: bool = False, is_unfinished: bool = False):
        """``links`` makes hard links in place of copies. An unfinished folder is opened by nobody, so syncs can wait."""
        self.paths = paths
        self.scratch, self.links, self.is_unfinished = scratch, links, is_unfinished
        self.replaces_entries = False
        """Whether entries that are there may be damaged."""
        self._unsynced: set[Path] = set()

    def __str__(self) -> str:
        return str(self.paths.root)

    def where(self, name: str) -> str:
        return str(self.paths.root / name)

    def read(self, name: str) -> bytes:
        """The whole file; raises MissingObject."""
        try:
            return (self.paths.root / name).read_bytes()
        except FileNotFoundError:
            raise MissingObject(f"{self.where(name)}: missing") from None

    def list(self, folder: str, after: str = "") -> list[Object]:
        """The files below a folder whose names sort after ``after``, by name."""
        found = []
        for parent, _, names in os.walk(self.paths.root / folder):
            begin = self.paths.name(Path(parent))
            for name in (f"{begin}/{name}" for name in names):
                if name > after:  # before a stat of each: a log has many entries
                    with suppress(FileNotFoundError):
                        about = (self.paths.root / name).stat()
                        found.append(Object(name, about.st_size, datetime.fromtimestamp(about.st_mtime, UTC)))
        return sorted(found, key=lambda each: each.name)

    def download(self, name: str, to: Path) -> tuple[int, str]:
        """Copy a file, and return its size and its sha256 in hex; raises MissingObject."""
        digest, size = hashlib.sha256(), 0
        try:
            file = (self.paths.root / name).open("rb")
        except FileNotFoundError:
            raise MissingObject(f"{self.where(name)}: missing") from None
        with file, to.open("wb") as copy:
            while piece := file.read(_PIECE_BYTES):
                check()
                copy.write(piece)
                digest.update(piece)
                size += len(piece)
        return size, digest.hexdigest()

    def put(self, name: str, content: bytes) -> None:
        """Write a small file, whole and synced, or not at all; what has this name is replaced."""
        make_folder((self.paths.root / name).parent)
        write_file(self.paths.root / name, content)

    def copy_from(self, source: Folder | Store, file: NamedFile) -> int:
        """Copy a file of another place; gives the bytes, 0 for a link. Its name may be lost until ``sync``.

        Raises DamagedFile, MissingObject.
        """
        if (
            self.links
            and not file.is_document
            and isinstance(source, Folder)
            and self._linked(source.paths.root / file.name, file.name)
        ):
            return 0
        part = self._part()
        try:
            size, sha256 = source.download(file.name, part)
            file.require_same(source.where(file.name), size, sha256)
            sync(part)
            part.replace(self._named(file.name))
        finally:
            part.unlink(missing_ok=True)
        return size

    def copy_to(self, store: Store, file: NamedFile) -> int:
        """Upload a file; gives its bytes. Raises as ``copy_from`` does."""
        size, sha256 = self._measured(file.name)
        file.require_same(self.where(file.name), size, sha256)
        store.put(file.name, self.paths.root / file.name)
        return size

    def differs(self, file: NamedFile) -> bool:
        """Whether a file that is there has another digest than the recorded one."""
        return file.sha256 not in (None, self._measured(file.name)[1])

    def create_all(self, source: Folder | Store, names: Sequence[str]) -> None:
        """Copy small files that are not there yet, in their order; raises ObjectExists where there is another."""

        def staged(name: str) -> Path:
            part = self._part()
            part.write_bytes(source.read(name))
            sync(part)
            return part

        with ThreadPoolExecutor(REQUESTS) as pool:
            for name, part in zip(names, ordered_map(pool, staged, names, 2 * REQUESTS), strict=True):
                to = self._named(name)
                if self.replaces_entries:
                    part.replace(to)
                else:
                    link_entry(part, to)
                if not self.is_unfinished:
                    self.sync()
        self.sync()

    def sync(self) -> None:
        """Bring the names of copied files to stable storage."""
        while self._unsynced:
            sync(self._unsynced.pop())

    def _measured(self, name: str) -> tuple[int, str]:
        """A file's size and its sha256 in hex; raises MissingObject."""
        return self.download(name, Path(os.devnull))

    def _part(self) -> Path:
        assert self.scratch is not None
        return self.scratch / f"{uuid.uuid4().hex}.part"

    def _named(self, name: str) -> Path:
        """The path of a file that is about to get its name."""
        path = self.paths.root / name
        make_folder(path.parent)
        self._unsynced.add(path.parent)
        return path

    def _linked(self, file: Path, name: str) -> bool:
        to = self._named(name)
        try:
            to.unlink(missing_ok=True)  # of another size: not this file
            to.hardlink_to(file)
            return True
        except OSError:  # another file system, or one without links
            return False

    # What a commit calls, in this order.

    def upload(self, run: str) -> None:
        """Have the files of a run where those that read the version look for them."""

    def place_entry(self, version: int, entry: Path, run: str) -> None:
        """Give a synced log entry its name, which makes the version visible; ``run`` wrote its files.

        Raises CommitConflict if the version is there already, and StoreError. Some StoreErrors say that it is not
        known whether the version was committed; the next run finds out.
        """
        try:
            link_entry(entry, self.paths.log_entry(version))
        except ObjectExists:
            raise CommitConflict(f"{self.paths.table} has a version {version} already") from None
        sync(self.paths.log)

    def upload_checkpoint(self, version: int) -> None:
        """Have the checkpoint of a version, if there is one, where its entry is. A version is complete without it."""

    def write_suppressed(self, raw: bytes) -> None:
        """Replace the suppress list."""
        write_file(self.paths.suppressed, raw)


class WorkingCopy(Folder):
    """A folder whose versions are committed to a store."""

    def __init__(self, paths: Paths, store: Store) -> None:
        super().__init__(paths)
        self.store: Store = store

    def upload(self, run: str) -> None:
        """Upload the files of a run that the store has not: Parquet files, then the documents that name them.

        Documents are uploaded each time: late rows change their bytes and not always their size. Raises StoreError.
        """
        there = {each.name: each.size for each in self._objects(run)}
        files = self._files(run)
        documents = [file for file in files if file.suffix == ".json"]
        missing = [file for file in files if there.get(self.paths.name(file)) != file.stat().st_size]

        def put(file: Path) -> None:
            self.store.put(self.paths.name(file), file)
            failpoints.reach("uploading")

        for_each(put, [file for file in missing if file not in documents], REQUESTS)
        for file in sorted(documents, key=lambda file: not file.name.endswith(".sources.json")):
            put(file)

    def place_entry(self, version: int, entry: Path, run: str) -> None:
        name = self.paths.name(self.paths.log_entry(version))
        self.upload(run)  # what was written again since
        self._require_young(run)
        failpoints.reach("uploaded")
        require_store(self.store)  # again: somebody may serve its folder by now
        try:
            self.store.create(name, entry.read_bytes())
        except ObjectExists:
            self._discard(run)
            raise CommitConflict(f"{self.store} has a version {version} already") from None
        except StoreError as error:
            raise StoreError(
                f"{error}; whether version {version} was published is not known: run the command again, which finds out"
            ) from error
        failpoints.reach("created")
        super().place_entry(version, entry, run)

    def upload_checkpoint(self, version: int) -> None:
        if not (checkpoint := self.paths.checkpoint(version)).exists():
            return
        with suppress(StoreError):  # the next one, a hundred versions later, comes by itself
            for file in (checkpoint, self.paths.last_checkpoint):
                self.store.put(self.paths.name(file), file)

    def write_suppressed(self, raw: bytes) -> None:
        """Replace the list of the store and the copy's; raises StoreError where the copy's was not that of the store."""
        name, mine = self.paths.name(self.paths.suppressed), self.paths.suppressed
        with suppress(MissingObject):
            if self.store.read(name) != (mine.read_bytes() if mine.exists() else b""):
                raise StoreError(
                    f"{self.store.where(name)}: changed since {mine} was fetched: name the warehouse by its URL"
                )
        super().write_suppressed(put_suppressed(self.paths, self.store, raw))

    def _files(self, run: str) -> list[Path]:
        rejects = self.paths.rejects_file(run)
        files = [*self.paths.files_of_run(run), *self.paths.evidence_of_run(run)] if run else []
        return [*files, *([rejects] if run and rejects.exists() else [])]

    def _objects(self, run: str) -> list[Object]:
        """What the store has of a run."""
        # Names begin with the run's time, so what is listed is this run and the later ones.
        begins = {f"{self.paths.name(file.parent)}/{run}" for file in self._files(run)}
        listed = [each for begin in begins for each in self.store.list(begin.rpartition("/")[0], after=begin)]
        return list({each.name: each for each in listed if each.name.rpartition("/")[2].startswith(run)}.values())

    def _require_young(self, run: str) -> None:
        """Raise StoreError where the run's first object is so old that another run may soon sweep it."""
        found = {each.name: each.modified for each in self._objects(run)}
        if any(self.paths.name(file) not in found for file in self._files(run)):
            raise MissingObject(f"{self.store}: a file of this run is gone; run the command again")
        if found and max(found.values()) - min(found.values()) > SWEEP_AGE / 2:
            raise StoreError(f"{self.store}: the upload took over {SWEEP_AGE / 2}; run the command again")

    def _discard(self, run: str) -> None:
        """Remove the objects of a run that has lost its version to another; what fails is left to the sweep."""
        try:
            self.store.delete(each.name for each in self._objects(run))
        except StoreError:
            return


def link_entry(entry: Path, to: Path) -> None:
    """Give a synced file its name; raises ObjectExists where another one has it.

    The same one may be there: another process of this machine has fetched what we have just created in a store.
    """
    try:
        os.link(entry, to)
    except FileExistsError:
        if to.read_bytes() != entry.read_bytes():
            raise ObjectExists(f"{to}: exists already") from None


def store_of(paths: Paths) -> Store | None:
    """The store that the folder is a working copy of; None for any other warehouse. Raises UnreadableWarehouse."""
    try:
        return open_store(str(json.loads(paths.store.read_bytes())["url"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableWarehouse(
            f"{paths.store}: damaged; remove the folder, which is only a copy of a warehouse in a store"
        ) from error


def working_copy(url: str, folder: Path | None = None) -> Paths:
    """The folder of a store's working copy, made where it is missing; raises StoreError, UnreadableWarehouse.

    Without ``folder`` it lies in the folder that SIGDIR_STORE_CACHE names, or in the user's cache.
    """
    store = open_store(url)
    paths = Paths((folder or _cache_folder() / hashlib.sha256(store.url.encode()).hexdigest()[:16]).absolute())
    known = store_of(paths)
    if known is not None and known.url == store.url:
        return paths
    if paths.hold_warehouse():
        what = "a warehouse of its own" if known is None else f"a copy of {known.url}"
        raise UnreadableWarehouse(f"{paths.root} is {what}, not a copy of {store.url}")
    make_folder(paths.root)
    write_file(paths.store, json.dumps({"url": store.url}).encode() + b"\n")
    return paths


def _cache_folder() -> Path:
    named = os.environ.get("SIGDIR_STORE_CACHE")
    if named:
        return Path(named)
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sigdir"
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    return folder


def place_of(paths: Paths) -> Folder:
    """Where the versions of a warehouse are committed; raises UnreadableWarehouse."""
    store = store_of(paths)
    return Folder(paths) if store is None else WorkingCopy(paths, store)


def require_store(store: Store) -> None:
    """Raise UnreadableWarehouse for the folder of a warehouse that takes POSTs: a commit would give their ids again."""
    staging = str(Paths(Path()).staging)
    if store.url.startswith("file:") and store.find(staging) is not None:
        raise UnreadableWarehouse(
            f"{store}: no store, but a warehouse that takes POSTs, because it has {staging}: name the folder without file://"
        )


def put_suppressed(paths: Paths, store: Store, raw: bytes) -> bytes:
    """Write a suppress list into a store, then into its identity that it has one; returns it sealed.

    From then on the store always has a list, and an empty one in place of none: whoever finds none knows that it is
    lost. Raises StoreError.
    """
    name = paths.name(paths.suppressed)
    try:
        before = store.read(name)
    except MissingObject:
        before = b""
    version = sealed_version(before)
    listed = sealed(raw, max(version + 1, int(time.time())))
    if version and unsealed(before) == unsealed(raw):
        listed = before
    else:
        store.put(name, listed)
    name = paths.name(paths.identity)
    identity = json.loads(store.read(name))
    if not identity.get("has_suppressed"):
        store.put(name, json.dumps(identity | {"has_suppressed": True}).encode() + b"\n")
    return listed
