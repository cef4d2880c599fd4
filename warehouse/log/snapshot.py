"""One version of the table: which files it has, and up to which id staged rows are folded into it.

A Snapshot is immutable. Readers and publishers get theirs from the same two functions, ``read_snapshot`` and
``LogTailer.newest``, so both see the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.checkpoint import Checkpoint, newest_complete, read_checkpoint
from sigdir.warehouse.log.entry import (
    DAMAGED,
    WRITER_VERSION,
    changes_of,
    damaged_checkpoint,
    damaged_entry,
    existing_version,
    read_entry,
    sha256_of_entry,
)
from sigdir.warehouse.log.history import version_at
from sigdir.warehouse.log.manifest import Manifest, ManifestFile, manifest_at, manifest_of, manifest_of_entry
from sigdir.warehouse.staging.reader import StagingReader, open_read_only
from sigdir.warehouse.staging.transaction import NO_HIGH_WATER, HighWaterMark, NotedEntry
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
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
    snapshot = read_state(paths, version)
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
        self._last: tuple[Identity, Snapshot] | None = None

    def newest(self) -> Snapshot:
        """The newest version; raises UnreadableWarehouse."""
        identity = usable_identity(self._paths)
        last, self._last = self._last, None
        newest = None
        if last is not None and last[0] == identity:
            with suppress(UnreadableWarehouse):  # reading it from its checkpoint says what is wrong
                newest = advance(self._paths, last[1])
        newest = newest or read_state(self._paths)
        self._last = (identity, newest) if newest.version >= 0 else None
        return newest


def read_state(paths: Paths, version: int | None = None) -> Snapshot:
    """A version as its log has it, the newest by default, whatever else is known of it; raises UnreadableWarehouse.

    Reading takes 0.1 ms an entry after the newest checkpoint, and each is checked.
    """
    last = existing_version(paths, version)
    if last is None:
        return Snapshot()
    checkpoint = newest_complete(paths, last)
    snapshot = advance(paths, _of_checkpoint(paths, checkpoint) if checkpoint else Snapshot(writer_version=0), last)
    if not snapshot.writer_version:
        raise UnreadableWarehouse(f"{paths.table}: not a table of Delta: no entry has its protocol")
    return replace(snapshot, manifest=manifest_at(paths, last))


def advance(paths: Paths, snapshot: Snapshot, last: int | None = None) -> Snapshot:
    """The newest version, or ``last``, by the entries after ``snapshot``; itself if there are none. Raises UnreadableWarehouse."""
    files = {file.path: file for file in snapshot.all_files()}
    watermarks = {collection: mark.id for collection, mark in snapshot.high_water.items()}
    version, manifest, writer_version = snapshot.version, snapshot.manifest, snapshot.writer_version
    while version < last if last is not None else paths.log_entry(version + 1).exists():
        version += 1
        entry = read_entry(paths, version)
        files |= {file.path: file for file in entry.added}
        for path in entry.removed:
            files.pop(path, None)
        watermarks |= entry.watermarks
        writer_version = writer_version if entry.writer_version is None else entry.writer_version
        if entry.summary is not None:
            manifest = manifest_of_entry(paths, entry)
    if version == snapshot.version:
        return snapshot
    return _snapshot_of(version, files.values(), watermarks, manifest, writer_version)


def _of_checkpoint(paths: Paths, checkpoint: Checkpoint) -> Snapshot:
    """The version of a checkpoint, without its evidence. Raises UnreadableWarehouse where the checkpoint is damaged."""
    try:
        changes = changes_of(paths, read_checkpoint(paths, checkpoint))
    except DAMAGED as error:
        raise damaged_checkpoint(paths, checkpoint.files[0], error) from error
    files = {file.path: file for file in changes.added}.values()
    watermarks = dict.fromkeys(COLLECTIONS, 0) | changes.watermarks
    return _snapshot_of(checkpoint.version, files, watermarks, None, changes.writer_version or 0)


def _snapshot_of(
    version: int, files: Iterable[DataFile], watermarks: Mapping[Collection, int], manifest: ManifestFile | None,
    writer_version: int,
) -> Snapshot:  # fmt: skip
    ordered = sorted(files, key=lambda file: file.first_id)
    files_of = {c: tuple(file for file in ordered if file.collection == c) for c in COLLECTIONS}
    high_water = {
        c: HighWaterMark(watermarks[c], max((file.last_created_at for file in files_of[c]), default=0))
        for c in COLLECTIONS
    }
    return Snapshot(version, files_of, high_water, manifest, writer_version)


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
