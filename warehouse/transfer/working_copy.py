"""A warehouse in a store has a working copy: an ordinary warehouse folder in the user's cache, brought up to date by ``pull``.

Invariants
    The copy is a valid warehouse at every moment (``transfer.py``). Until a first pull has ended it is marked as
    unfinished.
    Entries are checked before the first of them is put in place.
    A file of the newest version that is not as it was written, though the store has it whole, is fetched again.
    The copy keeps the files of every version that was the newest at some time in the last hour. Files that were fetched
    for ``as_of`` stay for an hour. It has all log entries and rejects.

Two processes may pull into one copy: the second waits. A pull takes no publish lock, so it never waits for an import.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.log.entry import existing_version, read_entry
from sigdir.warehouse.log.manifest import ManifestFile, manifest_of_entry, sources_of, version_at
from sigdir.warehouse.log.snapshot import Snapshot, advance, read_snapshot, read_state
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import Busy, NoWarehouse, UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock, RunFolder, dead_runs, make_folder, remove, write_file
from sigdir.warehouse.table.identity import (
    FORMAT,
    Identity,
    read_identity,
    require_format,
    usable_identity,
    write_identity,
)
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.paths import Below, Paths
from sigdir.warehouse.table.places import REQUESTS, Folder, NamedFile, require_store, store_of
from sigdir.warehouse.table.stores import MissingObject, ObjectExists, Store, StoreError
from sigdir.warehouse.table.suppressed import sealed_version
from sigdir.warehouse.transfer.transfer import (
    NAMES,
    TransferReport,
    data_of,
    evidence_of,
    rejects_of,
    survey_of,
    transfer,
    waste,
)

_KEPT = timedelta(hours=1)
_CACHE_GIB = 100
_LIMIT = "SIGDIR_STORE_CACHE_GIB"

IN_STORE = "in-store"
"""A file in a run's folder: the run has objects of the folder's name in the store too."""

Check = Literal["nothing", "log", "bytes"]
"""What a pull looks at of what is there already: the log and sizes of files, or every byte too."""


def pull(
    paths: Paths, as_of: int | datetime | None = None, *, make: bool = False, threads: int = 2, check: Check = "log",
    manifests: bool = False,
) -> PullReport:  # fmt: skip
    """Bring a working copy up to date, and fetch the files of version ``as_of`` too. What is damaged is fetched again.

    With ``make`` a warehouse is made where the store holds none; with ``manifests`` those of all versions are fetched,
    which show what is in the store. Raises StoreError, UnreadableWarehouse; then the copy is as it was, or at a version
    in between.
    """
    store = store_of(paths)
    if store is None:
        raise UnreadableWarehouse(f"{paths.root} is no copy of a warehouse in a store")
    with FileLock(paths.pull_lock):
        _remove_dead_runs(paths, store)
        with RunFolder(paths.tmp) as folder:
            work = _Pull(Folder(paths, folder.path), store, Paths(folder.path), threads, check)
            try:
                work.run(make)
                if as_of is not None:
                    work.fetch_version(as_of)
                if manifests:
                    work.fetch_manifests()
            except UnreadableWarehouse as error:  # of an object, not of the file that it was fetched into
                raise type(error)(str(error).replace(str(folder.path), store.url)) from error
    if work.report.log_entries and not manifests:  # those of older versions would go again
        _tidy(paths)
    return work.report


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


@dataclass(slots=True)
class PullReport(TransferReport):
    """``made`` says that the store held no warehouse and has one now."""

    made: bool = False


class _Pull:
    """One pull. ``scratch`` has the log entries that were fetched and have no place in the copy yet."""

    def __init__(self, copy: Folder, store: Store, scratch: Paths, threads: int, check: Check) -> None:
        self.copy, self.paths, self.store = copy, copy.paths, store
        self.scratch, self.threads, self.check = scratch, threads, check
        self.report = PullReport()

    def run(self, make: bool) -> None:
        identity = self.identity(make)
        is_first = self.copy.is_unfinished = not self.paths.identity.exists() or read_identity(self.paths).unfinished
        if is_first:
            write_identity(self.paths, replace(identity, unfinished=True))
        elif usable_identity(self.paths).id != identity.id:
            raise UnreadableWarehouse(
                f"{self.store} holds another warehouse than its copy {self.paths.root}: remove the copy"
            )
        self.copy_suppressed(identity.has_suppressed)
        have = -1 if is_first else self.newest()
        last = self.newest_of_store(have, is_first)
        if is_first or last > have or self.check != "nothing":
            self.copy_versions(have, last)
        self.report.version = last
        if is_first:
            write_identity(self.paths, identity)
        if self.report.log_entries or not self.paths.staging.exists():
            self.raise_sequences()

    def identity(self, make: bool) -> Identity:
        """What the store's ``warehouse.json`` says; raises UnreadableWarehouse."""
        name = str(NAMES.identity)
        if make:  # whoever publishes
            require_store(self.store)
        try:
            raw = self.store.read(name)
        except MissingObject:
            if not make:
                raise NoWarehouse(
                    f"{self.store}: no warehouse, because there is no {name}; `sigdir import` and `sigdir backup`"
                    " make one"
                ) from None
            raw = json.dumps({"format": FORMAT, "id": uuid.uuid4().hex}).encode() + b"\n"
            try:
                self.store.create(name, raw)
                self.report.made = True
            except ObjectExists:  # another process makes it at the same time
                raw = self.store.read(name)
        self.scratch.identity.write_bytes(raw)
        found = read_identity(self.scratch)
        require_format(self.store.url, found.format)
        return found

    def copy_suppressed(self, is_sealed: bool) -> None:
        """The list comes first: a copy hides what its store hides.

        Raises UnreadableWarehouse where the store has a list and gives something else, or an older one.
        """
        name = str(NAMES.suppressed)
        had = self.paths.suppressed.read_bytes() if self.paths.suppressed.exists() else b""
        try:
            listed = self.store.read(name)
        except MissingObject:
            listed = b""
        version = sealed_version(listed)
        if version < (sealed_version(had) or int(is_sealed)):
            problem = f"version {version}, which is older than that of the copy" if version else "lost or damaged"
            raise UnreadableWarehouse(
                f"{self.store.where(name)}: {problem}; run `sigdir backup` again, or put {name} of a copy back there"
            )
        if not listed:
            self.paths.suppressed.unlink(missing_ok=True)
        elif listed != had:
            write_file(self.paths.suppressed, listed)

    # Versions.

    def newest(self) -> int:
        """The newest version of the copy, -1 for none."""
        found = existing_version(self.paths)
        return -1 if found is None else found

    def newest_of_store(self, have: int, is_first: bool) -> int:
        """The newest version of the store; raises UnreadableWarehouse where it is older than the copy's."""

        def name(version: int) -> str:
            return str(NAMES.log_entry(version))

        if not is_first and self.store.find(name(have + 1)) is None:
            if have >= 0 and self.store.find(name(have)) is None:
                raise UnreadableWarehouse(
                    f"{self.store.where(name(have))}: lost; put {self.paths.log_entry(have)} back there"
                )
            return have
        listed = {each.name for each in self.store.list(str(NAMES.log), after=name(have) if have >= 0 else "")}
        while name(have + 1) in listed:
            have += 1
        return have

    def state_of_copy(self, have: int) -> Snapshot:
        """The newest version of the copy, none where its log is damaged: all entries are fetched again then."""
        before = None
        with suppress(UnreadableWarehouse):
            before = None if self.copy.is_unfinished else read_state(self.paths)
        self.copy.replaces_entries = before is None and have >= 0
        return before or Snapshot()

    def fetch_entries(self, versions: Iterable[int]) -> None:
        """Fetch entries into the scratch folder."""
        make_folder(self.scratch.log)
        for_each(self.fetch, (NAMES.log_entry(version) for version in versions), REQUESTS)

    def fetch(self, name: Path) -> None:
        self.store.download(str(name), self.scratch.root / name)

    def copy_versions(self, have: int, last: int) -> None:
        """Fetch the entries after version ``have`` up to ``last`` and what they need, and put them in place."""
        before = self.state_of_copy(have)
        self.require_same_log(before.version)
        versions = range(before.version + 1, last + 1)
        self.fetch_entries(versions)
        paths = _FetchedLog(self.paths.root, fetched=self.scratch.log)
        entries = [read_entry(paths, version) for version in versions]
        newest = advance(paths, before, last)
        if self.copy.replaces_entries:
            _remove_checkpoints(self.paths)
        self.fetch_documents(newest.manifest)
        needed = [*data_of(paths, newest.all_files()), *evidence_of(paths, newest.manifest)]
        self.require_room(sum(file.size or 0 for file in needed))
        # A reader of this copy may see the versions in between for a moment.
        new = [] if self.copy.is_unfinished else [entry for entry in entries if entry.version > have]
        others = data_of(paths, (file for entry in new for file in entry.added), is_needed=False)
        try:
            transfer(
                [*others, *rejects_of(paths, entries), *needed], versions, self.store, self.copy, self.report,
                log=Folder(self.scratch), check=self.check == "bytes", skip_damaged=True,
                publishing=self.publishing(before, newest),
            )  # fmt: skip
        except ObjectExists as error:  # a publish into this copy has committed another one
            raise UnreadableWarehouse(f"{error}, and is not that of {self.store}; remove {self.paths.root}") from None

    def require_same_log(self, have: int) -> None:
        """Raise UnreadableWarehouse where the store's log does not have the newest entry of the copy."""
        name = NAMES.log_entry(have)
        if have >= 0 and self.store.read(str(name)) != self.paths.log_entry(have).read_bytes():
            raise UnreadableWarehouse(
                f"{self.store.where(str(name))}: not the entry of the copy {self.paths.root}; remove the copy if the"
                " store is right"
            )

    def fetch_documents(self, manifest: ManifestFile | None) -> None:
        """Fetch a manifest and its sources: what else is needed is known from them."""
        if manifest is not None:
            self.fetch_document(manifest.path, manifest.sha256)
            name, digest = sources_of(manifest)
            self.fetch_document(manifest.path.with_name(name), digest)

    def fetch_document(self, path: Path, digest: str) -> None:
        file = NamedFile(self.paths.name(path), None, digest)
        if not path.exists() or self.copy.differs(file):
            self.report.bytes += self.copy.copy_from(self.store, file)

    def require_room(self, size: int) -> None:
        """Raise UnreadableWarehouse where the newest version is larger than the copy may be."""
        limit = _limit_gib()
        if size > limit * (1 << 30):
            raise UnreadableWarehouse(
                f"{self.store}: its newest version has {size / (1 << 30):,.1f} GiB, and the copy in {self.paths.root}"
                f" may have {limit:g}; set {_LIMIT}"
            )

    @contextmanager
    def publishing(self, before: Snapshot, newest: Snapshot) -> Iterator[None]:
        """Build what servers map of new files, where a server has used the copy, and notify its workers of new entries.

        All of them see the entries at once, because a client may read one page from each.
        """
        if newest is before:
            yield
            return
        if self.paths.cache.is_dir():
            from sigdir.warehouse.index.visible import prebuild  # numba, which only servers need

            prebuild(self.paths, newest.all_files(), newest.manifest, self.threads)
        if not self.paths.staging.exists():
            yield
            return
        with closing(Staging(self.paths.staging)) as staging, staging.exclusive_statement():
            yield

    def raise_sequences(self) -> None:
        """Make the staging file, and have it know that the ids of the newest version were given out."""
        high_water = read_snapshot(self.paths).high_water
        with closing(Staging(self.paths.staging)) as staging, staging.exclusive() as transaction:
            for collection in COLLECTIONS:
                transaction.reserve(collection, 0, high_water[collection])

    # Older versions.

    def fetch_version(self, as_of: int | datetime) -> None:
        """Fetch the files of an older version, those that are not vacuumed; raises DamagedFile."""
        version = version_at(self.paths, as_of) if isinstance(as_of, datetime) else as_of
        if version is None:
            return
        state = read_state(self.paths, version)
        files = list(data_of(self.paths, state.all_files(), is_needed=False))
        with suppress(MissingObject):
            self.fetch_documents(state.manifest)
            files += evidence_of(self.paths, state.manifest, is_needed=False)
        transfer(files, (), self.store, self.copy, self.report)
        for file in files:
            with suppress(FileNotFoundError):
                os.utime(self.paths.root / file.name)  # kept for an hour from now

    def fetch_manifests(self) -> None:
        there = {each.name for each in self.store.list(str(NAMES.evidence))}
        for version in range(self.newest(), 0, -1):
            manifest = manifest_of_entry(self.paths, read_entry(self.paths, version))
            if manifest is not None and self.paths.name(manifest.path) in there:
                self.fetch_documents(manifest)
        self.copy.sync()


@dataclass(frozen=True, slots=True)
class _FetchedLog(Paths):
    """A copy's paths, with entries that were fetched in place of those that it has."""

    fetched: Path = Path()
    log = Below("fetched", "")


def _remove_checkpoints(paths: Paths) -> None:
    """Have the log read from its entries."""
    for file in (paths.last_checkpoint, *paths.log.glob("*.parquet")):
        file.unlink(missing_ok=True)


def _limit_gib() -> float:
    """How large a copy may be; raises UnreadableWarehouse where the environment names no such size."""
    written = os.environ.get(_LIMIT) or str(_CACHE_GIB)
    with suppress(ValueError):
        limit = float(written)
        if limit >= 0:  # nan is not
            return limit
    raise UnreadableWarehouse(f"{_LIMIT}: {written!r} is not a number of GiB")


def _tidy(paths: Paths) -> None:
    """Remove from the copy what no version of the last hour names, unless a publish is running."""
    with suppress(Busy), FileLock(paths.lock, wait=False):
        snapshot = read_snapshot(paths)
        survey = survey_of(paths, snapshot, _KEPT.total_seconds(), lambda _: False)
        for kind, path in waste(paths, snapshot, survey.by_age(_KEPT)):
            if kind != "run":  # the next pull removes them with their objects
                remove(path)
