"""The table at one version: from the newest checkpoint, and the entries after it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.log.actions import DataFile, changes_of
from sigdir.warehouse.log.chain import Chain, require_same
from sigdir.warehouse.log.checkpoint import Checkpoint, newest_complete, read_checkpoint, require_readable_pointer
from sigdir.warehouse.log.damage import DAMAGED, damaged_checkpoint, naming_broken
from sigdir.warehouse.log.entry import existing_version, read_digests, read_entry, vouched_by
from sigdir.warehouse.log.evidence import ManifestFile, manifest_at, manifest_of_entry
from sigdir.warehouse.parquet import sha256_of
from sigdir.warehouse.paths import Paths


@dataclass(frozen=True, slots=True)
class TableState:
    """The table at one version: its data files by their paths, each collection's watermark, and the log's end.

    ``manifest`` is None for a version before the first sighting. ``writer_version`` is what Delta's protocol demands
    of a writer.
    """

    version: int
    files: Mapping[Path, DataFile]
    watermarks: Mapping[Collection, int]
    chain: Chain
    manifest: ManifestFile | None = None
    writer_version: int = 0


_BEFORE_ENTRY_0 = TableState(-1, {}, dict.fromkeys(COLLECTIONS, 0), Chain())


def read_state(paths: Paths, version: int | None = None) -> TableState | None:
    """The state at a version, the newest by default; None if there is no table yet. Raises UnreadableWarehouse.

    Reading takes 0.1 ms an entry after the newest checkpoint, and each is checked.
    """
    last = existing_version(paths, version)
    if last is None:
        return None
    require_readable_pointer(paths)
    checkpoint = newest_complete(paths, last)
    state = advance(paths, _state_of(paths, checkpoint, last) if checkpoint else _BEFORE_ENTRY_0, last)
    if not state.writer_version:
        raise UnreadableWarehouse(f"{paths.table}: not a table of Delta: no entry has its protocol")
    after = vouched_by(paths, last + 1)  # there is one where an older version is asked for
    if after is not None:
        with naming_broken(paths):
            require_same(after.entries, state.chain.entries, f"version {last + 1} has another digest of it")
    return replace(state, manifest=manifest_at(paths, last))


def advance(paths: Paths, state: TableState, last: int | None = None) -> TableState:
    """The newest state, or that of version ``last``, by the entries after ``state``. Raises UnreadableWarehouse."""
    files, watermarks, version, chain = dict(state.files), dict(state.watermarks), state.version, state.chain
    manifest, writer_version = state.manifest, state.writer_version
    while version < last if last is not None else paths.log_entry(version + 1).exists():
        version += 1
        entry = read_entry(paths, version)
        with naming_broken(paths):
            chain = chain.after(version, entry.sha256, entry.vouched)
        files |= {file.path: file for file in entry.added}
        for path in entry.removed:
            files.pop(path, None)
        watermarks |= entry.watermarks
        writer_version = writer_version if entry.writer_version is None else entry.writer_version
        if entry.summary is not None:
            manifest = manifest_of_entry(paths, entry)
    return TableState(version, files, watermarks, chain, manifest, writer_version) if version > state.version else state


def _state_of(paths: Paths, checkpoint: Checkpoint, last: int) -> TableState:
    """The state that a checkpoint holds. Raises UnreadableWarehouse where the checkpoint is damaged."""
    version = checkpoint.version
    digests = {version: sha256_of(checkpoint.files[0])} if len(checkpoint.files) == 1 else {}
    chain, is_ours = Chain(checkpoints=digests), False
    with naming_broken(paths):
        if paths.log_entry(version).exists():
            sha256, vouched = read_digests(paths, version)
            chain, is_ours = chain.after(version, sha256, vouched), vouched is not None
        recorded = _recorded_digest(paths, version, last)
        require_same(recorded, digests, "another digest of it was recorded", are_checkpoints=True)
    if is_ours and not recorded:
        # The checkpoint may be damaged, so the entries are read that it was made from, if they are whole.
        with suppress(UnreadableWarehouse):
            before = read_state(paths, version - 1)
            if before is not None:
                return replace(advance(paths, before, version), chain=chain)
    try:
        changes = changes_of(paths, read_checkpoint(paths, checkpoint))
    except DAMAGED as error:
        raise damaged_checkpoint(paths, checkpoint.files[0], error) from error
    files = {file.path: file for file in changes.added}
    watermarks = dict.fromkeys(COLLECTIONS, 0) | changes.watermarks
    return TableState(version, files, watermarks, chain, writer_version=changes.writer_version or 0)


def _recorded_digest(paths: Paths, checkpoint: int, last: int) -> Mapping[int, str]:
    """The digest of a checkpoint that the first entry of ours after it recorded; empty if there is no such entry."""
    for version in range(checkpoint + 1, last + 2):
        vouched = vouched_by(paths, version)
        if vouched is not None:
            return vouched.checkpoints
    return {}
