"""One version of the table: which files it has, and up to which id staged rows are folded into it.

A Snapshot is immutable. Readers and publishers get theirs from the same two functions, ``read_snapshot`` and
``LogTailer.newest``, so both see the same thing.

Checkpoints: the state of the table as a Parquet file, which is read instead of the entries up to it.

One row an action, in the column of its kind. A checkpoint of ours has a digest of its bytes in the footer. One that
another program wrote in several parts is passed over: entries are never cleaned up, so it only saves time. Version 1 of
Delta's protocol for readers has these kinds alone.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.entry import (
    DAMAGED,
    FIELD,
    WRITER_VERSION,
    changes_of,
    damaged_checkpoint,
    damaged_entry,
    existing_version,
    is_whole,
    new_mark,
    read_actions,
    read_entry,
    sha256_of_entry,
    with_digest,
)
from sigdir.warehouse.log.manifest import (
    Manifest,
    ManifestFile,
    manifest_at,
    manifest_of,
    manifest_of_entry,
    version_at,
)
from sigdir.warehouse.staging.reader import StagingReader, open_read_only
from sigdir.warehouse.staging.transaction import NO_HIGH_WATER, HighWaterMark, NotedEntry
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import write_file
from sigdir.warehouse.table.identity import Identity, usable_identity
from sigdir.warehouse.table.paths import Paths

CHECKPOINT_VERSIONS = 100
"""A checkpoint is written every so many versions."""

_KEPT_MILLISECONDS = 7 * 24 * 3600 * 1000
"""So long a removed file is in checkpoints: Delta's default. Other programs' vacuum leaves it that long."""

_NAME = re.compile(r"(\d{20})\.checkpoint\.parquet")

_STATE = ("protocol", "metaData", "txn", "add")
"""The kinds of actions that a reader needs."""

_MAP: Final = pa.map_(pa.string(), pa.string())

_SCHEMA: Final = pa.schema({
    "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    "metaData": pa.struct({
        "id": pa.string(), "name": pa.string(), "description": pa.string(),
        "format": pa.struct({"provider": pa.string(), "options": _MAP}),
        "schemaString": pa.string(), "partitionColumns": pa.list_(pa.string()), "createdTime": pa.int64(),
        "configuration": _MAP,
    }),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "add": pa.struct({
        "path": pa.string(), "partitionValues": _MAP, "size": pa.int64(), "modificationTime": pa.int64(),
        "dataChange": pa.bool_(), "stats": pa.string(), "tags": _MAP,
    }),
    "remove": pa.struct({
        "path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_(),
        "extendedFileMetadata": pa.bool_(), "partitionValues": _MAP, "size": pa.int64(),
    }),
})  # fmt: skip
"""A checkpoint of ours; the columns and fields that version 2 of the protocol for writers knows."""


def newest_checkpoint(paths: Paths, last: int) -> int | None:
    """The version of the newest checkpoint up to version ``last``; None if there is none.

    It is found by its name. The file that points at the newest one is for other programs.
    """
    names = (_NAME.fullmatch(file.name) for file in paths.log.glob("*.parquet"))
    return max((version for name in names if name and (version := int(name[1])) <= last), default=None)


def read_checkpoint(paths: Paths, version: int, kinds: Sequence[str] = _STATE) -> Iterator[dict[str, Any]]:
    """The actions of a checkpoint, as an entry's JSON has them.

    The file's bytes are compared with its digest. Raises UnreadableWarehouse.
    """
    import pyarrow.parquet as pq  # 11 ms, which a log without a checkpoint is read without

    file = paths.checkpoint(version)
    try:
        raw = file.read_bytes()
        parquet = pq.ParquetFile(pa.BufferReader(raw))
        digest = (parquet.metadata.metadata or {}).get(FIELD.encode())
        if digest is not None and not is_whole(raw, digest.decode()):
            raise ValueError("not the bytes that were written")
        table = parquet.read(columns=list(kinds))
        for kind in table.column_names:
            rows = table[kind].to_pylist(maps_as_pydicts="strict")
            yield from ({kind: row} for row in rows if row is not None)
    except (pa.ArrowException, OSError, *DAMAGED) as error:
        raise damaged_checkpoint(paths, file, error) from error


def write_checkpoint(paths: Paths, version: int) -> None:
    """Every CHECKPOINT_VERSIONS versions, write a checkpoint. A version is complete without it.

    It takes 30 ms, 80 where there are a thousand files, so it is written after the commit, which blocks POST.
    """
    if version % CHECKPOINT_VERSIONS:
        return
    import pyarrow.parquet as pq

    with suppress(OSError, pa.ArrowException, UnreadableWarehouse, *DAMAGED):
        actions = _reconciled(paths, version)
        mark, written = new_mark(), io.BytesIO()
        with pq.ParquetWriter(written, _SCHEMA, compression="zstd") as writer:
            writer.write_table(pa.Table.from_pylist(actions, _SCHEMA))
            writer.add_key_value_metadata({FIELD: mark})
        raw = with_digest(written.getvalue(), mark)
        write_file(paths.checkpoint(version), raw)
        pointer = {
            "version": version,
            "size": len(actions),
            "sizeInBytes": len(raw),
            "numOfAddFiles": sum("add" in action for action in actions),
        }
        write_file(paths.last_checkpoint, json.dumps(pointer).encode())


def _reconciled(paths: Paths, version: int) -> list[Mapping[str, Any]]:
    """The actions that make up a version: the last one for each file, each watermark, the protocol and the table."""
    before = newest_checkpoint(paths, version - 1)
    kept: dict[tuple[str, str], Mapping[str, Any]] = {}
    for action in chain(
        () if before is None else read_checkpoint(paths, before, _SCHEMA.names),
        *(read_actions(paths, number) for number in range(0 if before is None else before + 1, version + 1)),
    ):
        key = _key(action)
        if key is not None:
            kept[key] = action
    expired = time.time_ns() // 1_000_000 - _KEPT_MILLISECONDS
    return [
        action for action in kept.values()
        if "remove" not in action or (action["remove"].get("deletionTimestamp") or 0) > expired
    ]  # fmt: skip


def _key(action: Mapping[str, Any]) -> tuple[str, str] | None:
    """What a later action replaces; None for a kind that is not part of the state."""
    ((kind, values),) = action.items()
    if kind in ("add", "remove"):
        return "file", unquote(values["path"])
    if kind == "txn":
        return kind, values["appId"]
    return (kind, "") if kind in ("protocol", "metaData") else None


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
    checkpoint = newest_checkpoint(paths, last)
    before = Snapshot(writer_version=0) if checkpoint is None else _of_checkpoint(paths, checkpoint)
    snapshot = advance(paths, before, last)
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


def _of_checkpoint(paths: Paths, version: int) -> Snapshot:
    """The version of a checkpoint, without its evidence. Raises UnreadableWarehouse where the checkpoint is damaged."""
    try:
        changes = changes_of(paths, read_checkpoint(paths, version))
    except DAMAGED as error:
        raise damaged_checkpoint(paths, paths.checkpoint(version), error) from error
    files = {file.path: file for file in changes.added}.values()
    watermarks = dict.fromkeys(COLLECTIONS, 0) | changes.watermarks
    return _snapshot_of(version, files, watermarks, None, changes.writer_version or 0)


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
