"""Deletes old files: those that no version inside a window names, and what dead processes left.

Invariants
    A version that was the newest at some moment inside the window stays whole, and so does the newest:
    a reader that began inside the window finds every file that its version names.
    The log and the rejects stay: they are the history.
    Nothing is deleted while another process publishes, so no file of a running publish is taken for an orphan.

Compaction and repair remove files from a version; compaction and a source that is imported again remove evidence. So
older versions stay readable as well, back to the last compaction, repair or repeated import before the window.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse import failpoints
from sigdir.warehouse.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.evidence.manifest import manifest_of, sources_paths
from sigdir.warehouse.files import FileLock, dead_runs, remove, size_of
from sigdir.warehouse.home import store_of
from sigdir.warehouse.index.view import unused_indexes
from sigdir.warehouse.log.entry import LogEntry, read_entry
from sigdir.warehouse.log.evidence import ManifestFile, manifest_of_entry
from sigdir.warehouse.paths import Paths, folder_lock, mirror_spool, mirror_state
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.stores import Store
from sigdir.warehouse.working_copy import fetch_manifests, orphans, pull

WINDOW = timedelta(days=7)
"""Folds every minute and their compactions leave 20 MB a day, 140 MB a week."""

# At this age a file that no version names is taken for a dead run's. We hold the lock, so no run is alive;
# the age protects files where someone has deleted the lock's file.
_ORPHAN_SECONDS = 3600.0

Kind = Literal["data", "evidence", "log", "run", "index", "mirror"]


@dataclass(frozen=True, slots=True)
class Waste:
    """A file or folder that nothing needs, and its bytes.

    ``data`` is a data file that no version in the window names, ``evidence`` a file of evidence that none needs,
    ``log`` a file that a killed commit left in the log's folder, ``run`` a dead import's spill, ``index`` the index of
    a file not in the newest version, ``mirror`` what a killed `sigdir mirror` left and the next one would not read.
    """

    kind: Kind
    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What was deleted, or would be. ``oldest`` is the oldest version that is whole afterwards."""

    oldest: int
    newest: int
    waste: tuple[Waste, ...]

    @property
    def size(self) -> int:
        return sum(waste.size for waste in self.waste)

    def to_dict(self) -> dict[str, Any]:
        return {
            "oldest_version": self.oldest,
            "newest_version": self.newest,
            "bytes": self.size,
            "removed": [{"kind": waste.kind, "path": str(waste.path), "bytes": waste.size} for waste in self.waste],
        }


def vacuum(
    paths: Paths,
    keep: timedelta = WINDOW,
    dry_run: bool = False,
    wait: bool = True,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Vacuumed:
    """Remove what nothing inside the window needs, or with ``dry_run`` only report it.

    Raises Busy, UnreadableWarehouse.
    """
    if not paths.root.is_dir():
        return Vacuumed(-1, -1, ())
    store = store_of(paths)
    if store is not None:
        return _vacuum_store(paths, store, keep, dry_run)
    lock = FileLock(paths.lock)
    lock.acquire(wait, on_wait)
    try:
        snapshot = read_snapshot(paths)
        survey = _survey(paths, snapshot, keep.total_seconds())
        found = []
        for kind, path in _waste(paths, snapshot, survey):
            found.append(Waste(kind, path, size_of(path)))
            if not dry_run:
                remove(path)
                failpoints.reach("vacuum_removing")
    finally:
        lock.release()
    return Vacuumed(survey.oldest, snapshot.version, tuple(sorted(found, key=lambda waste: waste.path)))


def _vacuum_store(paths: Paths, store: Store, keep: timedelta, dry_run: bool) -> Vacuumed:
    """The same for a warehouse in a store, whose working copy is given; the copy itself is tidied by pulls.

    No lock shows whether a run elsewhere is alive: what no version names goes at the age of ``orphans``.
    """
    pull(paths)
    fetch_manifests(paths)
    folders = [paths.partition(collection) for collection in COLLECTIONS]
    data = {paths.root / each.name: each for folder in folders for each in store.list(paths.name(folder))}
    evidence = {paths.root / each.name: each for each in store.list(paths.name(paths.evidence))}
    snapshot = read_snapshot(paths)
    survey = _survey(paths, snapshot, keep.total_seconds(), (data | evidence).__contains__)
    left = {paths.root / each.name for each in orphans(paths, store)}
    found: list[Waste] = []
    unneeded = (survey.replaced - survey.kept) | left
    found += [Waste("data", path, data[path].size) for path in sorted(data) if path in unneeded]
    unneeded = survey.replaced_evidence | left
    found += [Waste("evidence", path, evidence[path].size) for path in sorted(evidence) if path in unneeded]
    if not dry_run:
        store.delete(paths.name(waste.path) for waste in found)
    return Vacuumed(survey.oldest, snapshot.version, tuple(found))


@dataclass(frozen=True, slots=True)
class _Survey:
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


def _survey(paths: Paths, snapshot: Snapshot, keep: float, exists: Callable[[Path], bool] = Path.exists) -> _Survey:
    """Walk the log from its end: version N - 1 has the files of N, and those that the commit of N removed."""
    now = time.time()
    kept = {file.path for file in snapshot.all_files()}
    replaced: set[Path] = set()
    oldest = snapshot.version
    whole = is_inside = True
    evidence = _Evidence(paths, exists)
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
    return _Survey(kept, replaced, oldest, now - _ORPHAN_SECONDS, evidence.kept, evidence.replaced)


class _Evidence:
    """The evidence of the versions of a log, which are added from the newest on."""

    def __init__(self, paths: Paths, exists: Callable[[Path], bool]) -> None:
        self._paths, self._exists = paths, exists
        self._manifests: list[tuple[int, ManifestFile]] = []
        self.kept: set[Path] = set()
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


def _waste(paths: Paths, snapshot: Snapshot, survey: _Survey) -> Iterator[tuple[Kind, Path]]:
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
