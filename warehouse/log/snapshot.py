"""One version of the table: which files it has, and up to which id staged rows are folded into it.

A Snapshot is immutable. Readers and publishers get theirs from the same two functions, ``read_snapshot`` and
``LogTailer.newest``, so both see the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.actions import WRITER_VERSION, DataFile
from sigdir.warehouse.log.damage import damaged_entry
from sigdir.warehouse.log.entry import sha256_of_entry
from sigdir.warehouse.log.evidence import ManifestFile
from sigdir.warehouse.log.history import version_at
from sigdir.warehouse.log.manifest import Manifest, manifest_of
from sigdir.warehouse.log.state import TableState, advance, read_state
from sigdir.warehouse.staging.reader import StagingReader, open_read_only
from sigdir.warehouse.staging.rows import NO_HIGH_WATER, HighWaterMark, NotedEntry
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.identity import Identity, usable_identity
from sigdir.warehouse.table.paths import Paths


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Version ``version`` of the table; -1 for a folder where nothing was published yet.

    ``files`` are in id order. ``high_water`` holds each collection's highest id and time; its id is
    also the watermark: staged rows at or below it are folded. ``manifest`` is the file that describes its evidence,
    None for a version before the first sighting. ``writer_version`` is what Delta's protocol demands of whoever
    publishes on it.
    """

    version: int = -1
    files: Mapping[Collection, tuple[DataFile, ...]] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, ()))
    high_water: Mapping[Collection, HighWaterMark] = field(default_factory=lambda: NO_HIGH_WATER)
    manifest: ManifestFile | None = None
    writer_version: int = WRITER_VERSION

    @property
    def evidence(self) -> Manifest:
        """The sources and files of its sightings; raises UnreadableWarehouse, also where they were vacuumed."""
        return manifest_of(self.manifest)

    def count(self, collection: Collection) -> int:
        return sum(file.rows for file in self.files[collection])

    def all_files(self) -> list[DataFile]:
        """The files of both collections."""
        return [file for files in self.files.values() for file in files]

    def files_without(self, replaced: Iterable[DataFile]) -> list[DataFile]:
        """The files of both collections that stay when these are replaced."""
        gone = set(replaced)
        return [file for file in self.all_files() if file not in gone]


def read_snapshot(paths: Paths, version: int | datetime | None = None) -> Snapshot:
    """Read the newest version, the given one, or the one of a time; raises UnreadableWarehouse."""
    if isinstance(version, datetime):
        version = version_at(paths, version)
    state = read_state(paths, version)
    snapshot = _snapshot_of(state) if state is not None else Snapshot()
    if version is None:
        _require_newest_of_staging(paths, snapshot)
    elif paths.log_entry(version + 1).exists():
        _require_whole(paths, snapshot)
    return snapshot


class LogTailer:
    """Reads the newest version again and again. It reads only the log entries that are new, which takes 0.2 ms.

    A server's readers wait for that at each publish.
    """

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._last: tuple[Identity, TableState] | None = None

    def newest(self) -> Snapshot:
        """The newest version; raises UnreadableWarehouse."""
        identity = usable_identity(self._paths)
        last, self._last = self._last, None
        state = None
        if last is not None and last[0] == identity:
            with suppress(UnreadableWarehouse):  # reading it from its checkpoint says what is wrong
                state = advance(self._paths, last[1])
        if state is None:
            state = read_state(self._paths)
        if state is None:
            return Snapshot()
        self._last = identity, state
        return _snapshot_of(state)


def _snapshot_of(state: TableState) -> Snapshot:
    files = {
        collection: sorted(
            (file for file in state.files.values() if file.collection == collection), key=lambda file: file.first_id
        )
        for collection in COLLECTIONS
    }
    high_water = {
        collection: HighWaterMark(
            state.watermarks[collection], max((file.last_created_at for file in files[collection]), default=0)
        )
        for collection in COLLECTIONS
    }
    files_of = {c: tuple(files[c]) for c in COLLECTIONS}
    return Snapshot(state.version, files_of, high_water, state.manifest, state.writer_version)


def _require_whole(paths: Paths, snapshot: Snapshot) -> None:
    """Raise UnreadableWarehouse where data files of an old version are gone."""
    files = snapshot.all_files()
    gone = sum(not file.path.exists() for file in files)
    if gone:
        raise UnreadableWarehouse(
            f"version {snapshot.version} of {paths.root} was vacuumed: {gone} of its {len(files)} data files are gone;"
            " `sigdir vacuum --dry-run` names the oldest version that is whole"
        )


def require_newest(paths: Paths, snapshot: Snapshot, staging: StagingReader) -> None:
    """Raise UnreadableWarehouse where the log is not the one that staging knows.

    The log itself does not show that it has lost its end. And staged rows count as folded up to the log's watermark:
    by the log of a copy that went its own way they would be deleted.
    """
    with staging.reading() as transaction:
        noted = transaction.newest_entry()
    _require_noted(paths, snapshot, noted)


def _require_newest_of_staging(paths: Paths, snapshot: Snapshot) -> None:
    """``require_newest`` for readers that need no staging file; one that cannot be read is not their concern."""
    if not paths.staging.exists():
        return
    try:
        with open_read_only(paths.staging, briefly=True) as transaction:
            noted = transaction.newest_entry()
    except (UnreadableWarehouse, LookupError, TypeError, ValueError):
        return
    _require_noted(paths, snapshot, noted)


def _require_noted(paths: Paths, snapshot: Snapshot, noted: NotedEntry) -> None:
    if noted.version < 0:
        return
    entry = paths.log_entry(noted.version)
    # A version committed since the snapshot was read has its entry.
    if noted.version > snapshot.version and not entry.exists():
        raise UnreadableWarehouse(
            f"{paths.log} ends at version {snapshot.version}, but version {noted.version} was published;"
            f" put {entry.name} back from a backup"
        )
    if sha256_of_entry(paths, noted.version) != noted.sha256:
        raise damaged_entry(entry, "another entry was published")
