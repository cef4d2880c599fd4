"""The copy of versions from one place to another: a backup, a push to a store, a pull into a working copy.

Invariants
    A version is visible in the target only if all that it names is there. So the log's entries come after the files, in
    their order, and the file that points at the newest checkpoint comes last.
    A file gets its name in the target only if its sha256 is the recorded one.
    A name is never used twice. So a file that is there with its size is right, unless somebody has damaged it: ``check``
    compares digests, too. A transfer that is interrupted at any moment is completed by the next one.

The survey says which files nothing needs: those of versions outside a window, and what dead processes left.

Invariants
    What a version inside the window names is needed, and what the newest names.
    Nothing is taken for left by a dead process that a running publish may name: in a folder the caller holds the lock
    of publishers, in a store it is old, or a run of the caller's own that is known to be dead.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as AnyOf
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.log.entry import LogEntry, read_entry
from sigdir.warehouse.log.manifest import ManifestFile, history, manifest_at, manifest_of, sources_paths
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import Busy, UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import FileLock, dead_runs
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.paths import Paths, folder_lock, mirror_spool, mirror_state
from sigdir.warehouse.table.places import REQUESTS, SWEEP_AGE, DamagedFile, Folder, NamedFile, require_store
from sigdir.warehouse.table.stores import MissingObject, Object, Store

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


Place = Folder | Store

NAMES = Paths(Path())
"""Names below a warehouse."""


@dataclass(slots=True)
class TransferReport:
    """What a transfer did. ``present`` files were there already; ``bytes`` counts copied files, not linked ones.
    ``left_out`` files are of older versions, and vacuumed; a pull leaves out damaged ones too.

    ``version`` is the newest one, -1 for none, and ``rows`` and ``staged`` are its rows and the POSTed rows beside it.
    """

    version: int = -1
    rows: int = 0
    staged: int = 0
    copied: int = 0
    linked: int = 0
    present: int = 0
    left_out: int = 0
    log_entries: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"seconds": round(self.seconds, 3)}


Progress = Callable[[TransferReport], None]


# What versions name. ``paths`` are those of the log that names it.


def data_of(paths: Paths, files: Iterable[DataFile], is_needed: bool = True) -> Iterator[NamedFile]:
    """Data files; raises UnreadableWarehouse."""
    for file in files:
        if not file.path.is_relative_to(paths.table) or ".." in file.path.parts:
            raise UnreadableWarehouse(f"{paths.log}: an entry names {file.path}, which is not in the table")
        yield NamedFile(paths.name(file.path), file.size, file.sha256, is_needed)


def rejects_of(paths: Paths, entries: Iterable[LogEntry]) -> Iterator[NamedFile]:
    """What imports rejected; an import without rejects has no file."""
    for entry in entries:
        if entry.summary is not None and entry.summary.get("totals", {}).get("rejected"):
            yield NamedFile(paths.name(paths.rejects_file(entry.summary["run"])), is_needed=False)


def evidence_of(paths: Paths, manifest: ManifestFile | None, is_needed: bool = True) -> Iterator[NamedFile]:
    """The files of a manifest, its sources, and itself; raises UnreadableWarehouse, VacuumedEvidence."""
    if manifest is None:
        return
    evidence = manifest_of(manifest)
    assert evidence.sources_file is not None
    for file in evidence.all_files():
        path = paths.evidence / file.path.parent.name / file.path.name
        yield NamedFile(paths.name(path), file.size, file.sha256, is_needed)
    for name, sha256 in (evidence.sources_file, (manifest.path.name, manifest.sha256)):
        yield NamedFile(paths.name(paths.evidence / name), None, sha256, is_needed)


# The copy.


def transfer(
    files: Iterable[NamedFile],
    versions: Sequence[int],
    source: Place,
    target: Place,
    report: TransferReport,
    *,
    log: Folder | None = None,
    progress: Progress = lambda _: None,
    check: bool = False,
    skip_damaged: bool = False,
    publishing: AbstractContextManager[object] | None = None,
) -> None:
    """Copy the files that the target lacks, then the log entries of ``versions``. Of two files of a name the later counts.

    ``log`` is where the entries are read, by default the source. ``publishing`` is the context in which they get their
    names. ``skip_damaged`` leaves out damaged files of older versions. Raises StoreError, OSError, and ObjectExists where
    the target has another entry of a version.
    """
    copy = _Transfer(source, target, report)
    copy.files({file.name: file for file in files}, progress, check, skip_damaged)
    pointer = copy.checkpoint(versions[-1]) if versions else b""
    target.sync()
    failpoints.reach("copied")
    with publishing or nullcontext():
        copy.entries([str(NAMES.log_entry(version)) for version in versions], log or source)
        failpoints.reach("logged")
    if pointer:
        target.put(str(NAMES.last_checkpoint), pointer)


@dataclass
class _Transfer:
    """One transfer, step by step."""

    _source: Place
    _target: Place
    _report: TransferReport

    def files(self, files: Mapping[str, NamedFile], progress: Progress, check: bool, skip_damaged: bool) -> None:
        parts = (*map(NAMES.partition, COLLECTIONS), NAMES.rejects, NAMES.evidence)
        there = {each.name: each.size for part in parts for each in self._target.list(str(part))}

        def copied(file: NamedFile) -> int | None:
            """The bytes, 0 for a link, -1 for a file that is there, None for one that is left out."""
            if file.name in there and file.size in (None, there[file.name]) and not self._differs(file, check):
                return -1
            try:
                return self._copied(file)
            except (MissingObject, DamagedFile) as error:
                if file.is_needed:
                    raise
                if isinstance(error, MissingObject) or skip_damaged:
                    return None  # vacuumed: readers of that version are told
                raise DamagedFile(
                    f"{error}; only older versions need it: put it back from a backup, or give them up with"
                    " `sigdir vacuum --keep 0s`"
                ) from None

        # Beside a server a backup takes one core.
        threads = 1 if isinstance(self._source, Folder) and isinstance(self._target, Folder) else REQUESTS
        with ThreadPoolExecutor(threads) as pool:
            for file, size in zip(files.values(), ordered_map(pool, copied, files.values(), 2 * threads), strict=True):
                self._count(file, size)
                progress(self._report)

    def _count(self, file: NamedFile, size: int | None) -> None:
        self._report.left_out += size is None
        if size is not None and not file.is_document:
            self._report.present += size < 0
            self._report.linked += size == 0
            self._report.copied += size > 0
        self._report.bytes += max(size or 0, 0)

    def checkpoint(self, last: int) -> bytes:
        """Copy the newest checkpoint up to version ``last``; gives the file that points at it, empty if it is there."""
        pointer = _read(self._source, NAMES.last_checkpoint)
        try:
            version = int(json.loads(pointer)["version"])
        except (ValueError, KeyError, TypeError):
            return b""  # readers do without it
        if version > last or pointer == _read(self._target, NAMES.last_checkpoint):
            return b""
        begin = str(NAMES.checkpoint(version)).removesuffix(".parquet")
        for each in self._source.list(str(NAMES.log), after=begin):
            if each.name.startswith(begin):
                self._copied(NamedFile(each.name, each.size))
        return pointer

    def entries(self, names: Sequence[str], log: Place) -> None:
        """Create entries in their order."""
        if isinstance(self._target, Folder):
            self._target.create_all(log, names)
        else:
            require_store(self._target)  # again: somebody may serve its folder by now
            for name in names:
                self._target.create(name, log.read(name))
        self._report.log_entries += len(names)

    def _differs(self, file: NamedFile, check: bool) -> bool:
        """Whether a file has another digest, where that is cheap to know or to be checked."""
        return (check or file.is_document) and isinstance(self._target, Folder) and self._target.differs(file)

    def _copied(self, file: NamedFile) -> int:
        if isinstance(self._target, Folder):
            return self._target.copy_from(self._source, file)
        assert isinstance(self._source, Folder)  # nobody copies from store to store
        return self._source.copy_to(self._target, file)


def _read(place: Place, name: Path) -> bytes:
    """A small file, empty if there is none."""
    try:
        return place.read(str(name))
    except MissingObject:
        return b""
