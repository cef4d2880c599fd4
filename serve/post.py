"""Writing: one POST is a batch of one, normalised and hashed as an import does it, and staged.

Invariants
    A row is on stable storage before it is answered for.
    A text that is in the snapshot or in staging is not stored again, whatever else publishes: the
    snapshot that it was looked up in is checked to be the newest inside the staging transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from pipeline.grammar import EVENTS, FUNCTIONS, GrammarError, normalise
from pipeline.keccak import keccak256
from warehouse.paths import Paths
from warehouse.reading import Reader, View
from warehouse.schema import EVENT_SIGNATURES, HASH_BYTES, SIGNATURES, Collection
from warehouse.staging import StagedRow, Staging, Transaction

Result = TypeVar("Result")

CODES: dict[Collection, int] = {SIGNATURES: FUNCTIONS, EVENT_SIGNATURES: EVENTS}
NAMES: dict[int, Collection] = {code: name for name, code in CODES.items()}


@dataclass(frozen=True, slots=True)
class NewText:
    """A canonical text on its way in."""

    collection: Collection
    text: str
    digest: bytes

    @property
    def hash(self) -> bytes:
        return self.digest[: HASH_BYTES[self.collection]]


def new_text(collection: Collection, text: str) -> NewText:
    """Normalise a text for one collection; raises GrammarError.

    The keyword of the other collection is an error, not a way into it.
    """
    code = CODES[collection]
    signature = normalise(text, said=code, default=code)
    if signature.collection != code:
        raise GrammarError("bad_name", 1, text)
    return NewText(collection, signature.text, keccak256(signature.text.encode()))


@dataclass(slots=True)
class _Job:
    texts: list[NewText]
    rows: list[StagedRow | None] = field(default_factory=list)
    error: BaseException | None = None
    done: bool = False


class Writer:
    """Stages texts. POSTs that wait at the same time share one commit, and so one fsync."""

    def __init__(self, paths: Paths, reader: Reader) -> None:
        self._staging = Staging(paths.staging)
        self._reader = reader
        self._turn = threading.Lock()
        self._queue_lock = threading.Lock()
        self._queue: list[_Job] = []

    def store(self, texts: list[NewText]) -> list[StagedRow | None]:
        """Stage the texts; None in the place of each that is stored already."""
        job = _Job(texts)
        with self._queue_lock:
            self._queue.append(job)
        with self._turn:  # whoever has the turn carries out everything that waits
            if not job.done:
                with self._queue_lock:
                    jobs, self._queue = self._queue, []
                self._carry_out(jobs)
        if job.error is not None:
            raise job.error
        return job.rows

    def _carry_out(self, jobs: list[_Job]) -> None:
        try:
            rows = self._in_transaction(lambda staging, view: [_stage(staging, view, job.texts) for job in jobs])
            for job, found in zip(jobs, rows, strict=True):
                job.rows = found
        except Exception as error:  # noqa: BLE001 - handed to each of the callers
            for job in jobs:
                job.error = error
        for job in jobs:
            job.done = True

    def _in_transaction(self, work: Callable[[Transaction, View], Result]) -> Result:
        view = self._reader.held()
        while True:
            with self._staging.exclusive() as staging:
                # A publish commits inside such a transaction, so no newer version can come while
                # this one is open.
                if not view.is_overtaken():
                    return work(staging, view)
            view = self._reader.refreshed()

    def close(self) -> None:
        self._staging.close()


def _stage(staging: Transaction, view: View, texts: list[NewText]) -> list[StagedRow | None]:
    return [
        None
        if view.find_text(new.collection, new.text, new.hash)
        else staging.stage(new.collection, new.text, new.digest, view.snapshot.floors[new.collection])
        for new in texts
    ]
