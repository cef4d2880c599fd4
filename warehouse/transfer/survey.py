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
from sigdir.warehouse.log.entry import read_entry
from sigdir.warehouse.log.history import history
from sigdir.warehouse.log.manifest import ManifestFile, manifest_at, manifest_of, sources_paths
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
    """What the log shows: the files of the versions in the window, and those that only earlier versions name.

    ``oldest`` is the oldest version that is whole, its evidence too. Orphans older than ``orphans_before`` (seconds
    since 1970) go.
    """

    kept: set[Path]
    replaced: set[Path]
    oldest: int
    orphans_before: float

    def by_age(self, keep: timedelta) -> Survey:
        """The same for a copy, whose files go by their age alone: they may have been fetched for an older version."""
        return replace(self, replaced=set(), orphans_before=time.time() - keep.total_seconds())

    def is_waste(self, file: Path) -> bool:
        return file not in self.kept and (file in self.replaced or _is_older(file, self.orphans_before))


def survey_of(paths: Paths, snapshot: Snapshot, keep: float, exists: Callable[[Path], bool] = Path.exists) -> Survey:
    """Walk the log from its end: version N - 1 has the files of N, and those that the commit of N removed."""
    now = time.time()
    kept = {file.path for file in snapshot.all_files()} | (_evidence(paths, snapshot.manifest) or set())
    named, oldest, is_whole = set(kept), snapshot.version, True
    for version in range(snapshot.version, 0, -1):
        entry = read_entry(paths, version)
        evidence = _evidence(paths, manifest_at(paths, version - 1))
        files = {*entry.removed, *(evidence or ())}
        named |= files
        committed_at = entry.committed_at.timestamp()
        # Until this commit the version before it was the newest.
        is_inside = committed_at > now - keep
        if is_inside:
            kept |= files
        rows = {file for file in files if file.suffix != ".json"}
        is_whole = is_whole and evidence is not None and rows <= kept and all(map(exists, files))
        if is_whole:
            oldest = version - 1
            kept |= files
        if not (is_inside or is_whole or committed_at > now - _ORPHAN_SECONDS):
            break
    return Survey(kept, named - kept, oldest, now - _ORPHAN_SECONDS)


def _evidence(paths: Paths, manifest: ManifestFile | None) -> set[Path] | None:
    """A manifest and what it names, nothing before the first sighting; None where it cannot be read."""
    if manifest is None:
        return set()
    with suppress(UnreadableWarehouse):
        evidence = manifest_of(manifest)
        return {manifest.path, *sources_paths(paths, evidence), *(file.path for file in evidence.all_files())}
    return None


def waste(paths: Paths, snapshot: Snapshot, survey: Survey) -> Iterator[tuple[Kind, Path]]:
    """What a folder has and nothing needs, with its kind. The caller holds the lock of publishers."""
    listed: tuple[tuple[Kind, list[Path]], ...] = (
        ("data", paths.data_files()), ("evidence", paths.evidence_files()), ("log", paths.log_part_files()),
    )  # fmt: skip
    for kind, files in listed:
        yield from ((kind, file) for file in files if survey.is_waste(file))
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
