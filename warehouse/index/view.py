"""The view that a server reads: one version's mapped files with the staged rows after them.

Invariants
    A View never changes. A request takes one and uses no other.
    A view has every row that was acknowledged before it was taken, or that another process has shown by then, once:
    a client may read one page from each worker. A fold moves rows from staging to a file, so the staged rows are read
    after the snapshot, and both are read again if a newer version exists by then.

Theory. A request must learn cheaply that nothing has changed. Staging is a SQLite database whose change counter is
in shared memory (``Staging.stamp``). Every commit of ours moves it, and comparing it takes half a microsecond. The
log's next entry and the staging database are looked at only when it has moved, while a process may commit, or when a
quarter of a second has passed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.evidence.summaries import Summaries
from sigdir.warehouse.index.build import segment_of, unused
from sigdir.warehouse.index.segment import Segment, rows_with_hash
from sigdir.warehouse.index.summaries import folder_name, summaries_of
from sigdir.warehouse.index.visible import Visible, unused_visible
from sigdir.warehouse.log.snapshot import LogTailer, Snapshot, read_snapshot, require_newest
from sigdir.warehouse.staging.reader import OPEN, is_for_readers
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.staging.writer import open_staging
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import (
    FileLock,
    file_state,
    is_there,
    make_folder,
    may_be_replacing,
    remove,
)
from sigdir.warehouse.table.identity import read_identity
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.paths import Paths, index_name, index_of_entry
from sigdir.warehouse.table.suppressed import NONE, Suppressed, SuppressList

# Every commit of ours moves the stamp. A change by other means may stay unseen for this long.
_LOOK_SECONDS = 0.25

_ALL = 2**63 - 1

_KEPT, _KEPT_CHARACTERS = 8192, 4096
"""What a view remembers of hashes, and the longest."""

Found = TypeVar("Found")


class TakesLong(BaseException):
    """An answer that was to be short needs something that is not found yet. It is no error, so no handler of errors sees it."""


_this_thread = threading.local()


@contextmanager
def short_only() -> Iterator[None]:
    """Meanwhile this thread begins nothing that takes long: it raises TakesLong, for another thread to answer."""
    _this_thread.is_short_only = True
    try:
        yield
    finally:
        _this_thread.is_short_only = False


def this_takes_long() -> None:
    """To be called before a search that may take milliseconds; raises TakesLong."""
    if getattr(_this_thread, "is_short_only", False):
        raise TakesLong


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """The rows of both collections at one moment, in segments from the oldest to the newest.

    ``token`` differs between any two views with different rows, of other warehouses too; ``stable_up_to`` is not in it.
    """

    snapshot: Snapshot
    segments: Mapping[Collection, tuple[Segment, ...]]
    token: str
    next_log_entry: bytes
    """The path of the log entry that a newer version would have."""
    stable_up_to: Mapping[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, _ALL))
    """No row at or below this id can still appear. Above it a running publish may add rows in between."""
    suppressed: Suppressed = NONE
    """The texts that this view does not have, whatever is stored."""
    found: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    """What was found out of hashes, and is kept with the view: ``kept``."""

    def kept(self, key: tuple[Any, ...], find: Callable[[], Found], characters: Callable[[Found], int]) -> Found:
        """What ``find`` gives, the same object for a key again, unless it has too many ``characters``."""
        kept: Found | None = self.found.get(key)
        if kept is not None:
            return kept
        found = find()
        if characters(found) <= _KEPT_CHARACTERS:
            if len(self.found) >= _KEPT:
                self.found.clear()
            self.found[key] = found
        return found

    def has_newer_version(self) -> bool:
        return is_there(self.next_log_entry)

    def count(self, collection: Collection) -> int:
        return sum(segment.rows for segment in self.segments[collection])

    def texts(self, collection: Collection) -> Iterator[pa.StringArray]:
        """All texts of a collection, a million or a quarter of a GiB at a time."""
        for segment in self.segments[collection]:
            for first, last in segment.spans(0, segment.rows, 1 << 20, 1 << 28):
                yield segment.texts_of(first, last)

    def with_hash(self, collection: Collection, digest: bytes) -> list[tuple[Segment, Array]]:
        """The rows with exactly this hash, rising, of each segment that has any, oldest first."""
        return rows_with_hash(self.segments[collection], digest)

    def has_hashes(self, collection: Collection, hashes: Array) -> Array:
        """Which hashes, uint8 of (rows, width), have a text; fastest where they rise."""
        found = np.zeros(len(hashes), np.bool_)
        for segment in self.segments[collection]:
            found[segment.with_hashes(hashes)[0]] = True
        return found

    def with_name(self, collection: Collection, name: str, limit: int) -> list[tuple[Segment, int]]:
        """The first ``limit`` rows, oldest first, whose text is this name and a parameter list."""
        found: list[tuple[Segment, int]] = []
        for segment in self.segments[collection]:
            found += [(segment, row) for row in segment.like(f"{name}(*", limit - len(found)).tolist()]
            if len(found) == limit:
                break
        return found

    def has_text(self, collection: Collection, text: str, hash: bytes) -> bool:
        """Whether the snapshot has this text, whose stored hash is given.

        Staged rows are not searched: the staging database finds them by its own index, however many there are.
        """
        files = (segment for segment in self.segments[collection] if not segment.is_staged)
        return next(_rows_with_text(files, text, hash), None) is not None

    def id_of_text(self, collection: Collection, text: str, hash: bytes) -> int | None:
        """The id of the row with this text, staged ones too; None if the view has none."""
        found = next(_rows_with_text(self.segments[collection], text, hash), None)
        return None if found is None else int(found[0].ids[found[1]])


def _rows_with_text(segments: Iterable[Segment], text: str, hash: bytes) -> Iterator[tuple[Segment, int]]:
    wanted = text.encode()
    for segment, rows in rows_with_hash(segments, hash):
        for row in rows.tolist():
            start, end = segment.offsets[row], segment.offsets[row + 1]
            if end - start == len(wanted) and segment.text[start:end].tobytes() == wanted:
                yield segment, row


class _Tail:
    """The staged rows of one collection as a segment that grows at its end.

    Arrays are filled after the rows that earlier segments show, and replaced when full, so a segment that was
    handed out never changes.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection, self._width = collection, collection.hash_bytes
        self._by_prefix: dict[bytes, list[int]] = {}
        self.rows = 0
        self.last_id = 0
        """The highest id that was read, of a suppressed row too."""
        self._bytes = 0
        rows = 1024
        self._ids, self._times = np.empty(rows, np.int64), np.empty(rows, np.int64)
        self._offsets, self._text = np.zeros(rows + 1, np.int64), np.empty(1 << 16, np.uint8)
        self._hash = np.empty((rows, self._width), np.uint8)

    def extend(self, staged: list[StagedRow], suppressed: Suppressed) -> None:
        for row in staged:
            self.last_id = row.id
            if suppressed.hides(self._collection, row.text):
                continue
            raw = row.text.encode()
            if self.rows == len(self._ids) or self._bytes + len(raw) > len(self._text):
                self._grow(len(raw))
            at, start = self.rows, self._bytes
            self._ids[at], self._times[at] = row.id, row.created_at
            self._text[start : start + len(raw)] = np.frombuffer(raw, np.uint8)
            self._hash[at] = np.frombuffer(row.digest[: self._width], np.uint8)
            self._by_prefix.setdefault(row.digest[:4], []).append(at)
            self._offsets[at + 1] = self._bytes = start + len(raw)
            self.rows += 1

    def _grow(self, more: int) -> None:
        rows = 2 * len(self._ids)
        self._ids, self._times = np.resize(self._ids, rows), np.resize(self._times, rows)
        self._offsets = np.resize(self._offsets, rows + 1)
        self._text = np.resize(self._text, 2 * (len(self._text) + more))
        self._hash = np.resize(self._hash, (rows, self._width))

    def segment(self) -> Segment:
        return Segment.of(self.rows, self._ids, self._times, self._offsets, self._text, self._hash, self._by_prefix)


class Reader:
    """Keeps the newest view of one warehouse. Safe for use by several threads."""

    def __init__(self, paths: Paths, tick: Callable[[int], None] = lambda _: None, makes_staging: bool = True) -> None:
        """Open the warehouse, which may be empty, and build missing indexes; ``tick`` as in ``segment_of``.

        Without ``makes_staging`` the folder of a store, which has no staging file, gets none.

        If the folder is read-only or without locks, missing indexes are built in ``paths.derived``, or in a temporary
        folder that ``close`` removes.
        """
        self.is_read_only = is_for_readers(paths)
        self._temporary: TemporaryDirectory[str] | None = None
        if self.is_read_only and paths.derived is None:
            self._temporary = TemporaryDirectory(prefix="sigdir-")
            paths = replace(paths, derived=Path(self._temporary.name))
        self._paths = paths
        self._tick = tick
        self._lock = threading.Lock()
        make_folder(paths.cache)  # publishers build indexes where this folder exists
        self._staging = open_staging(paths, makes=makes_staging)
        self._log_tailer = LogTailer(paths)
        self._suppress_list = SuppressList(paths)
        self._visible = Visible(paths, self._suppress_list.newest())
        self._mapped: dict[Path, Segment] = {}
        self._summaries: dict[str, Summaries] = {}
        self._segments: dict[Collection, tuple[Segment, ...]] = {}
        self._tails: dict[Collection, _Tail] = {}
        self._stamp, self._looked = self._staging.stamp(), time.monotonic()
        self._load()
        require_newest(paths, self._snapshot, self._staging)
        self._staging.require_whole(self._snapshot.high_water)
        self.id, self._identity_state = read_identity(paths).id, file_state(os.fsencode(paths.identity))
        self._view = self._read()

    def is_replaced(self) -> bool:
        """Whether the folder holds another warehouse by now, or none."""
        state = file_state(os.fsencode(self._paths.identity))
        if state == self._identity_state:
            return False
        try:
            if read_identity(self._paths).id != self.id:
                return True
        except UnreadableWarehouse:
            return True
        self._identity_state = state
        return False

    def current(self) -> View:
        """The newest view. Takes half a microsecond while nothing has changed."""
        stamp = self._staging.stamp()
        if stamp != self._stamp or stamp == OPEN or time.monotonic() - self._looked > _LOOK_SECONDS:
            if self._lock.locked():
                this_takes_long()  # another thread may load a version
            with self._lock:
                self._refresh()
                self._stamp, self._looked = stamp, time.monotonic()
        return self._view

    def suppressed(self) -> Suppressed:
        """The suppress list as it is now. A POST asks for it alone: a view would look for the rows of all other POSTs."""
        return self._suppress_list.newest()

    def held(self) -> View:
        """The view that was taken last, which may not be the newest."""
        return self._view

    def refreshed(self) -> View:
        """A view that is not older than this call, whatever the change counters show."""
        with self._lock:
            self._data_version = -1
            self._refresh()
            return self._view

    def visible(self, snapshot: Snapshot) -> Snapshot:
        """A version as it may be shown; raises UnreadableWarehouse, OSError."""
        return self._visible.snapshot(snapshot)

    def _refresh(self) -> None:
        is_replaced = self.is_replaced()  # then what is mapped answers on: the rows of the other one are not ours
        suppressed = self._suppress_list.newest()
        if suppressed.id != self._visible.suppressed.id and not is_replaced:
            previous, self._visible = self._visible, Visible(self._paths, suppressed)
            try:
                self._load()
            except BaseException:
                self._visible = previous  # the next request tries again
                raise
        elif self._view.has_newer_version() and not is_replaced:
            self._load()
        if self._staging.data_version() != self._data_version:
            self._view = self._read()

    def _load(self) -> None:
        """Read the newest snapshot and map its files."""
        this_takes_long()
        while True:
            newest = self._log_tailer.newest()
            self._next_log_entry = os.fsencode(self._paths.log_entry(newest.version + 1))
            try:
                self._snapshot = self._visible.snapshot(newest)
                self._map()
                return
            except (UnreadableWarehouse, OSError, pa.ArrowException):
                # A compaction has deleted the old files' indexes meanwhile. The newer version has others.
                if not is_there(self._next_log_entry):
                    self._await_pull()
                    if not is_there(self._next_log_entry):
                        raise

    def _await_pull(self) -> None:
        """Wait for a pull into a working copy: it names several entries one by one, and only the last has its evidence."""
        if self._paths.store.exists():
            with FileLock(self._paths.pull_lock):
                pass

    def _map(self) -> None:
        """Map the snapshot's files and start its staged rows anew."""
        files, evidence = self._snapshot.files, self._snapshot.evidence
        all_files = self._snapshot.all_files()

        def mapped(file: DataFile) -> tuple[Segment, Summaries]:
            # Neither ever changes, so mappings are kept: mapping a file takes 0.6 ms, and each fold adds one.
            segment = self._mapped.get(file.path) or segment_of(self._paths, file, self._tick)
            summaries = self._summaries.get(folder_name(file, evidence))
            return segment, summaries or summaries_of(self._paths, file, segment, evidence)

        # Every byte of a file is read when it is opened: those of 100 M rows take 3.2 s on one core.
        threads = os.cpu_count() or 1
        with ThreadPoolExecutor(threads) as pool:
            found = dict(zip(all_files, ordered_map(pool, mapped, all_files, ahead=2 * threads), strict=True))
        self._mapped = {file.path: segment for file, (segment, _) in found.items()}
        self._summaries = {folder_name(file, evidence): summaries for file, (_, summaries) in found.items()}
        self._segments = {
            c: tuple(replace(segment, summaries=summaries) for segment, summaries in map(found.__getitem__, files[c]))
            for c in COLLECTIONS
        }
        self._tails = {collection: _Tail(collection) for collection in COLLECTIONS}
        self._data_version = -1  # so that they are read

    def _read(self) -> View:
        while True:
            data_version = self._staging.data_version()
            with self._staging.reading() as staging:
                for collection, tail in self._tails.items():
                    above = max(tail.last_id, self._snapshot.high_water[collection].id)
                    tail.extend(staging.rows(collection, above), self._visible.suppressed)
                held = {c: staging.first_reserved(c, self._snapshot.high_water[c]) for c in COLLECTIONS}
            if not is_there(self._next_log_entry) or self.is_replaced():
                break
            self._load()
        self._data_version = data_version
        segments = {
            c: (*self._segments[c], self._tails[c].segment()) if self._tails[c].rows else self._segments[c]
            for c in COLLECTIONS
        }
        marks = ".".join(str(self._tails[c].last_id or self._snapshot.high_water[c].id) for c in COLLECTIONS)
        stable_up_to = {c: _ALL if first is None else first - 1 for c, first in held.items()}
        suppressed = self._visible.suppressed
        token = f"{self.id[:8]}.{self._snapshot.version}.{marks}" + (f".{suppressed.id}" if suppressed else "")
        return View(self._snapshot, segments, token, self._next_log_entry, stable_up_to, suppressed)

    @property
    def paths(self) -> Paths:
        """The paths of the warehouse, with the folder of what is derived from it."""
        return self._paths

    def close(self) -> None:
        self._staging.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def tidy(paths: Paths) -> None:
    """Delete indexes whose data files are not in the snapshot; raises Busy while another process publishes.

    The publish lock is held, so no file can be published between the listing and the deletion.
    """
    with FileLock(paths.lock, wait=False):
        for entry in unused_indexes(paths, read_snapshot(paths)):
            remove(entry)


def unused_indexes(paths: Paths, snapshot: Snapshot) -> list[Path]:
    """The indexes of files that are not in ``snapshot``, which is the newest, and unused visible files."""
    used = {index_name(collection, file.path) for collection, files in snapshot.files.items() for file in files}
    used |= {paths.statistics.name, index_of_entry(paths.compile_lock)}
    used |= {f"{paths.misses.name}{end}" for end in ("", "-journal")}
    indexes = [entry for entry in unused(paths.cache, used) if not may_be_replacing(entry)]
    return [*indexes, *unused_visible(paths)]
