"""How a version is made, whatever it changes: an import, a fold and a compaction go through one ``Commit``.

Invariants
    Nothing of a version is visible before its log entry has its name, and all of it afterwards.
    One commit at a time: ``Publisher`` holds the lock, and the log takes one entry a version from commits without it.
    A file that a version names is synced, and at the version's place, before the entry has its name.
    POST waits only for two staging transactions, those of steps 1 and 5, and for up to three more where rows that were
    POSTed meanwhile have texts of the version. All are short except the fourth of step 5, which may rewrite files.

Steps
    1. Begin. One staging transaction records the run as unfinished, and reserves what the version needs: ids and times.
       Rows POSTed from here on get higher ids.
    2. Write and sync the data files, then the evidence, named after the run.
    3. Index: build what servers map of them, where a server has used the folder.
    4. Upload them, where the version's place is a store.
    5. Commit. One staging transaction reads the rows that were POSTed since the version's rows were compared with
       staging. If there are none, it gives the log entry its name, ends the run, deletes the folded rows, and notes
       the entry. Otherwise it ends, the files are written again without these texts, and the step is repeated. The
       fourth transaction rewrites and commits at once.
    6. Checkpoint, every hundred versions. A version is complete without it.
    7. Clean up what dead runs have left in the store.

    The entry carries each collection's highest id: the watermark. With it a commit that missed another one fails instead
    of repeating rows. Readers know from it which staged rows are folded, so a crash inside of step 5 shows no row twice.

    A crash at any point leaves files that no version names, staged rows at or below the watermark, or neither.
    ``Publisher.recover`` removes both: at the next publish, or at once where a step has failed.

A warehouse in a store is committed to from its working copy, by the same steps. Publishers on other machines hold no
lock that we see, so a commit may be lost to one of them: CommitConflict.
"""

from __future__ import annotations

import errno
import hashlib
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.visible import prebuild
from sigdir.warehouse.log.entry import first_entry, version_entry
from sigdir.warehouse.log.manifest import ManifestFile, evidence_entry
from sigdir.warehouse.log.snapshot import Snapshot, write_checkpoint
from sigdir.warehouse.publish.batch import Staged
from sigdir.warehouse.staging.transaction import NotedEntry, Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import DiskFull, UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import make_folder, sync, uninterrupted
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import Folder
from sigdir.warehouse.table.stores import StoreError
from sigdir.warehouse.transfer.transfer import sweep

_LATE_ROUNDS = 3
"""Rounds that remove late rows' texts while POST goes on. POST waits for the round after them."""


@dataclass
class VersionContent(ABC):
    """What a version adds to its base and replaces; its files are named after ``run``.

    The defaults are those of a version that moves no row from staging into the table.
    """

    paths: Paths
    run: str
    base: Snapshot
    threads: int

    changes_rows: ClassVar[bool] = True
    """Whether the version has other rows than its base."""

    def reserve(self, staging: Transaction) -> None:  # noqa: B027 - nothing by default
        """Take from staging what the version needs, in the transaction that begins the run."""

    @abstractmethod
    def write_data(self) -> None:
        """Write and sync the data files."""

    @abstractmethod
    def write_evidence(self) -> ManifestFile | None:
        """Write and sync the evidence; returns the file that describes the version's, None for none."""

    @abstractmethod
    def added(self) -> list[DataFile]:
        """The data files that were written."""

    def replaced(self) -> list[DataFile]:
        """Files of the base that the version does not have."""
        return []

    def sightings(self) -> int:
        """How many sightings the version brings."""
        return 0

    def watermarks(self) -> Mapping[Collection, int]:
        """Up to these ids staged rows are folded."""
        return {collection: self.base.high_water[collection].id for collection in COLLECTIONS}

    @abstractmethod
    def summary(self) -> Mapping[str, Any]:
        """What the history says of the version; called once its rows are final."""

    def late_rows(self, staging: Transaction) -> Staged:
        """The rows POSTed since the version's rows were compared with staging."""
        return {}

    def remove_late(self, late: Staged) -> ManifestFile | None:
        """Write the files again without the texts of late rows; returns what ``write_evidence`` does."""
        raise NotImplementedError("it has no late rows")

    def release(self, staging: Transaction) -> None:  # noqa: B027 - nothing by default
        """Delete from staging what the version has, in the transaction that commits it."""


@dataclass
class Commit:
    """One version: ``run`` takes the steps in their order. ``_dead_runs`` are those whose objects may be in the store."""

    _place: Folder
    _staging: Staging
    _content: VersionContent
    _dead_runs: set[str]
    _manifest: ManifestFile | None = None

    def run(self) -> None:
        """Publish the content; raises CommitConflict, and then it is not published."""
        self._begin()
        failpoints.reach("begun")
        self._content.write_data()
        failpoints.reach("data_written")
        self._manifest = self._content.write_evidence()
        failpoints.reach("written")
        self._index()
        failpoints.reach("indexed")
        self._place.upload(self._content.run)
        noted = self._commit()
        write_checkpoint(self._place.paths, noted.version)
        self._place.upload_checkpoint(noted.version)
        failpoints.reach("checkpointed")
        with suppress(StoreError):  # the version is published; the next run sweeps
            self._clean_up()

    def _begin(self) -> None:
        with self._staging.exclusive() as staging:
            staging.begin_publish(self._content.run)
            self._content.reserve(staging)

    def _index(self) -> None:
        content, paths = self._content, self._place.paths
        kept = content.base.files_without(content.replaced())
        prebuild(paths, [*kept, *content.added()], self._manifest, content.threads)

    def _commit(self) -> NotedEntry:
        rounds = 0
        while True:
            noted, late = self._unless_late(removes_at_once=rounds == _LATE_ROUNDS)
            if noted is not None:
                return noted
            self._manifest = self._content.remove_late(late)
            rounds += 1

    def _unless_late(self, removes_at_once: bool) -> tuple[NotedEntry | None, Staged]:
        """Commit, unless rows were POSTed meanwhile, which are returned; with ``removes_at_once`` while POST waits."""
        noted: NotedEntry | None = None
        try:
            with uninterrupted(), self._staging.exclusive() as staging:
                self._require_own_files(staging)
                late = self._content.late_rows(staging)
                if late and removes_at_once:
                    self._manifest = self._content.remove_late(late)
                if not late or removes_at_once:
                    noted = self._append()
                    failpoints.reach("committed")
                    self._end(staging, noted)
        except UnreadableWarehouse:
            if noted is None:
                raise
            # The version is published. Rows still in staging count as folded; the next publish deletes them.
        return noted, late

    def _require_own_files(self, staging: Transaction) -> None:
        """Raise UnreadableWarehouse where another publisher took this run for a dead one, and removed its files."""
        if self._content.run not in staging.unfinished():
            raise UnreadableWarehouse(
                f"{self._place.paths.lock} was removed while this process held it, and another one published meanwhile:"
                " run the command again"
            )

    def _append(self) -> NotedEntry:
        """Place the log entry: from here on the version is visible.

        Raises CommitConflict if another committed on the base, and UnreadableWarehouse where the entry cannot be written.
        """
        content, paths, base = self._content, self._place.paths, self._content.base.version
        summary = {**content.summary(), "run": content.run}
        summary |= evidence_entry(self._manifest, content.sightings())
        try:
            if base < 0:
                make_folder(paths.log)
                _place_entry(self._place, 0, first_entry(), "")
            entry = version_entry(
                paths, content.added(), content.watermarks(), summary, content.replaced(), content.changes_rows
            )
            return _place_entry(self._place, max(base, 0) + 1, entry, content.run)
        except OSError as error:
            kind = DiskFull if error.errno == errno.ENOSPC else UnreadableWarehouse
            raise kind(f"{paths.table}: the commit cannot be written: {error.strerror}") from error

    def _end(self, staging: Transaction, noted: NotedEntry) -> None:
        self._content.release(staging)
        staging.end_publish(self._content.run)
        staging.note_version(noted)

    def _clean_up(self) -> None:
        sweep(self._place, self._dead_runs)
        if self._dead_runs:
            with self._staging.exclusive() as staging:
                for run in self._dead_runs:
                    staging.end_publish(run)
            self._dead_runs.clear()


def _place_entry(place: Folder, version: int, entry: bytes, run: str) -> NotedEntry:
    """Sync an entry, then give it its name; ``run`` is the one that wrote its files.

    Raises CommitConflict if the version is taken, StoreError and OSError.
    """
    part = place.paths.log_part(version, uuid.uuid4().hex[:8])
    try:
        part.write_bytes(entry)
        sync(part)
        place.place_entry(version, part, run)
    finally:
        part.unlink(missing_ok=True)
    return NotedEntry(version, hashlib.sha256(entry).hexdigest())
