"""Writing: one commit at a time, in the thread of a request that is alone; requests that have to wait share the next one.

Invariants
    A row is on stable storage before its request is answered.
    A text that is in the snapshot or in staging is not stored again, whatever else publishes: inside the staging
    transaction we check that the snapshot we looked the text up in is still the newest.
    A suppressed text is not stored.
    A POST of a text that is stored already leaves one sighting, written without an fsync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import NamedTuple

from sigdir.serve.core.process import write_line
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.staging.transaction import STAGED_TOGETHER, NewText, PostedSighting, StagedRow, Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths

_MAX_JOBS = 64
"""Jobs that share a commit."""

_MAX_NOTED = 10_000
"""So many POSTs of texts that are stored already are remembered, so that each is noted once."""

Begin = Callable[[], AbstractContextManager[Transaction]]


class _Job(NamedTuple):
    """The texts of one request, and their rows to come."""

    texts: list[NewText]
    rows: Future[list[StagedRow | None]]


class Writer:
    """Stages texts: at once if nothing is being committed, else in a thread for all that came meanwhile.

    If every request waited for the staging lock itself, the lock would be idle half of the time, because each waits
    for the GIL before it can begin (0.5 of every 1.0 ms, with four threads).
    """

    def __init__(self, paths: Paths, reader: Reader) -> None:
        self._root, self._is_open = paths.root, not reader.is_read_only
        if not self._is_open:
            return
        self._staging = Staging(paths.staging)
        self._reader = reader
        self._committing = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._noted: set[NewText] = set()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def refuses(self, new: NewText) -> bool:
        """Whether the text is suppressed. Callers ask first, because ``store`` does not tell such a text from a known one."""
        return self._reader.suppressed().hides(new.collection, new.text)

    def store(self, texts: list[NewText]) -> list[StagedRow | None]:
        """Stage the texts; None in the place of each that is stored already or suppressed. Raises UnreadableWarehouse."""
        if not self._is_open:
            raise UnreadableWarehouse(f"{self._root} is read-only")
        if self._committing.acquire(blocking=False):
            try:
                rows = self._stage(texts)
                self._note_known(texts, rows)
                return rows
            finally:
                self._committing.release()
        job = _Job(texts, Future())
        self._jobs.put(job)
        return job.rows.result()

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            with self._committing:
                jobs = [first]
                while len(jobs) < _MAX_JOBS and (job := self._next_job()) is not None:
                    jobs.append(job)
                self._finish(jobs)

    def _finish(self, jobs: list[_Job]) -> None:
        """Stage the texts of jobs in one transaction, and give each job its rows or the error. The caller holds ``_committing``."""
        texts = [new for job in jobs for new in job.texts]
        try:
            rows = self._stage(texts)
        except Exception as error:  # noqa: BLE001 - raised again in the thread of each request
            for job in jobs:
                job.rows.set_exception(error)
            return
        staged = iter(rows)
        for job in jobs:
            job.rows.set_result([next(staged) for _ in job.texts])
        self._note_known(texts, rows)

    def _next_job(self) -> _Job | None:
        """A job that waits already; None if there is none, or if the writer is closed."""
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:  # put it back, so that the loop ends after this commit
            self._jobs.put(None)
        return job

    def _stage(self, texts: list[NewText]) -> list[StagedRow | None]:
        is_one_statement = len(texts) <= STAGED_TOGETHER and not any(new.is_declared for new in texts)
        begin: Begin = self._staging.exclusive_statement if is_one_statement else self._staging.exclusive
        view = self._reader.held()
        while True:
            with begin() as staging:
                # A publisher commits inside such a transaction too, so no version can be added during ours.
                if not view.has_newer_version():
                    return _stage_unknown(staging, view, texts)
            view = self._reader.refreshed()

    def _note_known(self, texts: list[NewText], rows: list[StagedRow | None]) -> None:
        """Note which of these texts were stored already, those without a row, without an fsync."""
        known = [new for new, row in zip(texts, rows, strict=True) if row is None and new not in self._noted]
        if not known:
            return
        try:
            with self._staging.exclusive_unsynced() as staging:
                staging.note_sightings(_sightings(staging, self._reader.held(), known))
                if len(self._noted) > _MAX_NOTED:
                    self._noted.clear()
                self._noted.update(known)
        except Exception as error:  # noqa: BLE001 - the texts are stored, and other jobs wait for this thread
            write_line(f"error: what was POSTed of known texts is not noted: {error}")

    def close(self) -> None:
        if not self._is_open:
            return
        self._jobs.put(None)
        self._thread.join()
        self._staging.close()


def _stage_unknown(staging: Transaction, view: View, texts: list[NewText]) -> list[StagedRow | None]:
    hides = view.suppressed.hides
    is_known = [hides(new.collection, new.text) or view.has_text(new.collection, new.text, new.hash) for new in texts]
    unknown = [new for new, known in zip(texts, is_known, strict=True) if not known]
    staged = iter(staging.stage_all(unknown, view.snapshot.high_water))
    return [None if known else next(staged) for known in is_known]


def _sightings(staging: Transaction, view: View, known: list[NewText]) -> Iterator[PostedSighting]:
    """What POSTs say of texts that are stored or staged already. A suppressed text leaves nothing."""
    for new in known:
        if view.suppressed.hides(new.collection, new.text):
            continue
        id = view.id_of_text(new.collection, new.text, new.hash) or staging.id_of_text(new.collection, new.text)
        if id is not None:
            yield PostedSighting(new.collection, id, new.kind, new.declaration)
