"""A warehouse in a store has a working copy: an ordinary warehouse folder in the user's cache, brought up to date by ``pull``.

Invariants
    The copy is a valid warehouse at every moment: data files, evidence and checkpoints come before the log entries
    that name them, and the entries come in their order. Until a first pull has ended it is marked as unfinished.
    A data file or a file of evidence is put in place only if its sha256 is that of the entry or manifest that names it.
    Entries are checked as a chain before the first of them is put in place.
    A file of the newest version that is not as it was written, though the store has it whole, is fetched again.
    The copy keeps the files of every version that was the newest at some time in the last hour. Files that were fetched
    for ``as_of`` stay for an hour. It has all log entries and rejects.

Two processes may pull into one copy: the second waits. A pull takes no publish lock, so it never waits for an import.
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import failpoints
from sigdir.warehouse.errors import Busy, NoWarehouse, UnreadableWarehouse
from sigdir.warehouse.evidence.manifest import EvidenceFile, Manifest, manifest_of, sources_paths
from sigdir.warehouse.files import FileLock, RunFolder, dead_runs, make_folder, remove, sync, write_file
from sigdir.warehouse.home import REQUESTS, SWEEP_AGE, store_of
from sigdir.warehouse.identity import (
    FORMAT,
    Identity,
    read_identity,
    require_format,
    usable_identity,
    write_identity,
)
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.chain import Broken, Chain
from sigdir.warehouse.log.entry import LogEntry, existing_version, read_entry
from sigdir.warehouse.log.evidence import ManifestFile, manifest_at, manifest_of_entry
from sigdir.warehouse.log.history import history, version_at
from sigdir.warehouse.log.state import TableState, read_state
from sigdir.warehouse.parallel import for_each
from sigdir.warehouse.parquet import sha256_of
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.stores import MissingObject, Object, ObjectExists, Store, StoreError
from sigdir.warehouse.suppressed import sealed_version

_KEPT = timedelta(hours=1)
_CACHE_GIB = 100
_LIMIT = "SIGDIR_STORE_CACHE_GIB"

IN_STORE = "in-store"
"""A file in a run's folder: the run has objects of the folder's name in the store too."""


@dataclass(slots=True)
class Pulled:
    """What a pull did: the newest version (-1 for none), new log entries, fetched files and their bytes.

    ``made`` says that the store held no warehouse and has one now.
    """

    version: int = -1
    entries: int = 0
    files: int = 0
    bytes: int = 0
    made: bool = False


Check = Literal["nothing", "log", "bytes"]
"""What a pull looks at of what is there already: the log and sizes of files, or every byte too."""


def pull(
    paths: Paths, as_of: int | datetime | None = None, *, make: bool = False, threads: int = 2, check: Check = "log"
) -> Pulled:  # fmt: skip
    """Bring a working copy up to date, and fetch the files of version ``as_of`` too. What is damaged is fetched again.

    With ``make`` a warehouse is made where the store holds none. Raises StoreError, UnreadableWarehouse; then the copy
    is as it was, or at a version in between.
    """
    store = store_of(paths)
    if store is None:
        raise UnreadableWarehouse(f"{paths.root} is no copy of a warehouse in a store")
    with FileLock(paths.pull_lock):
        _remove_dead_runs(paths, store)
        with RunFolder(paths.tmp) as folder:
            work = _Pull(paths, store, Paths(folder.path), threads, check)
            with work.naming_objects():
                work.run(make)
                if as_of is not None:
                    work.fetch_version(as_of)
    if work.pulled.entries:
        _tidy(paths)
    return work.pulled


def _remove_dead_runs(paths: Paths, store: Store) -> None:
    """Remove the folders of dead runs, and the objects of those that an engine's tasks wrote into the store."""
    for folder in dead_runs(paths.tmp):
        if (folder / IN_STORE).exists():
            remove_run(store, paths.name(folder))
        remove(folder)


def remove_run(store: Store, folder: str) -> None:
    """Remove what a run has below ``folder`` in the store; what fails is left to the sweep."""
    with suppress(StoreError):
        store.delete(each.name for each in store.list(folder))


class _Pull:
    """One pull. ``scratch`` is a folder in which new files lie until they are checked."""

    def __init__(self, paths: Paths, store: Store, scratch: Paths, threads: int, check: Check = "nothing") -> None:
        self.paths, self.store, self.scratch, self.threads, self.check = paths, store, scratch, threads, check
        self.pulled = Pulled()
        self._folders: set[Path] = set()

    def run(self, make: bool) -> None:
        identity = self.identity(make)
        is_first = not self.paths.identity.exists() or read_identity(self.paths).unfinished
        if is_first:
            write_identity(self.paths, replace(identity, unfinished=True))
        elif usable_identity(self.paths).id != identity.id:
            raise UnreadableWarehouse(
                f"{self.store.url} holds another warehouse than its copy {self.paths.root}: remove the copy"
            )
        self.bring_suppressed(identity.has_suppressed)
        if not is_first and self.check != "nothing":
            self.mend()
        have = -1 if is_first else self.newest()
        if is_first or self.store.find(self.entry_name(have + 1)) is not None:
            self.bring_versions(None if is_first else read_state(self.paths), have, is_first)
        elif have >= 0 and self.store.find(self.entry_name(have)) is None:
            raise UnreadableWarehouse(
                f"{self.store.where(self.entry_name(have))}: lost; put {self.paths.log_entry(have)} back there"
            )
        else:
            self.pulled.version = have
        if is_first:
            write_identity(self.paths, identity)
        if self.pulled.entries or not self.paths.staging.exists():
            self.raise_sequences()

    def mend(self) -> None:
        """Fetch again what the newest version needs and the copy has not as it was written."""
        try:
            state = read_state(self.paths)
        except UnreadableWarehouse:
            self.mend_log()
            state = read_state(self.paths)
        if state is None:
            return
        digests = _digests(history(self.paths)) if self.check == "bytes" else {}
        self.fetch({self.paths.in_table(path): file.size for path, file in state.files.items()}, digests)
        self.bring_evidence(state.manifest, self.fetch_documents(state.manifest))
        for folder in self._folders:
            sync(folder)

    def mend_log(self) -> None:
        """Fetch all entries again, and do without the checkpoint until the next one."""
        make_folder(self.scratch.log)
        versions = range(self.newest() + 1)
        for_each(self.fetch_entry, versions, REQUESTS)
        self.require_chain([read_entry(self.scratch, version) for version in versions], Chain())
        for version in versions:
            self.scratch.log_entry(version).replace(self.paths.log_entry(version))
        for file in (self.paths.last_checkpoint, *self.paths.log.glob("*.parquet")):
            file.unlink(missing_ok=True)
        sync(self.paths.log)
        self.pulled.files += len(versions)

    def raise_sequences(self) -> None:
        """Make the staging file, and have it know that the ids of the newest version were given out."""
        high_water = read_snapshot(self.paths).high_water
        staging = Staging(self.paths.staging)
        try:
            with staging.exclusive() as transaction:
                for collection in COLLECTIONS:
                    transaction.reserve(collection, 0, high_water[collection])
        finally:
            staging.close()

    def identity(self, make: bool) -> Identity:
        """What the store's ``warehouse.json`` says; raises UnreadableWarehouse."""
        name = self.paths.name(self.paths.identity)
        try:
            raw = self.store.read(name)
        except MissingObject:
            if not make:
                raise NoWarehouse(
                    f"{self.store.url}: no warehouse, because there is no {name}; `sigdir import` and `sigdir backup`"
                    " make one"
                ) from None
            raw = json.dumps({"format": FORMAT, "id": uuid.uuid4().hex}).encode() + b"\n"
            try:
                self.store.create(name, raw)
                self.pulled.made = True
            except ObjectExists:  # another process makes it at the same time
                raw = self.store.read(name)
        self.scratch.identity.write_bytes(raw)
        found = read_identity(self.scratch)
        require_format(self.store.url, found.format)
        return found

    @contextmanager
    def naming_objects(self) -> Iterator[None]:
        """Have errors name the objects, and not the files that these were fetched into."""
        try:
            yield
        except UnreadableWarehouse as error:
            raise type(error)(str(error).replace(str(self.scratch.root), self.store.url)) from error

    def newest(self) -> int:
        """The newest version of the copy, -1 for none."""
        found = existing_version(self.paths)
        return -1 if found is None else found

    def entry_name(self, version: int) -> str:
        return self.paths.name(self.paths.log_entry(version))

    # New versions.

    def bring_versions(self, state: TableState | None, have: int, is_first: bool) -> None:
        """Fetch the entries after version ``have`` and what they need, and put them in place."""
        folder = self.paths.name(self.paths.log)
        listed = {each.name for each in self.store.list(folder, after=self.entry_name(have) if have >= 0 else "")}
        last = have
        while self.entry_name(last + 1) in listed:
            last += 1
        versions = range(have + 1, last + 1)
        make_folder(self.scratch.log)
        for_each(self.fetch_entry, versions, REQUESTS)
        entries = [read_entry(self.scratch, version) for version in versions]
        self.require_chain(entries, state.chain if state is not None else Chain())
        files, others = self.files_of(entries, state)
        manifest = self.manifest_of(entries, state)
        digests = _digests(entry.summary for entry in entries)
        evidence = self.fetch_documents(manifest)
        self.require_room(files, evidence)
        self.fetch({self.paths.in_table(path): file.size for path, file in files.items()}, digests)
        if not is_first:  # a reader of this copy may see the versions in between for a moment
            self.fetch({self.paths.in_table(path): file.size for path, file in others.items()}, digests, optional=True)
        self.bring_evidence(manifest, evidence)
        self.bring_rejects(entries)
        for folder_ in self._folders:
            sync(folder_)
        self.bring_checkpoint(last)
        failpoints.reach("pulled")
        _build(self.paths, files.values(), [path for path in files if state is None or path not in state.files], manifest,
              self.threads)  # fmt: skip
        make_folder(self.paths.log)
        with self.noticed_by_readers():
            for version in versions:
                self.link_entry(version)
        sync(self.paths.log)
        self.pulled.version, self.pulled.entries = last, len(versions)

    @contextmanager
    def noticed_by_readers(self) -> Iterator[None]:
        """Have all workers of a server see new entries at once: a client may read one page from each of them."""
        if not self.paths.staging.exists():
            yield
            return
        with closing(Staging(self.paths.staging)) as staging, staging.exclusive_statement():
            yield

    def fetch_entry(self, version: int) -> None:
        to = self.scratch.log_entry(version)
        self.store.download(self.entry_name(version), to)
        sync(to)

    def require_chain(self, entries: list[LogEntry], chain: Chain) -> None:
        """Raise UnreadableWarehouse unless the entries are whole and continue those of the copy."""
        for entry in entries:
            try:
                chain = chain.after(entry.version, entry.sha256, entry.vouched)
            except Broken as broken:
                raise UnreadableWarehouse(
                    f"{self.store.where(self.entry_name(broken.version))}: damaged: {broken}"
                ) from broken

    def files_of(
        self, entries: list[LogEntry], state: TableState | None
    ) -> tuple[dict[Path, DataFile], dict[Path, DataFile]]:
        """The data files of the newest version, and the others that the entries brought."""
        files = dict(state.files) if state is not None else {}
        others: dict[Path, DataFile] = {}
        for entry in entries:
            for file in entry.added:
                path = self.in_copy(file.path)
                files[path] = replace(file, path=path)
            for removed in map(self.in_copy, entry.removed):
                if removed in files:
                    others[removed] = files.pop(removed)
        return files, others

    def in_copy(self, file: Path) -> Path:
        """The place in the copy of a file that is named below the scratch folder."""
        if not file.is_relative_to(self.scratch.root):
            raise UnreadableWarehouse(f"{self.store.url}: a log entry names {file}, which is not in the table")
        return self.paths.root / file.relative_to(self.scratch.root)

    def manifest_of(self, entries: list[LogEntry], state: TableState | None) -> ManifestFile | None:
        """The manifest of the newest version; a commit of another program has that of the version before it."""
        for entry in reversed(entries):
            if entry.summary is not None:
                found = manifest_of_entry(self.scratch, entry)
                return None if found is None else replace(found, path=self.in_copy(found.path))
        return state.manifest if state is not None else None

    def require_room(self, files: Mapping[Path, DataFile], evidence: Manifest | None) -> None:
        """Raise UnreadableWarehouse where the newest version is larger than the copy may be."""
        size = sum(file.size for file in files.values())
        size += sum(file.size for file in evidence.all_files()) if evidence is not None else 0
        limit = _limit_gib()
        if size > limit * (1 << 30):
            raise UnreadableWarehouse(
                f"{self.store.url}: its newest version has {size / (1 << 30):,.1f} GiB, and the copy in {self.paths.root}"
                f" may have {limit:g}; set {_LIMIT}"
            )

    def fetch(self, sizes: Mapping[str, int], digests: Mapping[str, str], optional: bool = False) -> None:
        """Fetch data files, named as in the log; with ``optional`` those that are gone are left out."""
        table = self.paths.name(self.paths.table)
        if any(name not in digests and not (self.paths.table / name).exists() for name in sizes):
            digests = _digests(history(self.paths)) | dict(digests)  # somebody has removed files of the copy

        def one(name: str) -> None:
            try:
                self.fetch_file(f"{table}/{name}", sizes[name], digests.get(name))
            except MissingObject:
                if not optional:
                    raise

        for_each(one, sizes, REQUESTS)

    def fetch_file(self, name: str, size: int | None, digest: str | None) -> None:
        """Fetch an object that never changes, unless it is there; raises StoreError if it is not what was written."""
        to = self.paths.root / name
        is_there = to.exists() and size in (None, to.stat().st_size)
        if is_there and not (self.check == "bytes" and digest is not None and sha256_of(to) != digest):
            return
        make_folder(to.parent)
        part = self.scratch.root / f"{uuid.uuid4().hex}.part"
        try:
            found_size, found = self.store.download(name, part)
            if size not in (None, found_size) or digest not in (None, found):
                raise StoreError(
                    f"{self.store.where(name)}: not what was written: {found_size:,} bytes with sha256 {found}"
                )
            sync(part)
            part.replace(to)
        finally:
            part.unlink(missing_ok=True)
        self._folders.add(to.parent)
        self.pulled.files += 1
        self.pulled.bytes += found_size

    # Evidence, rejects, the suppress list, checkpoints.

    def fetch_documents(self, manifest: ManifestFile | None) -> Manifest | None:
        """Fetch a manifest and its sources into the scratch folder, and read them; raises UnreadableWarehouse."""
        if manifest is None:
            return None
        with suppress(UnreadableWarehouse, OSError):
            evidence = manifest_of(manifest)  # this process may have read it before it was damaged
            digests = {manifest.path: manifest.sha256}
            if evidence.sources_file is not None:
                digests[self.paths.evidence / evidence.sources_file[0]] = evidence.sources_file[1]
            if all(sha256_of(path) == digest for path, digest in digests.items()):
                return evidence
        make_folder(self.scratch.evidence)
        document = self.scratch.evidence / manifest.path.name
        self.store.download(self.paths.name(manifest.path), document)
        try:
            name = str(json.loads(document.read_bytes())["sources"]["name"])
        except (ValueError, KeyError, TypeError):
            name = ""
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise UnreadableWarehouse(f"{self.store.where(self.paths.name(manifest.path))}: damaged")
        self.store.download(self.paths.name(self.paths.evidence / name), self.scratch.evidence / name)
        return manifest_of(replace(manifest, path=document))

    def bring_evidence(self, manifest: ManifestFile | None, evidence: Manifest | None) -> None:
        """Fetch the files of a manifest, then put its sources and itself in place."""
        if manifest is None or evidence is None:
            return

        def one(file: EvidenceFile) -> None:
            place = self.paths.evidence / file.collection / file.path.name
            self.fetch_file(self.paths.name(place), file.size, file.sha256)

        for_each(one, evidence.all_files(), REQUESTS)
        self.bring_documents(manifest, evidence)

    def bring_documents(self, manifest: ManifestFile, evidence: Manifest) -> None:
        """Put the sources of a manifest in place, then itself."""
        make_folder(self.paths.evidence)
        for document in (*sources_paths(self.scratch, evidence), self.scratch.evidence / manifest.path.name):
            to = self.in_copy(document)
            if document.exists():
                sync(document)
                document.replace(to)
            sync(self.paths.evidence)

    def bring_rejects(self, entries: list[LogEntry]) -> None:
        """Fetch what the imports rejected; an import without rejects has no file."""
        imports = [entry.summary for entry in entries if entry.summary is not None and "import" in entry.summary]
        runs = [summary["run"] for summary in imports if summary["totals"]["rejected"]]
        names = [self.paths.name(self.paths.rejects_file(run)) for run in runs]

        def one(name: str) -> None:
            with suppress(MissingObject):
                self.fetch_file(name, None, None)

        for_each(one, names, REQUESTS)

    def bring_suppressed(self, is_sealed: bool) -> None:
        """The list comes first: a copy hides what its store hides.

        Raises UnreadableWarehouse where the store has a list and gives something else, or an older one.
        """
        name = self.paths.name(self.paths.suppressed)
        had = self.paths.suppressed.read_bytes() if self.paths.suppressed.exists() else b""
        try:
            listed = self.store.read(name)
        except MissingObject:
            listed = b""
        version = sealed_version(listed)
        if version < (sealed_version(had) or int(is_sealed)):
            problem = f"version {version}, which is older than that of the copy" if version else "lost or damaged"
            raise UnreadableWarehouse(
                f"{self.store.where(name)}: {problem}; run `sigdir backup` again, or put {self.paths.suppressed.name} of a"
                " copy back there"
            )
        if not listed:
            self.paths.suppressed.unlink(missing_ok=True)
        elif listed != had:
            write_file(self.paths.suppressed, listed)

    def bring_checkpoint(self, last: int) -> None:
        """The checkpoint that is read instead of the entries up to it. A copy works without it."""
        with suppress(MissingObject, ValueError, KeyError, TypeError):
            pointer = self.store.read(self.paths.name(self.paths.last_checkpoint))
            version = int(json.loads(pointer)["version"])
            name = self.paths.name(self.paths.checkpoint(version))
            if version <= last and not self.paths.checkpoint_files(version):
                make_folder(self.paths.log)
                self.fetch_file(name, None, None)
                sync(self.paths.log)
                write_file(self.paths.last_checkpoint, pointer)

    def link_entry(self, version: int) -> None:
        entry, to = self.scratch.log_entry(version), self.paths.log_entry(version)
        try:
            os.link(entry, to)
        except FileExistsError:  # a publish into this copy has committed it
            if to.read_bytes() != entry.read_bytes():
                raise UnreadableWarehouse(
                    f"{to} is not the entry of {self.store.url}; remove {self.paths.root}"
                ) from None

    # Older versions.

    def fetch_version(self, as_of: int | datetime) -> None:
        """Fetch the files of an older version, those that are not vacuumed."""
        version = version_at(self.paths, as_of) if isinstance(as_of, datetime) else as_of
        state = read_state(self.paths, version) if version is not None else None
        if state is None:
            return
        summaries = history(self.paths, state.version)
        sizes = {self.paths.in_table(path): file.size for path, file in state.files.items()}
        self.fetch(sizes, _digests(summaries), optional=True)
        with suppress(MissingObject):
            self.bring_evidence(state.manifest, self.fetch_documents(state.manifest))
        for name in sizes:
            with suppress(FileNotFoundError):
                os.utime(self.paths.table / name)  # kept for an hour from now


def _limit_gib() -> float:
    """How large a copy may be; raises UnreadableWarehouse where the environment names no such size."""
    written = os.environ.get(_LIMIT) or str(_CACHE_GIB)
    with suppress(ValueError):
        limit = float(written)
        if limit >= 0:  # nan is not
            return limit
    raise UnreadableWarehouse(f"{_LIMIT}: {written!r} is not a number of GiB")


def _digests(summaries: Iterable[Mapping[str, object] | None]) -> dict[str, str]:
    """The sha256 of data files by their names in the log, as the commits recorded them."""
    found: dict[str, str] = {}
    for summary in summaries:
        digests = (summary or {}).get("sha256")
        if isinstance(digests, dict):
            found |= digests
    return found


def _build(
    paths: Paths, files: Iterable[DataFile], new: Iterable[Path], manifest: ManifestFile | None, threads: int
) -> None:
    """Build what servers map of the new files, where a server has used the copy."""
    if not paths.cache.is_dir():
        return
    from sigdir.warehouse.index.prebuild import build_indexes, build_ranks  # numba, which only servers need

    by_path = {file.path: file for file in files}
    build_indexes(paths, [by_path[path] for path in new], threads)
    build_ranks(paths, by_path.values(), manifest, threads)


def _tidy(paths: Paths) -> None:
    """Remove from the copy what no version of the last hour names, unless a publish is running."""
    before = time.time() - _KEPT.total_seconds()
    with suppress(Busy), FileLock(paths.lock, wait=False):
        snapshot = read_snapshot(paths)
        kept = {file.path for file in snapshot.all_files()}
        documents = {snapshot.manifest} if snapshot.manifest is not None else set()
        for version in range(snapshot.version, 0, -1):
            entry = read_entry(paths, version)
            if entry.committed_at.timestamp() < before:
                break
            kept.update(entry.removed)
            older = manifest_at(paths, version - 1)
            documents |= {older} if older is not None else set()
        for document in documents:
            if document.path.exists():
                evidence = manifest_of(document)
                kept |= {document.path, *sources_paths(paths, evidence), *(file.path for file in evidence.all_files())}
        for file in (*paths.data_files(), *paths.evidence_files()):
            if file not in kept and file.stat().st_mtime < before:
                file.unlink()
        if paths.cache.is_dir():
            from sigdir.warehouse.index.view import unused_indexes  # numba, which only servers need

            for unused in unused_indexes(paths, snapshot):
                remove(unused)


# The store.

_RUN = re.compile(r"(?:^|/)(\d{16}-[0-9a-f]{8})")


def sweep(paths: Paths, dead: Collection[str] = ()) -> None:
    """Remove from the store what ``orphans`` finds; nothing is done for a warehouse that is a folder.

    ``dead`` are runs of this copy that died without a commit. Call it after a commit: before that the request by which
    one of them creates its entry may still be on its way, and afterwards there is an entry of that version.
    """
    store = store_of(paths)
    left = orphans(paths, store, dead) if store is not None else []
    if store is not None and left:
        store.delete(each.name for each in left)


def orphans(paths: Paths, store: Store, dead: Collection[str] = ()) -> list[Object]:
    """What runs have left in the store that ended over SWEEP_AGE ago without a commit, or are known to be dead.

    A run is committed if an entry of the copy, which is up to date, names it. Times are those of the store's clock:
    what is so much older than the newest object is old.
    """
    folders = [paths.partition(collection) for collection in COLLECTIONS]
    folders += [paths.evidence, paths.rejects, paths.tmp]
    listed = [each for folder in folders for each in store.list(paths.name(folder))]
    newest = max((each.modified for each in listed), default=None)
    left = [
        each for each in listed if (newest is not None and newest - each.modified > SWEEP_AGE) or _run_of(each) in dead
    ]
    if not left:
        return []
    committed = {summary["run"] for summary in history(paths)}
    return [each for each in left if _run_of(each) not in (None, *committed)]


def _run_of(found: Object) -> str | None:
    """The run that an object's name begins with."""
    run = _RUN.search(found.name)
    return run[1] if run else None


def fetch_manifests(paths: Paths) -> None:
    """Bring the manifests of all versions that the store still has into the copy; raises StoreError."""
    store = store_of(paths)
    assert store is not None
    there = {each.name for each in store.list(paths.name(paths.evidence)) if each.name.endswith(".json")}
    with FileLock(paths.pull_lock), RunFolder(paths.tmp) as folder:
        work = _Pull(paths, store, Paths(folder.path), 1)
        for version in range(work.newest(), 0, -1):
            manifest = manifest_of_entry(paths, read_entry(paths, version))
            if manifest is not None and not manifest.path.exists() and paths.name(manifest.path) in there:
                evidence = work.fetch_documents(manifest)
                assert evidence is not None
                work.bring_documents(manifest, evidence)
