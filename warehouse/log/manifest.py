"""What commits say beside their data files: the manifest of a version's evidence, the history of imports, which import
brought a row.

The manifest has the evidence's sources and files; a commit's summary names it.

Invariants
    A manifest is complete: with it and the files it names, a version's evidence can be read without any other version.
    It is never changed, and the summary of each commit names one, with its digest. A commit that brings no sighting
    names the manifest of the version before it; up to the first sighting none.
    A sighting counts if its import is its source's ``import_id`` or a later one. So an import that replaces a source
    ends its earlier sightings at once; compaction removes the sightings that no longer count.
    Contracts and usage are in mapped files of their own. Each statement in one is of a source and an import; a statement
    that was replaced has neither, and its rows do not count.

The sources are in a file of their own, because a fold, which comes every minute, changes the files and no source.

The history is the summaries of the commits: which imports there were; which version was the newest at a time, found by
bisection. ``Origins`` has the import of each row.
"""

from __future__ import annotations

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.log.entry import DAMAGED, LogEntry, damaged_entry, existing_version, read_summary
from sigdir.warehouse.table.errors import UnreadableWarehouse, VacuumedEvidence, WarehouseError, first_line
from sigdir.warehouse.table.fields import EPOCH, iso
from sigdir.warehouse.table.fields import microseconds as since_1970
from sigdir.warehouse.table.files import make_folder, sync, write_file
from sigdir.warehouse.table.paths import Paths

_MANIFEST_NAME = re.compile(r"[\w-]+\.json")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The file that describes a version's evidence, and its digest in hex."""

    path: Path
    sha256: str


def evidence_entry(manifest: ManifestFile | None, sightings: int = 0) -> dict[str, Any]:
    """What a commit's summary says of its version's evidence; ``sightings`` is how many the commit brings."""
    if manifest is None:
        return {}
    return {"evidence": {"manifest": manifest.path.name, "sha256": manifest.sha256, "sightings": sightings}}


def manifest_at(paths: Paths, version: int) -> ManifestFile | None:
    """The manifest that a version names, None if it is before the first sighting; raises UnreadableWarehouse.

    A commit of another program names none: the version before it has the same evidence.
    """
    for number in range(version, 0, -1):
        summary = read_summary(paths, number)
        if summary is not None:
            return _manifest_of_summary(paths, number, summary)
    return None


def manifest_of_entry(paths: Paths, entry: LogEntry) -> ManifestFile | None:
    """The manifest that a commit names, None for one that names none; raises UnreadableWarehouse."""
    return _manifest_of_summary(paths, entry.version, entry.summary or {})


def _manifest_of_summary(paths: Paths, version: int, summary: Mapping[str, Any]) -> ManifestFile | None:
    if "evidence" not in summary:
        return None
    try:
        name, sha256 = summary["evidence"]["manifest"], summary["evidence"]["sha256"]
        if not _MANIFEST_NAME.fullmatch(name) or not isinstance(sha256, str):
            raise ValueError("not the name and the digest of a manifest")
    except DAMAGED as error:
        raise damaged_entry(paths.log_entry(version), f"its evidence: {first_line(error)}") from error
    return ManifestFile(paths.evidence / name, sha256)


POST = 0
"""The number of the source that all POSTs are; its sightings have the import 0."""

_POST_LABEL = "POST"

SourceImports = tuple[tuple[int, int], ...]
"""Pairs of a source and an import."""

_SOURCES_NAME = re.compile(r"\w[\w.-]*")

MAX_LISTED = 64
"""A file whose sightings are of more source imports than this does not list them."""


@dataclass(frozen=True, slots=True)
class EvidenceSource:
    """A source: who says something about texts.

    ``label`` is what the user calls it. Sightings of the import ``import_id`` and of later ones count;
    ``first_import`` is the first that ever named the source. ``sightings`` is of what counts, ``digest`` of what the
    source said last; ``is_added_to`` says whether more than that counts.
    """

    number: int
    label: str
    import_id: int
    first_import: int
    sightings: int
    digest: str
    is_added_to: bool


@dataclass(frozen=True, slots=True)
class EvidenceFile:
    """A file of sightings of one collection. Ids are inclusive; they do not always rise inside it.

    ``size`` is in bytes, ``sha256`` in hex. ``source_imports`` are the pairs of source and import that the file
    has sightings of, None where they are too many to list.
    """

    path: Path
    collection: Collection
    rows: int
    size: int
    sha256: str
    first_id: int
    last_id: int
    source_imports: SourceImports | None = None

    def may_have(self, is_wanted: Callable[[int, int], bool]) -> bool:
        """Whether it may have sightings of such a source and import."""
        return self.source_imports is None or any(is_wanted(*pair) for pair in self.source_imports)


CONTRACTS, USAGE = "contracts", "usage"
"""The folders of mapped files, which say what is in them."""


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A file of sorted rows that readers map: contracts or usage, by its folder.

    ``statements`` are the source and the import of each statement in it, None for one that was replaced.
    """

    path: Path
    rows: int
    size: int
    sha256: str
    statements: tuple[tuple[int, int] | None, ...]

    @property
    def kind(self) -> str:
        return self.path.parent.name


@dataclass(frozen=True)
class Manifest:
    """The evidence of a version. ``files`` are in the order in which they were written, and so are ``mapped``."""

    sources: Mapping[int, EvidenceSource] = field(default_factory=dict)
    files: Mapping[Collection, tuple[EvidenceFile, ...]] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, ()))
    sources_file: tuple[str, str] | None = None
    """Name and digest of the file that has the sources."""
    mapped: tuple[MappedFile, ...] = ()

    def sighting_files(self) -> list[EvidenceFile]:
        """The files of both collections."""
        return [file for files in self.files.values() for file in files]

    def all_files(self) -> list[EvidenceFile | MappedFile]:
        """These, and the mapped ones."""
        return [*self.sighting_files(), *self.mapped]

    def mapped_of(self, kind: str) -> tuple[MappedFile, ...]:
        """The mapped files of CONTRACTS or of USAGE, the newest first."""
        return tuple(file for file in reversed(self.mapped) if file.kind == kind)

    def of_label(self, label: str) -> EvidenceSource | None:
        """The source that an import calls by this label; None if there is none yet."""
        return self._of_label.get(label)

    @cached_property
    def _of_label(self) -> dict[str, EvidenceSource]:
        """An import of a folder asks for each of its files, which may be 100,000."""
        return {source.label: source for source in self.sources.values() if source.number != POST}

    def counts(self, source: int, import_id: int) -> bool:
        """Whether a source's sightings of an import count."""
        return source in self.sources and import_id >= self.sources[source].import_id


POST_SOURCE = EvidenceSource(POST, _POST_LABEL, 0, 0, 0, "", is_added_to=False)
NO_EVIDENCE = Manifest({POST: POST_SOURCE})
"""The evidence of a version before the first sighting."""


# Reading.


def manifest_of(file: ManifestFile | None) -> Manifest:
    """The manifest that a version names; raises UnreadableWarehouse."""
    return NO_EVIDENCE if file is None else _read(file)


def sources_paths(paths: Paths, manifest: Manifest) -> list[Path]:
    """The file that has the manifest's sources; none for a manifest that is not read from a file."""
    return [] if manifest.sources_file is None else [paths.evidence / manifest.sources_file[0]]


def sources_of(file: ManifestFile) -> tuple[str, str]:
    """The name and the digest of the file that has a manifest's sources; raises UnreadableWarehouse.

    Nothing else of the manifest is read, and nothing is kept.
    """
    return _sources(file.path, _document(file.path, file.sha256))


def _sources(path: Path, document: Any) -> tuple[str, str]:
    """The digest of a manifest says that a log names it, not who made it: a copy writes no file outside of its folder."""
    name, sha256 = document["sources"]["name"], document["sources"]["sha256"]
    if not _SOURCES_NAME.fullmatch(name):
        raise UnreadableWarehouse(f"{path}: names {name[:80]!r} as the file of its sources")
    return name, sha256


@lru_cache(maxsize=8)
def _read(file: ManifestFile) -> Manifest:
    """Read a manifest and its sources. Neither ever changes, so the last ones are kept."""
    folder, document = file.path.parent, _document(file.path, file.sha256)
    files = [_file(folder, entry) for entry in document["files"]]
    named = {collection: tuple(file for file in files if file.collection == collection) for collection in COLLECTIONS}
    name, sha256 = _sources(file.path, document)
    mapped = tuple(_mapped(folder, entry) for entry in document.get("mapped", ()))
    return Manifest(_read_sources(folder / name, sha256), named, (name, sha256), mapped)


@lru_cache(maxsize=8)
def _read_sources(path: Path, sha256: str) -> Mapping[int, EvidenceSource]:
    sources = [EvidenceSource(**entry) for entry in _document(path, sha256)["sources"]]
    return {source.number: source for source in sources}


def _document(path: Path, sha256: str) -> Any:
    """The JSON of a file, which is what we wrote: its bytes have this digest."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise VacuumedEvidence(f"{path}: missing: the evidence of this version was vacuumed or lost") from error
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    if hashlib.sha256(raw).hexdigest() != sha256:
        raise UnreadableWarehouse(f"{path}: damaged: not what was written; put this file back from a backup")
    return json.loads(raw)


def _file(folder: Path, entry: Mapping[str, Any]) -> EvidenceFile:
    listed = entry["source_imports"]
    return EvidenceFile(
        folder / entry["path"], Collection.of_name(entry["collection"]), entry["rows"], entry["size"],
        entry["sha256"], entry["first_id"], entry["last_id"],
        None if listed is None else tuple((source, number) for source, number in listed),
    )  # fmt: skip


def _mapped(folder: Path, entry: Mapping[str, Any]) -> MappedFile:
    statements = tuple(None if one is None else (one[0], one[1]) for one in entry["statements"])
    return MappedFile(folder / entry["path"], entry["rows"], entry["size"], entry["sha256"], statements)


# Writing.


def without_replaced(manifest: Manifest) -> Manifest:
    """The manifest without the files of which no sighting and no statement counts any more."""
    files = {c: tuple(file for file in manifest.files[c] if file.may_have(manifest.counts)) for c in COLLECTIONS}
    return replace(manifest, files=files, mapped=tuple(file for file in manifest.mapped if any(file.statements)))


def write_manifest(paths: Paths, run: str, manifest: Manifest, base: Manifest) -> ManifestFile:
    """Write and sync the manifest of a run's commit, and its sources where they are not those of ``base``."""
    make_folder(paths.evidence)
    if manifest.sources == base.sources and base.sources_file is not None:
        name, sha256 = base.sources_file
    else:
        name = paths.evidence_sources(run).name
        sha256 = _write(paths.evidence / name, {"sources": [_entry(source) for source in manifest.sources.values()]})
    path = paths.evidence_manifest(run)
    document: dict[str, Any] = {"sources": {"name": name, "sha256": sha256}}
    document["files"] = [_file_entry(paths, file) for file in manifest.sighting_files()]
    document["mapped"] = [_file_entry(paths, file) for file in manifest.mapped]
    return ManifestFile(path, _write(path, document))


def _write(path: Path, document: Mapping[str, Any]) -> str:
    raw = json.dumps(document).encode() + b"\n"
    write_file(path, raw)
    return hashlib.sha256(raw).hexdigest()


def _entry(source: EvidenceSource) -> dict[str, Any]:
    return {name: getattr(source, name) for name in EvidenceSource.__slots__}


def _file_entry(paths: Paths, file: EvidenceFile | MappedFile) -> dict[str, Any]:
    entry = {name: getattr(file, name) for name in file.__slots__}
    return entry | {"path": file.path.relative_to(paths.evidence).as_posix()}


def sync_folders(files: Iterable[EvidenceFile | MappedFile]) -> None:
    """Bring the names of new files to stable storage."""
    for folder in {file.path.parent for file in files}:
        sync(folder)


def history(paths: Paths, version: int | None = None) -> list[dict[str, Any]]:
    """The summaries of the commits up to ``version``, oldest first, as ``read_summary`` gives them.

    Raises UnreadableWarehouse.
    """
    last = existing_version(paths, version)
    return [] if last is None else list(newest_first(paths, last))[::-1]


def newest_first(paths: Paths, newest: int, after: int = -1) -> Iterator[dict[str, Any]]:
    """The summaries of the commits above ``after`` up to ``newest``, each read when it is asked for.

    Raises UnreadableWarehouse.
    """
    summaries = (read_summary(paths, number) for number in range(newest, max(after, -1), -1))
    return (summary for summary in summaries if summary is not None)


def newest_import(paths: Paths, newest: int, after: int = -1) -> dict[str, Any] | None:
    """The summary of the newest import of these; None if it is not there. Raises UnreadableWarehouse."""
    return next((summary for summary in newest_first(paths, newest, after) if "import" in summary), None)


def committed_since(paths: Paths, microseconds: int, newest: int) -> int:
    """The first version up to ``newest`` committed at or after a time since 1970; ``newest`` + 1 where none is.

    Found by bisection: of a log of 10,000 versions 14 entries are read. Commits that are not ours count as
    earlier. Raises UnreadableWarehouse.
    """

    def committed_at(version: int) -> int:
        summary = read_summary(paths, version)
        return since_1970(summary["committed_at"]) if summary else 0

    return bisect_left(range(newest + 1), microseconds, key=committed_at)


def version_at(paths: Paths, time: datetime) -> int | None:
    """The version that was the newest at a time; None if there is no table.

    Raises UnreadableWarehouse, also for a time before the first version that has something.
    """
    newest = existing_version(paths)
    if newest is None:
        return None
    first = next(filter(None, (read_summary(paths, number) for number in range(newest + 1))), None)
    if first is not None and time < first["committed_at"]:
        raise UnreadableWarehouse(
            f"{paths.root} has no version at {iso(time)}; the first is of {iso(first['committed_at'])}"
        )
    return max(0, committed_since(paths, since_1970(time) // 1000 * 1000 + 1, newest) - 1)


# Where a row came from: the number of its import, which the index of a data file has, and that import's summary.

_SOURCES = 5
_STEPS = 64  # commits of others at most between a row's time and its import's commit


@dataclass(frozen=True, slots=True)
class Origin:
    """An import in short. ``names`` are the names of its first sources without their folders; ``sources`` counts all.

    A row that was POSTed has the import 0.
    """

    number: int
    version: int
    committed_at: datetime
    label: str | None
    names: tuple[str, ...]
    sources: int
    imported: int


POSTED = Origin(0, -1, EPOCH, None, (), 0, 0)


def origin_of(summary: dict[str, Any]) -> Origin:
    """The public part of an import's summary: names of folders stay private."""
    sources = summary["sources"]
    names = tuple(public_name(source["path"]) for source in sources[:_SOURCES])
    return Origin(
        summary["import"], summary["version"], summary["committed_at"], summary["source"], names,
        len(sources), summary["totals"]["imported"],
    )  # fmt: skip


def public_name(path: str) -> str:
    """The name of a source without its folder."""
    return path.rstrip("/").rpartition("/")[2]


class Origins:
    """Finds origins and keeps them: a commit never changes. Safe for threads."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._found: dict[int, Origin] = {0: POSTED}

    def of(self, number: int, created_at: int, newest: int) -> Origin | None:
        """The import with this number, which brought a row of this time; None if the log cannot be read."""
        if number not in self._found:
            with suppress(WarehouseError, OSError):
                found = self._find(number, created_at, newest)
                if found is not None:
                    self._found[number] = found
        return self._found.get(number)

    def _find(self, number: int, created_at: int, newest: int) -> Origin | None:
        """The commit of an import that has a row of this time."""
        # Commits have milliseconds.
        first = committed_since(self._paths, created_at // 1000 * 1000, newest)
        # One version earlier too: the times of a batch may run a little ahead of the clock.
        for version in range(max(0, first - 1), min(newest + 1, first + _STEPS)):
            summary = read_summary(self._paths, version)
            if summary is not None and summary.get("import") == number:
                return origin_of(summary)
        return None
