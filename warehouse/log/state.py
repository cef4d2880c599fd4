"""The table at one version: from the newest checkpoint, and the entries after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.actions import DataFile, changes_of
from sigdir.warehouse.log.checkpoint import Checkpoint, newest_complete, read_checkpoint
from sigdir.warehouse.log.damage import DAMAGED, damaged_checkpoint
from sigdir.warehouse.log.entry import existing_version, read_entry
from sigdir.warehouse.log.evidence import ManifestFile, manifest_at, manifest_of_entry
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at one version: its data files by their paths, and each collection's watermark.

    ``manifest`` is None for a version before the first sighting. ``writer_version`` is what Delta's protocol demands
    of a writer.
    """

    version: int
    files: Mapping[Path, DataFile]
    watermarks: Mapping[Collection, int]
    manifest: ManifestFile | None = None
    writer_version: int = 0


BEFORE_ENTRY_0 = TableState(-1, {}, dict.fromkeys(COLLECTIONS, 0))


def read_state(paths: Paths, version: int | None = None) -> TableState | None:
    """The state at a version, the newest by default; None if there is no table yet. Raises UnreadableWarehouse.

    Reading takes 0.1 ms an entry after the newest checkpoint, and each is checked.
    """
    last = existing_version(paths, version)
    if last is None:
        return None
    checkpoint = newest_complete(paths, last)
    state = advance(paths, _state_of(paths, checkpoint) if checkpoint else BEFORE_ENTRY_0, last)
    if not state.writer_version:
        raise UnreadableWarehouse(f"{paths.table}: not a table of Delta: no entry has its protocol")
    return replace(state, manifest=manifest_at(paths, last))


def advance(paths: Paths, state: TableState, last: int | None = None) -> TableState:
    """The newest state, or that of version ``last``, by the entries after ``state``. Raises UnreadableWarehouse."""
    files, watermarks, version = dict(state.files), dict(state.watermarks), state.version
    manifest, writer_version = state.manifest, state.writer_version
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
    return TableState(version, files, watermarks, manifest, writer_version) if version > state.version else state


def _state_of(paths: Paths, checkpoint: Checkpoint) -> TableState:
    """The state that a checkpoint holds. Raises UnreadableWarehouse where the checkpoint is damaged."""
    try:
        changes = changes_of(paths, read_checkpoint(paths, checkpoint))
    except DAMAGED as error:
        raise damaged_checkpoint(paths, checkpoint.files[0], error) from error
    files = {file.path: file for file in changes.added}
    watermarks = dict.fromkeys(COLLECTIONS, 0) | changes.watermarks
    return TableState(checkpoint.version, files, watermarks, writer_version=changes.writer_version or 0)
