"""Which files of a warehouse nothing needs: those of versions outside a window, and what dead processes left.

Invariants
    What a version inside the window names is needed, and what the newest names.
    Nothing is taken for left by a dead process that a running publish may name: in a folder the caller holds the lock
    of publishers, in a store it is old, or a run of the caller's own that is known to be dead.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from collections.abc import Collection as AnyOf
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Literal

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.log.entry import LogEntry, read_entry
from sigdir.warehouse.log.evidence import ManifestFile, manifest_of_entry
from sigdir.warehouse.log.history import history
from sigdir.warehouse.log.manifest import manifest_of, sources_paths
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.table.files import FileLock, dead_runs
from sigdir.warehouse.table.paths import Paths, folder_lock, mirror_spool, mirror_state
from sigdir.warehouse.table.places import SWEEP_AGE, Folder
from sigdir.warehouse.table.stores import Object, Store

# At this age a file that no version names is taken for a dead run's. We hold the lock, so no run is alive;
# the age protects files where someone has deleted the lock's file.
_ORPHAN_SECONDS = 3600.0

Kind = Literal["data", "evidence", "log", "run", "index", "mirror"]


@dataclass(frozen=True, slots=True)
class Survey:
    """What the log shows: the files of the versions in the window, and files that were replaced earlier.

    ``oldest`` is the oldest version that is whole, its evidence too. Orphans older than ``orphans_before`` (seconds
    since 1970) go.
    """

    kept: set[Path]
    replaced: set[Path]
    oldest: int
    orphans_before: float
    kept_evidence: set[Path]
    replaced_evidence: set[Path]

    def by_age(self, keep: timedelta) -> Survey:
        """The same for a copy, whose files go by their age alone: they may have been fetched for an older version."""
        return replace(self, replaced=set(), replaced_evidence=set(), orphans_before=time.time() - keep.total_seconds())


def survey_of(paths: Paths, snapshot: Snapshot, keep: float, exists: Callable[[Path], bool] = Path.exists) -> Survey:
    """Walk the log from its end: version N - 1 has the files of N, and those that the commit of N removed."""
    now = time.time()
    kept = {file.path for file in snapshot.all_files()}
    replaced: set[Path] = set()
    oldest = snapshot.version
    whole = is_inside = True
    evidence = _KeptEvidence(paths, snapshot.manifest, exists)
    for version in range(snapshot.version, 0, -1):
        entry = read_entry(paths, version)
        evidence.add(entry, is_inside)
        committed_at = entry.committed_at.timestamp()
        # Until this commit the version before it was the newest.
        is_inside = committed_at > now - keep
        (kept if is_inside else replaced).update(entry.removed)
        whole = whole and all(path in kept and exists(path) for path in entry.removed)
        if whole:
            oldest = version - 1
        if not (is_inside or whole or committed_at > now - _ORPHAN_SECONDS):
            break
    oldest = max(oldest, evidence.oldest_whole())
    return Survey(kept, replaced, oldest, now - _ORPHAN_SECONDS, evidence.kept, evidence.replaced)


class _KeptEvidence:
    """The evidence of the versions of a log, which are added from the newest on."""

    def __init__(self, paths: Paths, newest: ManifestFile | None, exists: Callable[[Path], bool]) -> None:
        self._paths, self._exists = paths, exists
        self._manifests: list[tuple[int, ManifestFile]] = []
        self.kept: set[Path] = self._files_of(newest) if newest is not None else set()
        """What the versions in the window need."""
        self._is_needed = False

    def add(self, entry: LogEntry, is_inside: bool) -> None:
        """Add a version; ``is_inside`` says whether it was the newest at some moment in the window."""
        self._is_needed |= is_inside
        manifest = manifest_of_entry(self._paths, entry)
        if manifest is not None:
            self._manifests.append((entry.version, manifest))
            if self._is_needed:
                self.kept |= self._files_of(manifest)
        if entry.summary is not None:  # another program's version has the evidence of the one before it
            self._is_needed = False

    def _files_of(self, manifest: ManifestFile) -> set[Path]:
        """The manifest and what it names; none where it cannot be read."""
        with suppress(UnreadableWarehouse):
            evidence = manifest_of(manifest)
            files = [file.path for file in evidence.all_files()]
            return {manifest.path, *sources_paths(self._paths, evidence), *files}
        return set()

    def oldest_whole(self) -> int:
        """The oldest of the versions, from the newest on, whose evidence is whole; keeps that evidence."""
        oldest = -1
        for version, manifest in self._manifests:
            files = self._files_of(manifest)
            data = {file for file in files if file.suffix == ".parquet"}
            if not files or not all(map(self._exists, files)) or not data <= self.kept:
                return max(oldest, version + 1)
            self.kept |= files
        return oldest

    @property
    def replaced(self) -> set[Path]:
        """What the versions before the window named and no version in it needs."""
        named = set().union(*(self._files_of(manifest) for _, manifest in self._manifests))
        return named - self.kept


def waste(paths: Paths, snapshot: Snapshot, survey: Survey) -> Iterator[tuple[Kind, Path]]:
    """What a folder has and nothing needs, with its kind. The caller holds the lock of publishers."""
    for collection in COLLECTIONS:
        for file in paths.partition(collection).glob("*.parquet"):
            if file not in survey.kept and (file in survey.replaced or _is_older(file, survey.orphans_before)):
                yield "data", file
    for file in paths.evidence_files():
        if file not in survey.kept_evidence and (
            file in survey.replaced_evidence or _is_older(file, survey.orphans_before)
        ):
            yield "evidence", file
    for file in paths.log_part_files():
        if _is_older(file, survey.orphans_before):
            yield "log", file
    for folder in dead_runs(paths.tmp):
        yield "run", folder
    if paths.cache.is_dir() or paths.visible.is_dir():
        from sigdir.warehouse.index.view import unused_indexes  # numba, which only servers need

        for entry in unused_indexes(paths, snapshot):
            yield "index", entry
    for folder in sorted(paths.mirrors.iterdir()) if paths.mirrors.is_dir() else ():
        for left in _left_by_mirror(folder, survey.orphans_before):
            yield "mirror", left


def _left_by_mirror(folder: Path, before: float) -> Iterator[Path]:
    """Files of a mirror that no state needs, half-written states, or the whole folder where it has no state."""
    if not folder.is_dir() or not _is_older(folder, before):
        return
    lock = folder_lock(folder)
    with suppress(Busy, OSError), FileLock(lock, wait=False):
        states = [mirror_state(folder, collection) for collection in COLLECTIONS]
        states = [state for state in states if state.exists()]
        if not states:
            yield folder
            return
        needed = {lock, *states, *map(mirror_spool, states)}
        yield from sorted(file for file in folder.iterdir() if file not in needed)


def _is_older(file: Path, moment: float) -> bool:
    return file.stat().st_mtime < moment


# In a store.

_RUN = re.compile(r"(?:^|/)(\d{16}-[0-9a-f]{8})")


def sweep(place: Folder, dead: AnyOf[str] = ()) -> None:
    """Remove from the store of a working copy what ``orphans`` finds; nothing is done for any other folder.

    ``dead`` are runs of this copy that died without a commit. Call it after a commit: before that the request by which
    one of them creates its entry may still be on its way, and afterwards there is an entry of that version.
    """
    left = orphans(place.paths, place.store, dead) if place.store is not None else []
    if place.store is not None and left:
        place.store.delete(each.name for each in left)


def orphans(paths: Paths, store: Store, dead: AnyOf[str] = ()) -> list[Object]:
    """What runs have left in the store that ended over SWEEP_AGE ago without a commit, or are known to be dead.

    A run is committed if an entry of the copy, which is up to date, names it. Times are those of the store's clock:
    what is so much older than the newest object is old.
    """
    folders = [paths.partition(collection) for collection in COLLECTIONS]
    folders += [paths.evidence, paths.rejects, paths.tmp]
    listed = [each for folder in folders for each in store.list(paths.name(folder))]
    newest = max((each.modified for each in listed), default=None)
    left = [
        each for each in listed if (newest is not None and newest - each.modified > SWEEP_AGE) or _run_of(each) in dead
    ]
    if not left:
        return []
    committed = {summary["run"] for summary in history(paths)}
    return [each for each in left if _run_of(each) not in (None, *committed)]


def _run_of(found: Object) -> str | None:
    """The run that an object's name begins with."""
    run = _RUN.search(found.name)
    return run[1] if run else None
