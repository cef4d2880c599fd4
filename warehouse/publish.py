"""How rows become visible: data files first, one commit last.

Invariants
    One publisher at a time: it holds ``publish.lock``, which the kernel releases when the process ends.
    Nothing of a batch is visible until the commit, and all of it after the commit.
    A reserved id or time is never given out again, whether the publish succeeds or not.
    Rows POSTed during a publish are visible before the batch's rows, although their ids are higher. Until the
    commit or ``recover``, staging records the first id that may still appear (``View.stable_up_to``).
    POST waits only for the exclusive staging transactions: one of step 1, one to four of step 3. All are
    short except the fourth of step 3, which may rewrite files.

Protocol
    1. In one staging transaction: reserve the ids and times of the batch, read the staged rows below
       them, and record the run as unfinished. Rows POSTed from here on get higher ids.
    2. Write and sync the files of the batch, and one file of those staged rows: every import folds too. Then write
       and sync their sightings, and the manifest of the version's evidence.
    3. In one staging transaction: read the rows that were POSTed since the batch was deduped. If there are
       none, commit to the log, sync the log, and delete the folded rows from staging. Otherwise end the
       transaction, rewrite the files that hold one of their texts without it, and repeat. The fourth
       transaction rewrites and commits at once. The POSTed row keeps the text, and the batch's sightings of the
       text get its id; ids may have gaps.

    The commit carries one transaction number per collection, its highest id: the watermark. With it a
    publisher that missed a commit fails instead of repeating rows. Readers know from it which staged rows
    are folded, so a crash between the commit and the deletion shows no row twice.

    A crash at any point leaves files that no commit names, staged rows at or below the watermark,
    or neither; ``Publisher.recover`` removes both at the next publish.

A warehouse in a store is published into its working copy, by the same steps: the newest version is fetched first, the
files are uploaded before step 3, and the commit is that of ``warehouse/home.py``. Publishers on other machines hold no
lock that we see, so the commit may be lost to one of them: CommitConflict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Collection as AnyOf
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse import failpoints
from sigdir.warehouse.batch import Batch, BatchFiles, FileWriter, Progress, Staged
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.evidence.batch import EvidenceFiles
from sigdir.warehouse.evidence.renewal import NOTHING_WITHDRAWN, Withdrawn
from sigdir.warehouse.files import FileLock, make_folder, remove_dead_runs, run_name, sync, uninterrupted
from sigdir.warehouse.home import store_of, upload, upload_checkpoint
from sigdir.warehouse.index.prebuild import build_indexes, build_ranks
from sigdir.warehouse.log.actions import WRITER_VERSION
from sigdir.warehouse.log.checkpoint import write_checkpoint
from sigdir.warehouse.log.commit import append, data_file
from sigdir.warehouse.log.evidence import ManifestFile, evidence_entry
from sigdir.warehouse.log.history import history, last_import
from sigdir.warehouse.paths import Paths, existing
from sigdir.warehouse.snapshot import Snapshot, read_snapshot, require_newest
from sigdir.warehouse.staging.rows import PostedSighting, Range, StagedRow
from sigdir.warehouse.staging.transaction import Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.stores import StoreError
from sigdir.warehouse.working_copy import pull, sweep

_LATE_ROUNDS = 3
"""Rounds that remove late rows' texts while POST goes on. POST waits for the round after them."""

Summary = Callable[[], Mapping[str, Any]]
"""Called for a commit's summary once its rows are final."""


@dataclass(frozen=True, slots=True)
class Published:
    """The new version, the number of the import that made it (0 for a fold), and the sightings that came and went."""

    snapshot: Snapshot
    import_id: int
    sightings: int = 0
    withdrawn: Withdrawn = NOTHING_WITHDRAWN


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
        self._wait = wait
        self._on_wait = on_wait
        self._lock = FileLock(paths.lock)
        self._dead_runs: set[str] = set()

    def __enter__(self) -> Self:
        make_folder(self._paths.root)
        self._lock.acquire(self._wait, self._on_wait)
        with ExitStack() as undo:
            undo.callback(self._lock.release)
            if store_of(self._paths) is not None:
                pull(self._paths, make=True, threads=self._threads)
            self.staging = Staging(self._paths.staging)
            undo.callback(self.staging.close)
            self.recover()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        self.staging.require_whole()
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
            newest = self.snapshot.newest_entry()
            # The last publisher may have died before it noted its entry.
            if newest is not None and staging.newest_entry() != newest:
                staging.note_version(*newest)
        for entry in paths.nameless_entries():
            entry.unlink(missing_ok=True)
        remove_dead_runs(paths.tmp)

    def _remove_files(self, run: str) -> None:
        """Remove what a run without a commit has written into the folder."""
        for file in (*self._paths.files_of_run(run), *self._paths.evidence_of_run(run)):
            file.unlink()
        self._paths.rejects_file(run).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove what dead runs have left in the store, after a commit; raises StoreError."""
        sweep(self._paths, self._dead_runs)
        if self._dead_runs:
            with self.staging.exclusive() as staging:
                for run in self._dead_runs:
                    staging.end_publish(run)
            self._dead_runs.clear()

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
        writer: FileWriter | None = None,
    ) -> Published:
        """Make the batches visible in one new version, together with the staged rows below them.

        ``checked`` is the highest staged id that each collection's batch was deduped against. ``summary``
        is called when the batches are final; the run, the import's number and the row counts are added to
        its result. ``rejects`` is a finished rejects file to keep with the import, ``unchanged`` the labels of the
        sources that bring no evidence (``unchanged_sources``). ``writer`` writes the batches' data files, threads of this
        process without one. Raises CommitConflict.
        """
        publication = _Publication(self._paths, self.staging, self.snapshot, run, self._threads, unchanged)
        import_id, sightings, withdrawn = publication.run_to_commit(
            batches, checked, summary, rejects, progress, writer
        )
        version = max(self.snapshot.version, 0) + 1
        write_checkpoint(self._paths, version)
        upload_checkpoint(self._paths, version)
        with suppress(StoreError):  # the version is published; the next run sweeps
            self._sweep()
        self.snapshot = read_snapshot(self._paths)  # after the checkpoint, whose digest the next entry records
        return Published(self.snapshot, import_id, sightings, withdrawn)


def fold(paths: Paths, wait: bool = True) -> Published | None:
    """Move the staged rows into the table and what POSTs said into the evidence; None if there is nothing.

    Raises Busy, and UnreadableWarehouse where there is no warehouse: a server's may have been moved away.
    """
    existing(paths.root)
    with Publisher(paths, threads=1, wait=wait) as publisher:
        if not publisher.has_sightings() and not any(publisher.staged(collection) for collection in COLLECTIONS):
            return None
        return publisher.publish(run_name(), {}, {}, lambda: {"kind": "fold"})


@dataclass(frozen=True, slots=True)
class _Reservation:
    """What step 1 reserved, and the staged rows below it, which are folded with the batch."""

    import_id: int
    ranges: Mapping[Collection, Range]
    folded: Staged
    sighted: list[PostedSighting]
    watermarks: Mapping[Collection, int]


class _Publication:
    """One publish, step by step as in the protocol above."""

    def __init__(
        self, paths: Paths, staging: Staging, snapshot: Snapshot, run: str, threads: int, unchanged: AnyOf[str]
    ) -> None:
        self._paths, self._staging, self._snapshot = paths, staging, snapshot
        self._run, self._threads, self._unchanged = run, threads, unchanged

    def run_to_commit(
        self,
        batches: Mapping[Collection, Batch],
        checked: Mapping[Collection, int],
        summary: Summary,
        rejects: Path | None,
        progress: Progress,
        writer: FileWriter | None,
    ) -> tuple[int, int, Withdrawn]:
        """All steps; returns the import's number, 0 without a batch, and which sightings came and went."""
        for collection in COLLECTIONS:
            make_folder(self._paths.partition(collection))
        reserved = self._reserve(batches)
        failpoints.reach("reserved")
        files = BatchFiles(self._paths, self._run, batches, self._threads, progress, writer)
        files.write(reserved.ranges, reserved.folded, reserved.import_id)
        evidence = EvidenceFiles(
            self._paths, self._run, self._snapshot.evidence, batches, self._threads, self._unchanged
        )
        evidence.write(reserved.ranges, reserved.folded, reserved.sighted, reserved.import_id)
        failpoints.reach("evidence_written")
        if rejects is not None:
            self._keep_rejects(rejects)
        failpoints.reach("written")
        build_indexes(self._paths, map(data_file, files.written()), self._threads)
        upload(self._paths, self._run)
        self._commit(batches, dict(checked), files, evidence, reserved, summary)
        failpoints.reach("published")
        return reserved.import_id, evidence.sightings(), evidence.withdrawn()

    def _reserve(self, batches: Mapping[Collection, Batch]) -> _Reservation:
        """Step 1."""
        imported = last_import(self._paths) if batches else 0  # 40 ms after a thousand folds, while POST goes on
        import_id = 0
        ranges, folded, watermarks = {}, {}, {}
        with self._staging.exclusive() as staging:
            staging.begin_publish(self._run)
            if batches:
                import_id = staging.reserve_import(imported)
            for collection in COLLECTIONS:
                high_water = self._snapshot.high_water[collection]
                rows = batches[collection].rows if collection in batches else 0
                ids = ranges[collection] = staging.reserve(collection, rows, high_water)
                if rows:
                    staging.reserve_from(self._run, collection, ids.first_id)
                folded[collection] = staging.rows(collection, high_water.id, ids.first_id - 1)
                watermarks[collection] = max(high_water.id, ids.first_id + rows - 1)
            sighted = staging.sightings()
        return _Reservation(import_id, ranges, folded, sighted, watermarks)

    def _keep_rejects(self, rejects: Path) -> None:
        make_folder(self._paths.rejects)
        sync(rejects)
        self._paths.rejects_file(self._run).hardlink_to(rejects)  # the run keeps its own for another attempt
        sync(self._paths.rejects)

    def _commit(
        self,
        batches: Mapping[Collection, Batch],
        checked: dict[Collection, int],
        files: BatchFiles,
        evidence: EvidenceFiles,
        reserved: _Reservation,
        summary: Summary,
    ) -> None:
        """Step 3. Up to four rounds, each in an exclusive staging transaction, for which POST waits.

        The first three rewrite files for late rows after their transaction, the fourth inside it.
        """
        manifest = evidence.write_manifest()
        failpoints.reach("manifest_written")
        of_version = [*self._snapshot.all_files(), *map(data_file, files.written())]
        build_ranks(self._paths, of_version, manifest or self._snapshot.manifest, self._threads)
        for round_number in range(_LATE_ROUNDS + 1):
            committed: tuple[int, str] | None = None
            try:
                with uninterrupted(), self._staging.exclusive() as staging:
                    late = _late_rows(staging, batches, checked)
                    if not late or round_number == _LATE_ROUNDS:
                        if late:
                            files.remove_texts(late)
                            evidence.take_over(late)
                            manifest = evidence.write_manifest()
                        committed = self._append(files, evidence.sightings(), manifest, reserved, summary)
                        failpoints.reach("committed")
                        self._end(staging, reserved, committed)
            except UnreadableWarehouse:
                if committed is None:
                    raise
                # The version is published. Rows still in staging count as folded; the next publish deletes them.
            if committed is not None:
                return
            files.remove_texts(late)
            evidence.take_over(late)
            manifest = evidence.write_manifest()
            for collection, rows in late.items():
                checked[collection] = rows[-1].id

    def _append(
        self, files: BatchFiles, sightings: int, manifest: ManifestFile | None, reserved: _Reservation, summary: Summary
    ) -> tuple[int, str]:
        """Commit: from this log entry on the version is visible. Returns the version and the entry's digest.

        ``manifest`` is None where the publish brings no evidence: the version has that of the one before it.
        """
        complete = dict(summary()) | {"run": self._run}
        if reserved.import_id:
            complete["import"] = reserved.import_id
        complete |= {"rows": files.imported_rows(), "folded": files.folded_rows()}
        complete |= evidence_entry(manifest or self._snapshot.manifest, sightings)
        return append(
            self._paths, self._snapshot.version, files.written(), reserved.watermarks, complete,
            chain=self._snapshot.chain,
        )  # fmt: skip

    def _end(self, staging: Transaction, reserved: _Reservation, committed: tuple[int, str]) -> None:
        for collection, watermark in reserved.watermarks.items():
            staging.forget(collection, watermark)
        staging.forget_sightings(reserved.sighted)
        staging.end_publish(self._run)
        staging.note_version(*committed)


def _late_rows(staging: Transaction, batches: Mapping[Collection, Batch], checked: Mapping[Collection, int]) -> Staged:
    """The rows POSTed since the batch was compared with staging."""
    late = {
        collection: staging.rows(collection, checked[collection]) for collection, batch in batches.items() if batch.rows
    }
    return {collection: rows for collection, rows in late.items() if rows}
