"""Writing: one POST is a batch of one, normalised and hashed as an import does it, and staged.

Invariants
    A row is on stable storage before it is answered for.
    A text that is in the snapshot or in staging is not stored again, whatever else publishes: the
    snapshot that it was looked up in is checked to be the newest inside the staging transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import TypeVar

from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import Collection
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.staging import (
    STAGED_TOGETHER,
    NewText,
    StagedRow,
    Staging,
    Transaction,
)

Result = TypeVar("Result")

_SHARING = 64  # jobs of one commit at most


def new_text(collection: Collection, text: str) -> NewText:
    """Normalise a text for one collection; raises GrammarError.

    The keyword of the other collection is an error, not a way into it.
    """
    return NewText(collection, *canonicalise_one(text, collection.code))


class _Job:
    """Texts to stage, and what came of it once ``done`` can be taken."""

    def __init__(self, texts: list[NewText]) -> None:
        self.texts = texts
        self.rows: list[StagedRow | None] = []
        self.error: Exception | None = None
        self.done = threading.Lock()
        self.done.acquire()


class Writer:
    """Stages texts, in a thread of its own: what waits while it commits shares the next commit.

    Were the lock handed from request to request instead, each waiting for the interpreter in turn,
    it would lie idle half of the time (0.5 of every 1.0 ms, with four threads).
    """

    def __init__(self, paths: Paths, reader: Reader) -> None:
        self._staging = Staging(paths.staging)
        self._reader = reader
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="writer", daemon=True)
        self._thread.start()

    def store(self, texts: list[NewText]) -> list[StagedRow | None]:
        """Stage the texts; None in the place of each that is stored already."""
        job = _Job(texts)
        self._jobs.put(job)
        job.done.acquire()
        if job.error is not None:
            raise job.error
        return job.rows

    def _work(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first]
            while len(jobs) < _SHARING and (job := self._waiting()) is not None:
                jobs.append(job)
            self._carry_out(jobs)
            for job in jobs:
                job.done.release()

    def _waiting(self) -> _Job | None:
        try:
            job = self._jobs.get_nowait()
        except Empty:
            return None
        if job is None:  # the end, for whoever waits next
            self._jobs.put(None)
        return job

    def _carry_out(self, jobs: list[_Job]) -> None:
        texts = [new for job in jobs for new in job.texts]
        begin = self._staging.alone if len(texts) <= STAGED_TOGETHER else self._staging.exclusive
        try:
            rows = iter(self._newest(begin, lambda staging, view: _stage(staging, view, texts)))
            for job in jobs:
                job.rows = [next(rows) for _ in job.texts]
        except Exception as error:  # noqa: BLE001 - handed to each of the callers
            for job in jobs:
                job.error = error

    def _newest(
        self, begin: Callable[[], AbstractContextManager[Transaction]], work: Callable[[Transaction, View], Result]
    ) -> Result:
        """Do the work where no other writer is, with a view of the newest version."""
        view = self._reader.held()
        while True:
            with begin() as staging:
                # A publish commits in such a place too, so no newer version can come while this one
                # is held.
                if not view.has_newer_version():
                    return work(staging, view)
            view = self._reader.refreshed()

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self._staging.close()


def _stage(staging: Transaction, view: View, texts: list[NewText]) -> list[StagedRow | None]:
    is_known = [view.find_text(new.collection, new.text, new.hash) for new in texts]
    unknown = [new for new, known in zip(texts, is_known, strict=True) if not known]
    staged = iter(staging.stage_all(unknown, view.snapshot.high_water))
    return [None if known else next(staged) for known in is_known]
