"""Every path of a warehouse folder is built here.

::

    warehouse.json                  the format of all this, and the warehouse's id
    table/_delta_log/               the log: one version a commit, covering both collections
    table/collection=<name>/        data files, <run>-<number>.parquet, never changed once named, old ones until vacuum
    rejects/<run>.parquet           what the import of that run rejected
    evidence/<collection>/          sightings of its texts, <run>-<number>.parquet, never changed once named
    evidence/contracts/             deployments and interfaces, <run>-<number>.mapped, never changed once named
    evidence/usage/                 counts of calls and logs, the same
    evidence/<run>.json             a manifest: the files and sources of the versions that name it
    evidence/<run>.sources.json     the sources of the manifests that name it
    staging.sqlite                  sequences and POSTed rows that are not folded yet
    staging.sqlite.stamp            changes with every commit of staging; locked by the process that writes it; has the
                                    highest ids that were given out
    publish.lock                    held by the one publisher
    last-fold                       empty; its modification time is when `sigdir fold --every` last succeeded
    cache/<data file>/              its columns and hash order, mapped by servers; can be deleted at any time
    cache/<data file>.<evidence>.summaries/  what this evidence says of its texts; can be deleted at any time
    cache/misses.sqlite             what lookups did not find (serve/core/misses.py); can be deleted at any time
    cache/statistics.json           the figures of the server's statistics page; can be deleted at any time
    suppressed.txt                  the texts that servers hide, as the operator keeps them
    visible/<list>/                 data files without the rows that this list hides, and their indexes; can be deleted
    mirrors/<directory>/            the progress of `sigdir mirror` and the rows that are not imported yet
    tmp/<run>/                      a running import's spill; its lock file shows whether the import still runs
    store.json                      in a working copy only: the URL of the store that the warehouse is in
    pull.lock                       in a working copy only: held by the process that brings it up to date
    last-pull                       empty; its modification time is when a server last found the copy up to date

In a store a warehouse has ``warehouse.json``, ``table/``, ``rejects/``, ``evidence/`` and ``suppressed.txt``, by the same
names; see ``warehouse/table/places.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sigdir.signatures.collections import Collection
from sigdir.warehouse.table.errors import UnreadableWarehouse

_OWN_NAMES = (
    "warehouse.json", "table", "rejects", "evidence", "publish.lock", "last-fold", "cache", "suppressed.txt", "visible",
    "mirrors", "tmp", "store.json", "pull.lock", "last-pull", "lost+found",
)  # fmt: skip


@dataclass
class Below:
    """A path of the warehouse below another one."""

    _parent: str
    _name: str

    def __get__(self, paths: Paths, _: type[Paths]) -> Path:
        parent: Path = getattr(paths, self._parent)
        return parent / self._name


@dataclass(frozen=True, slots=True)
class Paths:
    """The paths of a warehouse. ``derived`` is the folder of ``cache`` and ``visible`` where ``root`` is read-only."""

    root: Path
    derived: Path | None = None

    identity = Below("root", "warehouse.json")
    table = Below("root", "table")
    log = Below("table", "_delta_log")
    staging = Below("root", "staging.sqlite")
    lock = Below("root", "publish.lock")
    store = Below("root", "store.json")
    pull_lock = Below("root", "pull.lock")
    last_pull = Below("root", "last-pull")
    last_fold = Below("root", "last-fold")
    staging_stamp = Below("root", "staging.sqlite.stamp")
    staging_wal = Below("root", "staging.sqlite-wal")
    """SQLite's own log of the staging file."""
    rejects = Below("root", "rejects")
    evidence = Below("root", "evidence")
    kept_cache = Below("root", "cache")
    """The cache inside the warehouse, which may be there although it cannot be written."""
    statistics = Below("cache", "statistics.json")
    misses = Below("cache", "misses.sqlite")
    statistics_lock = Below("cache", "statistics.json.lock")
    compile_lock = Below("cache", "warm.lock")
    """Held by the one worker that compiles the kernels."""
    suppressed = Below("root", "suppressed.txt")
    tmp = Below("root", "tmp")
    last_checkpoint = Below("log", "_last_checkpoint")
    mirrors = Below("root", "mirrors")

    def hold_warehouse(self) -> bool:
        """Whether the folder is a warehouse, also one that has lost ``warehouse.json``, or is just being made."""
        return self.identity.exists() or self.log.is_dir() or self.staging.exists()

    def other_files(self) -> list[str]:
        """The names in the folder that are none of a warehouse's. Hidden files and a disk's ``lost+found`` do not count."""
        if not self.root.is_dir():
            return []
        names = sorted(entry.name for entry in self.root.iterdir())
        return [name for name in names if not name.startswith((".", "staging.sqlite")) and name not in _OWN_NAMES]

    def name(self, file: Path) -> str:
        """A file's name below the warehouse, which is its name in a store."""
        return file.relative_to(self.root).as_posix()

    def evidence_file(self, collection: Collection, run: str, number: int) -> Path:
        return self.evidence / collection / f"{run}-{number:04d}.parquet"

    def evidence_mapped(self, kind: str, run: str, number: int = 0) -> Path:
        """A mapped file of contracts or of usage."""
        return self.evidence / kind / f"{run}-{number:04d}.mapped"

    def evidence_manifest(self, run: str) -> Path:
        return self.evidence / f"{run}.json"

    def evidence_sources(self, run: str) -> Path:
        return self.evidence / f"{run}.sources.json"

    def evidence_files(self) -> list[Path]:
        """All files of the evidence that are there, whether a version names them or not."""
        return sorted([*self.evidence.glob("*/*"), *self.evidence.glob("*.json")])

    def evidence_of_run(self, run: str) -> list[Path]:
        """The files of the evidence that a run wrote."""
        return sorted([*self.evidence.glob(f"*/{run}-*"), *self.evidence.glob(f"{run}.*json")])

    @property
    def cache(self) -> Path:
        return (self.derived or self.root) / "cache"

    def index(self, collection: Collection, file: Path) -> Path:
        """The folder of a data file's index."""
        return self.cache / index_name(collection, file)

    @property
    def visible(self) -> Path:
        return (self.derived or self.root) / "visible"

    def visible_file(self, list_id: str, collection: Collection, file: Path) -> Path:
        """A data file without the rows that a list hides."""
        return self.visible / list_id / collection / f"{file.stem}-{list_id}.parquet"

    def index_cache(self, file: Path) -> Path:
        """The folder of the index of a data file or of a visible file."""
        return file.parent if file.is_relative_to(self.visible) else self.cache

    def index_caches(self, file: Path) -> tuple[Path, Path]:
        """Where the index of a file may be: where it is built, and inside a warehouse that cannot be written."""
        return self.index_cache(file), self.kept_cache

    def mirror(self, directory: str) -> Path:
        return self.mirrors / directory

    def mirror_states(self) -> list[Path]:
        return sorted(self.mirrors.glob("*/*.json"))

    def log_entry(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def log_part(self, version: int, mark: str) -> Path:
        """An entry that has no name yet."""
        return self.log / f".{version:020d}.json.{mark}.part"

    def nameless_entries(self) -> list[Path]:
        """Entries that have no name yet. Only a publisher writes them, so for the next one they are a dead one's."""
        return sorted(self.log.glob(".*.json.*.part"))

    def log_part_files(self) -> list[Path]:
        """What a killed process left of entries and checkpoints; deltalake writes them to names with ``#``."""
        return sorted([*self.log.glob(".*.part"), *self.log.glob("*#*")])

    def checkpoint(self, version: int) -> Path:
        return self.log / f"{version:020d}.checkpoint.parquet"

    def partition(self, collection: Collection) -> Path:
        return self.table / f"collection={collection}"

    def data_file(self, collection: Collection, run: str, number: int) -> Path:
        return self.partition(collection) / f"{run}-{number:04d}.parquet"

    def data_files(self) -> list[Path]:
        """All data files that are there, whether a version names them or not."""
        return sorted(self.table.glob("collection=*/*"))

    def files_of_run(self, run: str) -> list[Path]:
        """The data files that a run wrote."""
        return sorted(self.table.glob(f"collection=*/{run}-*.parquet"))

    def in_table(self, file: Path) -> str:
        """A data file's name in the log: relative to the table. The log never names a file from elsewhere."""
        return file.relative_to(self.table).as_posix() if file.is_relative_to(self.table) else file.as_posix()

    def rejects_file(self, run: str) -> Path:
        return self.rejects / f"{run}.parquet"


def index_name(collection: Collection, file: Path) -> str:
    """The name of a data file's index in the cache: files of one run have the same name in both collections."""
    return f"{collection}-{file.stem}"


def summaries_name(index: str, evidence: str) -> str:
    """The name of a data file's summaries in the cache, by the name of its index and a digest of its evidence."""
    return f"{index}.{evidence}{_SUMMARIES}"


_SUMMARIES = ".summaries"


def index_lock(index: Path) -> Path:
    """The lock under which an index's folder is built."""
    return index.with_name(f"{index.name}.lock")


def index_part(index: Path) -> Path:
    """The folder in which an index is built."""
    return index.with_name(f".{index.name}")


def index_of_entry(entry: Path) -> str:
    """The index that a cache entry belongs to: its folder, its lock, the folder in which it is built, its summaries."""
    name = entry.name.removeprefix(".").removesuffix(".lock")
    return name.partition(".")[0] if name.endswith(_SUMMARIES) else name


def mirror_state(folder: Path, collection: Collection) -> Path:
    """How far a mirror is with a collection."""
    return folder / f"{collection}.json"


def mirror_spool(state: Path) -> Path:
    """The rows that a mirror has read and not imported, beside its state."""
    return state.with_suffix(".ndjson")


def folder_lock(folder: Path) -> Path:
    """The lock of a run's or a mirror's folder, held while its process lives."""
    return folder / "lock"


def existing(root: Path) -> Paths:
    """The paths of a warehouse to read; raises UnreadableWarehouse for a folder that holds none.

    Every command that does not make a warehouse starts here: a mistyped folder would look like a warehouse without
    rows.
    """
    paths = Paths(root.absolute())
    if not root.exists():
        raise UnreadableWarehouse(f"{root}: there is no such folder, so no warehouse to read")
    if not paths.hold_warehouse():
        raise UnreadableWarehouse(
            f"{root}: no warehouse, because the folder has no {paths.identity.name};"
            " `sigdir import` and `sigdir serve` make one"
        )
    return paths
