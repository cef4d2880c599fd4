"""Who may publish, and the versions that bring rows: imports and folds.

Invariants
    One publisher at a time: it holds ``publish.lock``, which the kernel releases when the process ends.
    A reserved id or time is never given out again, whether the publish succeeds or not.
    Rows POSTed during a publish are visible before the batch's rows, although their ids are higher. Until the
    commit or ``recover``, staging records the first id that may still appear (``View.stable_up_to``).
    A text that is POSTed while its import is published stays the POST's, and the batch's sightings of it get its id.

Every import folds too: ids are reserved above all staged rows, and these rows come into the version in a file of their
own. The steps are those of ``warehouse/publish/commit.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Collection as AnyOf
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.entry import WRITER_VERSION, sha256_of_entry
from sigdir.warehouse.log.manifest import ManifestFile, history, newest_import
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot, require_newest
from sigdir.warehouse.publish.batch import Batch, BatchFiles, Progress, Staged
from sigdir.warehouse.publish.commit import Commit, VersionContent
from sigdir.warehouse.publish.renewal import MappedDraft, Withdrawn
from sigdir.warehouse.publish.sightings import EvidenceFiles
from sigdir.warehouse.staging.transaction import NotedEntry, PostedSighting, Range, StagedRow, Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import FileLock, make_folder, remove_dead_runs, run_name, sync
from sigdir.warehouse.table.paths import Paths, existing
from sigdir.warehouse.table.places import place_of, store_of
from sigdir.warehouse.transfer.working_copy import pull

Summary = Callable[[], Mapping[str, Any]]
"""Called for a commit's summary once its rows are final."""


@dataclass(frozen=True, slots=True)
class Published:
    """The new version, the number of the import that made it (0 for a fold), and the sightings that came and went."""

    snapshot: Snapshot
    import_id: int
    sightings: int = 0
    withdrawn: Withdrawn = field(default_factory=Withdrawn)


class Publisher:
    """The one process that may publish. Use as a context; raises Busy if ``wait`` is off and the lock is held.

    Before it waits, ``on_wait`` is called with a message that names the process that holds the lock.
    """

    def __init__(
        self,
        paths: Paths,
        threads: int = 2,
        wait: bool = True,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._paths = paths
        self._threads = threads
        self._lock = FileLock(paths.lock, wait, on_wait=on_wait)
        self._dead_runs: set[str] = set()

    def __enter__(self) -> Self:
        make_folder(self._paths.root)
        self._lock.acquire()
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            if store_of(self._paths) is not None:
                pull(self._paths, make=True, threads=self._threads)
            self.staging = Staging(self._paths.staging)
            undo.callback(self.staging.close)
            self.recover()
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.staging.close()
        self._lock.release()

    def recover(self) -> None:
        """Remove what a dead publisher left, and read the snapshot to publish on.

        Deleting is safe: we hold the lock, so a run recorded as unfinished is dead. Its files are named by a version,
        if it died after its commit, or by none.
        """
        paths = self._paths
        if paths.log.is_dir():
            sync(paths.log)  # the last publisher may have died between linking its entry and this
        self.snapshot = read_snapshot(paths)
        if self.snapshot.writer_version > WRITER_VERSION:
            raise UnreadableWarehouse(
                f"{paths.table}: another program changed the table to version {self.snapshot.writer_version} of Delta's"
                f" protocol for writers; this program writes version {WRITER_VERSION}, so it can only read the table"
            )
        require_newest(paths, self.snapshot, self.staging)
        self.staging.require_whole(self.snapshot.high_water)
        with self.staging.exclusive() as staging:
            unfinished = staging.unfinished()
            committed = {summary["run"] for summary in history(paths)} if unfinished else set()
            for run in unfinished:
                if run not in committed:
                    self._remove_files(run)
                if run in committed or store_of(paths) is None:
                    staging.end_publish(run)
                else:  # known until its objects are swept: we may die before that, too
                    self._dead_runs.add(run)
            for collection in COLLECTIONS:
                staging.forget(collection, self.snapshot.high_water[collection].id)
            newest = self.snapshot.version
            if staging.newest_entry().version < newest:  # the last publisher died before it noted its entry
                staging.note_version(NotedEntry(newest, sha256_of_entry(paths, newest)))
        for entry in paths.nameless_entries():
            entry.unlink(missing_ok=True)
        remove_dead_runs(paths.tmp)

    def _remove_files(self, run: str) -> None:
        """Remove what a run without a commit has written into the folder."""
        for file in (*self._paths.files_of_run(run), *self._paths.evidence_of_run(run)):
            file.unlink()
        self._paths.rejects_file(run).unlink(missing_ok=True)

    def commit(self, content: VersionContent) -> Snapshot:
        """Publish a version; raises CommitConflict. What a failed one has written is removed."""
        try:
            Commit(place_of(self._paths), self.staging, content, self._dead_runs).run()
        except BaseException:
            with suppress(WarehouseError, OSError):  # at once: the files may fill the disk
                self.recover()
            raise
        self.snapshot = read_snapshot(self._paths)
        return self.snapshot

    def staged(self, collection: Collection) -> list[StagedRow]:
        """The rows that were POSTed and not folded."""
        with self.staging.reading() as staging:
            return staging.rows(collection, self.snapshot.high_water[collection].id)

    def has_sightings(self) -> bool:
        """Whether POSTs said something that is not in the evidence yet."""
        with self.staging.reading() as staging:
            return bool(staging.sightings())

    def publish(
        self,
        run: str,
        batches: Mapping[Collection, Batch],
        checked: Mapping[Collection, int],
        summary: Summary,
        rejects: Path | None = None,
        progress: Progress = lambda _: None,
        unchanged: AnyOf[str] = (),
        mapped: Sequence[MappedDraft] = (),
    ) -> Published:
        """Make the batches visible in one new version, together with the staged rows below them.

        ``checked`` is the highest staged id that each collection's batch was deduped against. ``summary``
        is called when the batches are final; the run, the import's number and the row counts are added to
        its result. ``rejects`` is a finished rejects file to keep with the import, ``unchanged`` the labels of the
        sources that bring no evidence (``EvidenceFiles.unchanged``), ``mapped`` files of contracts and usage. Raises
        CommitConflict.
        """
        import_id = self._next_import() if batches else 0
        content = _NewRows(
            self._paths, run, self.snapshot, self._threads, batches, dict(checked),
            BatchFiles(self._paths, run, batches, self._threads, progress),
            EvidenceFiles(self._paths, run, self.snapshot.evidence, batches, self._threads, unchanged, mapped),
            summary, rejects, import_id,
        )  # fmt: skip
        snapshot = self.commit(content)
        return Published(snapshot, import_id, content.sightings(), content.withdrawn)

    def _next_import(self) -> int:
        """The number after that of the newest import: 40 ms after a thousand folds, while POST goes on."""
        newest = newest_import(self._paths, self.snapshot.version)
        return newest["import"] + 1 if newest else 1


def fold(paths: Paths, wait: bool = True) -> Published | None:
    """Move the staged rows into the table and what POSTs said into the evidence; None if there is nothing.

    Raises Busy, and UnreadableWarehouse where there is no warehouse: a server's may have been moved away.
    """
    existing(paths.root)
    with Publisher(paths, threads=1, wait=wait) as publisher:
        if not publisher.has_sightings() and not any(publisher.staged(collection) for collection in COLLECTIONS):
            return None
        return publisher.publish(run_name(), {}, {}, lambda: {"kind": "fold"})


@dataclass
class _NewRows(VersionContent):
    """An import's new rows, and the staged rows below them, which are folded with them; without batches a fold.

    ``checked`` is the highest staged id that each collection's batch was compared with.
    """

    batches: Mapping[Collection, Batch]
    checked: dict[Collection, int]
    files: BatchFiles
    evidence: EvidenceFiles
    summary_of_import: Summary
    rejects: Path | None
    import_id: int
    """0 for a fold."""
    withdrawn: Withdrawn = field(default_factory=Withdrawn)
    _ranges: dict[Collection, Range] = field(default_factory=dict)
    _folded: dict[Collection, list[StagedRow]] = field(default_factory=dict)
    _sighted: list[PostedSighting] = field(default_factory=list)

    def reserve(self, staging: Transaction) -> None:
        for collection in COLLECTIONS:
            high_water = self.base.high_water[collection]
            rows = self.batches[collection].rows if collection in self.batches else 0
            ids = self._ranges[collection] = staging.reserve(collection, rows, high_water)
            if rows:
                staging.reserve_from(self.run, collection, ids.first_id)
            self._folded[collection] = staging.rows(collection, high_water.id, ids.first_id - 1)
        self._sighted = staging.sightings()

    def write_data(self) -> None:
        for collection in COLLECTIONS:
            make_folder(self.paths.partition(collection))
        self.files.write(self._ranges, self._folded, self.import_id)
        if self.rejects is not None:
            make_folder(self.paths.rejects)
            sync(self.rejects)
            self.paths.rejects_file(self.run).hardlink_to(self.rejects)  # the run keeps its own for another attempt
            sync(self.paths.rejects)

    def write_evidence(self) -> ManifestFile | None:
        self.evidence.write(self._ranges, self._folded, self._sighted, self.import_id)
        self.withdrawn = self.evidence.withdrawn()  # it may fail, and nothing may after the commit
        return self.evidence.write_manifest() or self.base.manifest

    def added(self) -> list[DataFile]:
        return self.files.written()

    def sightings(self) -> int:
        return self.evidence.sightings()

    def watermarks(self) -> dict[Collection, int]:
        return {
            collection: max(self.base.high_water[collection].id, ids.first_id + ids.rows - 1)
            for collection, ids in self._ranges.items()
        }

    def summary(self) -> dict[str, Any]:
        of_import = {"import": self.import_id} if self.import_id else {}
        rows = {"rows": self.files.rows(folded=False), "folded": self.files.rows(folded=True)}
        return {**self.summary_of_import(), **of_import, **rows}

    def late_rows(self, staging: Transaction) -> Staged:
        late = {c: staging.rows(c, self.checked[c]) for c, batch in self.batches.items() if batch.rows}
        return {collection: rows for collection, rows in late.items() if rows}

    def remove_late(self, late: Staged) -> ManifestFile | None:
        """The POSTed rows keep their texts, and the batch's sightings of the texts get their ids."""
        self.files.remove_texts(late)
        self.evidence.add_late_rows(late)
        self.checked |= {collection: rows[-1].id for collection, rows in late.items()}
        return self.evidence.write_manifest() or self.base.manifest

    def release(self, staging: Transaction) -> None:
        for collection, watermark in self.watermarks().items():
            staging.forget(collection, watermark)
        staging.forget_sightings(self._sighted)
