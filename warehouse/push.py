"""A local warehouse's versions in a store, from where replicas follow it. Pushing again brings only what is new.

Invariants
    A version is in the store only if everything that it names is there: files first, entries last, in their order, each
    created by a put that one caller wins.
    Nothing is written into a store that holds another warehouse, or versions that this one does not have.

Rows that are POSTed and not folded are of no version: they are pushed after the next fold.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import failpoints
from sigdir.warehouse.backup import Report
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.evidence.manifest import manifest_of, sources_paths
from sigdir.warehouse.home import REQUESTS, put_suppressed, store_of
from sigdir.warehouse.identity import Identity, usable_identity
from sigdir.warehouse.log.checkpoint import newest_checkpoint
from sigdir.warehouse.log.entry import LogEntry, read_entries
from sigdir.warehouse.log.evidence import manifest_of_entry
from sigdir.warehouse.parallel import for_each
from sigdir.warehouse.paths import Paths, existing
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.stores import ObjectExists, Store, open_store


def push(source: Paths, url: str, progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Bring the store up to date with a warehouse in use; ``progress`` is called after every file.

    Raises StoreError, UnreadableWarehouse; the store is then at the version it had, or at one in between.
    """
    began = time.monotonic()
    existing(source.root)
    if store_of(source) is not None:
        raise UnreadableWarehouse(f"{source.root} is a copy of a warehouse in a store; push the warehouse itself")
    work = _Push(source, open_store(url), progress)
    work.run(usable_identity(source))
    work.report.seconds = time.monotonic() - began
    return work.report


class _Push:
    """One push, step by step."""

    def __init__(self, source: Paths, store: Store, progress: Callable[[Report], None]) -> None:
        self.source, self.store, self.progress = source, store, progress
        self.report = Report()
        self.there: dict[str, int] = {}
        """The sizes of the files that the store has."""
        self.brought: set[str] = set()
        """The names of the files that the store has now."""

    def run(self, identity: Identity) -> None:
        self.claim(identity)
        snapshot = read_snapshot(self.source)
        entries = list(read_entries(self.source, snapshot.version))
        pushed = self.pushed_version(snapshot.version)
        self.report.version = snapshot.version
        self.report.rows = sum(snapshot.count(collection) for collection in COLLECTIONS)
        self.report.staged = _staged(self.source, snapshot)
        self.there = {each.name: each.size for folder in self.folders() for each in self.store.list(folder)}
        self.bring_suppressed()
        new = entries[pushed + 1 :]
        if new:
            needed = {file.path for file in snapshot.all_files()}
            self.bring_files(new, needed)
            self.bring_evidence(new, snapshot)
            self.bring_checkpoint(snapshot.version)
            failpoints.reach("pushed")
        for entry in new:
            self.bring_entry(entry.version)

    def folders(self) -> list[str]:
        parts = [self.source.partition(collection) for collection in COLLECTIONS]
        return [self.source.name(folder) for folder in (*parts, self.source.rejects, self.source.evidence)]

    def claim(self, identity: Identity) -> None:
        """Write the warehouse's identity where the store has none; raises UnreadableWarehouse for another one."""
        name = self.source.name(self.source.identity)
        try:
            self.store.create(name, self.source.identity.read_bytes())
        except ObjectExists:
            found = json.loads(self.store.read(name))
            if found.get("id") != identity.id or found.get("format") != identity.format:
                raise UnreadableWarehouse(
                    f"{self.store.url} holds another warehouse: {found.get('id')} of format {found.get('format')}, not"
                    f" {identity.id} of format {identity.format}"
                ) from None

    def pushed_version(self, newest: int) -> int:
        """The version that the store has; raises UnreadableWarehouse where it has another history."""
        folder = self.source.name(self.source.log)
        entries = [each.name for each in self.store.list(folder) if each.name.endswith(".json")]
        version = len(entries) - 1
        if version < 0:
            return -1
        entry = self.source.log_entry(version)
        name = self.source.name(entry)
        if version > newest or entries[-1] != name or self.store.read(name) != entry.read_bytes():
            raise UnreadableWarehouse(
                f"{self.store.url} was written to by another: it has a history of its own up to {entries[-1]}"
            )
        return version

    def bring_suppressed(self) -> None:
        """The list comes first: a replica hides what its source hides."""
        file = self.source.suppressed
        if file.exists() or self.store.find(self.source.name(file)) is not None:
            put_suppressed(self.source, self.store, file.read_bytes() if file.exists() else b"")

    def bring_files(self, entries: list[LogEntry], needed: set[Path]) -> None:
        """Bring the data files and rejects of new versions. Those of older versions may have been vacuumed."""
        files = {added.path for entry in entries for added in entry.added} | needed
        runs = [entry.summary["run"] for entry in entries if entry.summary is not None]
        rejects = {self.source.rejects_file(run) for run in runs}
        self.bring_all(file for file in sorted(files | rejects) if file in needed or file.exists())

    def bring_evidence(self, entries: list[LogEntry], snapshot: Snapshot) -> None:
        """Bring the evidence of new versions, each manifest after its files."""
        manifests = [snapshot.manifest, *(manifest_of_entry(self.source, entry) for entry in reversed(entries))]
        for manifest in dict.fromkeys(found for found in manifests if found is not None):
            if manifest == snapshot.manifest or manifest.path.exists():
                evidence = manifest_of(manifest)
                is_newest = manifest == snapshot.manifest
                self.bring_all(file.path for file in evidence.all_files() if is_newest or file.path.exists())
                for document in (*sources_paths(self.source, evidence), manifest.path):
                    self.bring(document)

    def bring_all(self, files: Iterable[Path]) -> None:
        for_each(self.bring, files, REQUESTS)

    def bring(self, file: Path) -> None:
        """Bring a file that never changes, unless the store has it."""
        name, size = self.source.name(file), file.stat().st_size
        if name in self.brought:  # by an older version that names it too
            return
        self.brought.add(name)
        if self.there.get(name) == size:
            self.report.present += 1
        else:
            self.store.put(name, file)
            self.report.copied += 1
            self.report.bytes += size
        self.progress(self.report)

    def bring_checkpoint(self, version: int) -> None:
        """The checkpoint that is read instead of the entries up to it, unless it is of a version since ``version``."""
        newest = newest_checkpoint(self.source)
        if newest is not None and newest.version <= version:
            for file in newest.files:
                self.store.put(self.source.name(file), file)
            self.store.put(self.source.name(self.source.last_checkpoint), newest.pointer)

    def bring_entry(self, version: int) -> None:
        entry = self.source.log_entry(version)
        try:
            self.store.create(self.source.name(entry), entry.read_bytes())
        except ObjectExists:
            raise UnreadableWarehouse(
                f"{self.store.url} was written to by another: its version {version} is not this one"
            ) from None
        self.report.log_entries += 1


def _staged(source: Paths, snapshot: Snapshot) -> int:
    """Rows that were POSTed and are in no version yet."""
    if not source.staging.exists():
        return 0
    with open_read_only(source.staging, briefly=True) as staging:
        return sum(len(staging.rows(c, snapshot.high_water[c].id)) for c in COLLECTIONS)
