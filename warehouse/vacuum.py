"""Deletes old files: those that no version inside a window names, and what dead processes left.

Invariants
    A version that was the newest at some moment inside the window stays whole, and so does the newest:
    a reader that began inside the window finds every file that its version names.
    The log and the rejects stay: they are the history.
    Nothing is deleted while another process publishes, so no file of a running publish is taken for an orphan.

Compaction removes files from a version; compaction and a source that is imported again remove evidence. So older
versions stay readable as well, back to the last compaction or repeated import before the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.files import FileLock, remove, size_of
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import store_of
from sigdir.warehouse.table.stores import Store
from sigdir.warehouse.transfer.transfer import Kind, orphans, survey_of, waste
from sigdir.warehouse.transfer.working_copy import pull

WINDOW = timedelta(days=7)
"""Folds every minute and their compactions leave 20 MB a day, 140 MB a week."""


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
    with FileLock(paths.lock, wait, on_wait=on_wait):
        snapshot = read_snapshot(paths)
        survey = survey_of(paths, snapshot, keep.total_seconds())
        found = []
        for kind, path in waste(paths, snapshot, survey):
            found.append(Waste(kind, path, size_of(path)))
            if not dry_run:
                remove(path)
                failpoints.reach("vacuum_removing")
    return Vacuumed(survey.oldest, snapshot.version, tuple(sorted(found, key=lambda waste: waste.path)))


def _vacuum_store(paths: Paths, store: Store, keep: timedelta, dry_run: bool) -> Vacuumed:
    """The same for a warehouse in a store, whose working copy is given; the copy itself is tidied by pulls.

    No lock shows whether a run elsewhere is alive: what no version names goes at the age of ``orphans``.
    """
    pull(paths)
    pull(paths, check="nothing", manifests=True)
    folders: dict[Path, Kind] = {paths.evidence: "evidence"}
    for collection in COLLECTIONS:
        folders[paths.partition(collection)] = "data"
    there = {
        paths.root / each.name: Waste(kind, paths.root / each.name, each.size)
        for folder, kind in folders.items()
        for each in store.list(paths.name(folder))
    }
    snapshot = read_snapshot(paths)
    survey = survey_of(paths, snapshot, keep.total_seconds(), there.__contains__)
    unneeded = survey.replaced | {paths.root / each.name for each in orphans(paths, store)}
    found = [there[path] for path in sorted(there) if path in unneeded]
    if not dry_run:
        store.delete(paths.name(waste.path) for waste in found)
    return Vacuumed(survey.oldest, snapshot.version, tuple(found))
