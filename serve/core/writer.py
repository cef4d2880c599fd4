"""What clients send: candidates of an ABI or of Solidity, canonicalised and hashed; and the writer that stores them.

The writer makes one commit at a time, in the thread of a request that is alone; requests that have to wait share the
next one.

Invariants
    A row is on stable storage before its request is answered.
    A text that is in the snapshot or in staging is not stored again, whatever else publishes: inside the staging
    transaction we check that the snapshot we looked the text up in is still the newest.
    A suppressed text is not stored.
    A POST of a text that is stored already leaves one sighting, written without an fsync.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from sigdir.pipeline.formats.solidity import MAX_TOKENS, declarations, has_too_many_tokens
from sigdir.serve.core.process import write_line
from sigdir.serve.http.answers import field_error
from sigdir.serve.http.bodies import Upload, loads, text_field
from sigdir.signatures.abi import abi_entries as entries_of_abi
from sigdir.signatures.abi import has_no_selector
from sigdir.signatures.candidates import Entry, Rows, pack
from sigdir.signatures.canonicalise import canonicalise, canonicalise_one
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, Collection
from sigdir.signatures.evidence import LISTED, Kind
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.staging.transaction import STAGED_TOGETHER, NewText, PostedSighting, StagedRow, Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths


def abi_entries(text: str, *, is_whole: bool = True) -> list[Entry]:
    """The candidates of an ABI, or of a compiler's artifact, given as JSON text; raises HttpError.

    ABIs that 4byte.directory refuses are accepted too: errors, receive entries, functions without outputs. A bad entry
    refuses all of them, as there, or without ``is_whole`` is rejected alone.
    """
    try:
        abi = loads(text)
    except (ValueError, RecursionError):
        raise field_error("contract_abi", "Invalid JSON") from None
    if isinstance(abi, dict):
        abi = abi.get("abi")
    if not isinstance(abi, list) or (is_whole and not all(map(_is_abi_entry, abi))):
        raise field_error("contract_abi", "Could not validate ABI")
    return list(entries_of_abi(abi))


def _is_abi_entry(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    kind = item.setdefault("type", "function")
    if has_no_selector(kind):
        return True
    if kind not in ("function", "event", "error") or not isinstance(item.get("name"), str) or not item["name"]:
        return False
    inputs = item.get("inputs")
    return isinstance(inputs, list) and all(isinstance(i, dict) and isinstance(i.get("type"), str) for i in inputs)


def solidity_entries(fields: dict[str, Any]) -> list[Entry]:
    """The candidates of ``source_code`` and ``source_file``; raises HttpError. Both may be missing."""
    sources: dict[str, bytes] = {}
    if "source_code" in fields:
        sources["source_code"] = text_field(fields, "source_code").encode("utf-8", "replace")
    if "source_file" in fields:
        sources["source_file"] = _source_file(fields["source_file"])
    for field, code in sources.items():
        if has_too_many_tokens(code):
            raise field_error(field, f"Ensure this source has at most {MAX_TOKENS} words and marks.")
    return [entry for code in sources.values() for entry in declarations(code)]


def _source_file(value: Any) -> bytes:
    if value is None:
        raise field_error("source_file", "This field may not be null.")
    if not isinstance(value, Upload):
        text = "The submitted data was not a file. Check the encoding type on the form."
        raise field_error("source_file", text)
    if not value.data:
        raise field_error("source_file", "The submitted file is empty.")
    return value.data


# One transaction of 200,000 rows would hold up every POST for eight seconds.
_TRANSACTION_ROWS = 500
_PAUSE_SECONDS = 0.001


def canonical_text(collection: Collection, text: str) -> NewText:
    """Canonicalise a text for one collection; raises GrammarError, for the other collection's keyword too."""
    stated = Kind.EVENT if collection == EVENT_SIGNATURES else Kind.UNKNOWN
    return NewText(collection, *canonicalise_one(text, collection.code, stated))


def store_texts(writer: Writer, new: list[NewText]) -> list[StagedRow | None]:
    """Store texts of any number; None in the place of each that is stored already or suppressed.

    They are stored in transactions with pauses between, so that other POSTs get their turn.
    """
    stored = []
    for at in range(0, len(new), _TRANSACTION_ROWS):
        stored += writer.store(new[at : at + _TRANSACTION_ROWS])
        time.sleep(_PAUSE_SECONDS)
    return stored


def _declared(collection: Collection, rows: Rows) -> Iterator[NewText]:
    """Accepted rows with what their source says about them."""
    said = rows.sightings
    for row, text in enumerate(rows.text.to_pylist()):
        one = said[row] if said is not None else LISTED
        yield NewText(collection, text, keccak256(text.encode()), one.kind, one.declaration)


def store_entries(writer: Writer, entries: Iterable[Entry]) -> dict[str, int]:
    """Canonicalise candidates and store what is new, functions before events; gives 4byte.directory's four counters."""
    processed = ignored = 0
    texts: dict[Collection, list[NewText]] = {collection: [] for collection in COLLECTIONS}
    for candidates in pack(entries, 0):
        result = canonicalise(candidates)
        processed += result.read
        ignored += len(result.rejected.text)
        for collection, rows in result.accepted.items():
            texts[collection] += _declared(collection, rows)
    accepted = [new for collection in COLLECTIONS for new in texts[collection]]
    allowed = [new for new in accepted if not writer.refuses(new)]
    ignored += len(accepted) - len(allowed)
    stored = store_texts(writer, allowed)
    imported = sum(row is not None for row in stored)
    return {
        "num_processed": processed,
        "num_imported": imported,
        "num_duplicates": len(stored) - imported,
        "num_ignored": ignored,
    }


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
