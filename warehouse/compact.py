"""Few files instead of many: adjacent data files are written again as one, in a version that adds no row.

Each fold and each small import adds a file per collection, and every lookup searches each file.

Invariants
    Rows stay in the order of their ids; ids, times, texts, hashes and import numbers stay as they are.
    No row moves between staging and the table: the commit carries the watermarks of the version it replaces.
    Files are replaced, never changed. Those of older versions stay until ``warehouse/vacuum.py``.
    Files of evidence are merged in the same version, without what no longer counts: a sighting is dropped where its
    source was imported again, or where another of the same source says the same of the same text. A text keeps one
    sighting by POST. A merged file is in the order of the ids, then of the sources, then as the sightings came.

The steps are those of ``warehouse/publish/commit.py``.

The tiers. With a fold a minute 1,440 files come a day. If all of them were merged into one every time, each row would
be written again all day long. So a file is merged with files of its own size only: ten of one tier make one of the
next. Every ninth fold fills the lowest tier. That makes 160 merges a day of less than 5,000 rows (80 KB) each: 13 MB a
day at most, whatever the traffic. Above that a row is written again once a tier, twice in all, until it is in a file of
500,000 rows. At most nine files of a tier stay, 27 a collection, beside the large ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.evidence.mapped import write_sightings
from sigdir.warehouse.log.manifest import (
    CONTRACTS,
    POST,
    EvidenceFile,
    Manifest,
    ManifestFile,
    MappedFile,
    sync_folders,
    write_manifest,
)
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.publish.batch import FILE_ROWS
from sigdir.warehouse.publish.commit import VersionContent
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.sql.contracts import ContractTables, add_files
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import MEMORY, SightingTables
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import make_folder, run_name, sync
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.parquet import (
    FILE_SCHEMA,
    SIGHTING_SCHEMA,
    batches_in,
    naming,
    sha256_of,
    write_data_file,
)
from sigdir.warehouse.table.paths import Paths

GATHER = 10
"""So many files of a tier are merged into one. With more, readers search more files between two merges."""

SMALL_ROWS = 500_000
"""A file of so many rows is large enough not to be merged."""

_TIERS = (0, SMALL_ROWS // GATHER**2, SMALL_ROWS // GATHER, SMALL_ROWS)

AnyFile = TypeVar("AnyFile", DataFile, EvidenceFile, MappedFile)
Files = Sequence[DataFile]
Merges = Mapping[Collection, Sequence[Sequence[EvidenceFile]]]


Choose = Callable[[Sequence[Any]], list[Sequence[Any]]]
"""Given the files of a collection in their order, returns those to merge, each list into one."""


def small(files: Sequence[AnyFile]) -> list[Sequence[AnyFile]]:
    """All adjacent small files."""
    return _cut(_adjacent(files, SMALL_ROWS))


def everything(files: Sequence[AnyFile]) -> list[Sequence[AnyFile]]:
    """All adjacent files, as long as they make none of over FILE_ROWS rows."""
    return _cut([files])


def due(files: Sequence[AnyFile]) -> list[Sequence[AnyFile]]:
    """The files of the highest tier that is full: what a server merges by itself."""
    for above, below in reversed(list(pairwise(_TIERS))):
        full = [run for run in _adjacent(files, below) if sum(file.rows >= above for file in run) >= GATHER]
        if full:
            return _cut(full)
    return []


def _adjacent(files: Sequence[AnyFile], below: int) -> list[Sequence[AnyFile]]:
    """The runs of adjacent files of fewer than ``below`` rows each."""
    return [list(run) for is_small, run in groupby(files, lambda file: file.rows < below) if is_small]


def _cut(runs: list[Sequence[AnyFile]]) -> list[Sequence[AnyFile]]:
    """The runs in pieces of at most FILE_ROWS rows, without the pieces of a single file."""
    pieces: list[list[AnyFile]] = []
    for run in runs:
        pieces.append([])
        rows = 0
        for file in run:
            if rows + file.rows > FILE_ROWS:
                pieces.append([])
                rows = 0
            pieces[-1].append(file)
            rows += file.rows
    return [piece for piece in pieces if len(piece) >= 2]


@dataclass(frozen=True, slots=True)
class Compacted:
    """The new version, and for each collection ``files_before``, ``files_after``, ``rows`` written again."""

    snapshot: Snapshot
    collections: dict[Collection, dict[str, int]]


def compact(
    paths: Paths,
    choose: Choose = small,
    threads: int = 2,
    wait: bool = True,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Compacted | None:
    """Merge the files that ``choose`` picks; None if it picks none.

    Raises Busy, and UnreadableWarehouse where a file cannot be read; then the table is as it was.
    """
    if not any(_chosen(read_snapshot(paths), choose)):  # most of a server's checks end here, without the lock
        return None
    with Publisher(paths, threads, wait, on_wait) as publisher:
        chosen = _chosen(publisher.snapshot, choose)
        if not any(chosen):  # another may have merged them while this one waited
            return None
        content = _MergedFiles(paths, run_name(), publisher.snapshot, threads, chosen)
        return Compacted(publisher.commit(content), content.counts())


class _Chosen(NamedTuple):
    """The files to merge, each list into one: those of the table, of sightings, and of contracts."""

    files: dict[Collection, list[Files]]
    evidence: Merges
    contracts: Sequence[Sequence[MappedFile]]


def _chosen(snapshot: Snapshot, choose: Choose) -> _Chosen:
    """What ``choose`` picks, by the rows; `sigdir compact` also rewrites files with sightings that were replaced."""
    manifest = snapshot.evidence
    files = {collection: found for collection in COLLECTIONS if (found := choose(snapshot.files[collection]))}
    merges = {collection: found for collection in COLLECTIONS if (found := choose(manifest.files[collection]))}
    evidence = merges if choose is due else with_replaced_sightings(manifest, merges)
    return _Chosen(files, evidence, choose(manifest.mapped_of(CONTRACTS)[::-1]))


@dataclass
class _MergedFiles(VersionContent):
    """Files that are written again as fewer."""

    changes_rows = False

    chosen: _Chosen
    _files: list[DataFile] = field(default_factory=list)

    def write_data(self) -> None:
        """The new files, numbered from 1."""

        def write(numbered: tuple[Collection, int, Files]) -> DataFile:
            collection, number, merge = numbered
            return write_data_file(self.paths.data_file(collection, self.run, number), collection, rows_of(merge))

        numbered = [
            (c, number, merge) for c, merges in self.chosen.files.items() for number, merge in enumerate(merges, 1)
        ]
        self._files = for_each(write, numbered, self.threads)
        for collection in self.chosen.files:
            sync(self.paths.partition(collection))

    def write_evidence(self) -> ManifestFile | None:
        if not self.chosen.evidence and not self.chosen.contracts:
            return self.base.manifest
        base = self.base.evidence
        evidence = merged_sightings(self.paths, self.run, base, self.chosen.evidence, self.threads)
        evidence = replace(evidence, mapped=self._merged_contracts(base.mapped))
        return write_manifest(self.paths, self.run, evidence, base)

    def _merged_contracts(self, mapped: Sequence[MappedFile]) -> tuple[MappedFile, ...]:
        """The mapped files of the version, each list of files of contracts as one."""
        found = list(mapped)
        for number, files in enumerate(self.chosen.contracts):
            path = self.paths.evidence_mapped(CONTRACTS, self.run, number)
            make_folder(path.parent)
            with ContractTables(connect(MEMORY, self.threads)) as tables:
                statements = add_files(tables, files)
                rows, _ = tables.write(path, len(statements))
            sync(path)
            merged = MappedFile(path, rows, path.stat().st_size, sha256_of(path), statements)
            sync_folders([merged])
            found[found.index(files[0])] = merged
            found = [file for file in found if file not in files]
        return tuple(found)

    def added(self) -> list[DataFile]:
        return self._files

    def replaced(self) -> list[DataFile]:
        return [file for merges in self.chosen.files.values() for merge in merges for file in merge]

    def summary(self) -> dict[str, Any]:
        return {"kind": "compact", "collections": self.counts()}

    def counts(self) -> dict[Collection, dict[str, int]]:
        """As in ``Compacted``."""
        return {c: _counts(len(self.base.files[c]), self.chosen.files.get(c, [])) for c in COLLECTIONS}


def _counts(files: int, merges: list[Files]) -> dict[str, int]:
    return {
        "files_before": files,
        "files_after": files - sum(len(merge) - 1 for merge in merges),
        "rows": sum(file.rows for merge in merges for file in merge),
    }


# Sightings.


_COMPARED = [name for name in SIGHTING_SCHEMA.names if name not in ("id", "source", "import_id")]
_REPEATS = f"""
CREATE TABLE repeats AS SELECT file_index, file_row_number, source FROM live
WHERE (id, source) IN (SELECT (id, source) FROM live GROUP BY ALL HAVING count(*) > 1)
QUALIFY row_number() OVER (
    PARTITION BY id, source, {", ".join(f"if(source = {POST}, NULL, {name})" for name in _COMPARED)}
    ORDER BY declaration IS NULL, import_id, file_index, file_row_number) > 1
"""
_ORDER = "id, source, file_index, file_row_number"


def with_replaced_sightings(manifest: Manifest, merges: Merges) -> Merges:
    """The merges, and each other file alone that has sightings which no longer count."""
    found = {}
    for collection in COLLECTIONS:
        chosen = {file.path for files in merges.get(collection, ()) for file in files}
        alone = [
            [file]
            for file in manifest.files[collection]
            if file.path not in chosen and not all(manifest.counts(*pair) for pair in file.source_imports or ())
        ]
        found[collection] = [*merges.get(collection, ()), *alone]
    return {collection: files for collection, files in found.items() if files}


def merged_sightings(paths: Paths, run: str, base: Manifest, merges: Merges, threads: int) -> Manifest:
    """Write and sync each list of files as one; returns what names them. Raises UnreadableWarehouse, QueryError."""
    dropped: Counter[int] = Counter()
    named = {collection: list(base.files[collection]) for collection in COLLECTIONS}
    for collection, lists in merges.items():
        for number, files in enumerate(lists, 1):
            path = paths.evidence_file(collection, run, number)
            with SightingTables(base, files, threads) as tables:
                tables.execute(_REPEATS)
                dropped.update(tables.counts(f"repeats WHERE source != {POST}"))
                written = write_sightings(path, collection, tables.without("repeats", _ORDER))
            at = named[collection].index(files[0])
            named[collection][at:at] = [written] if written is not None else []
            named[collection] = [file for file in named[collection] if file not in files]
            sync_folders([written] if written is not None else [])
    sources = {
        number: replace(source, sightings=source.sightings - dropped[number]) for number, source in base.sources.items()
    }
    return replace(base, sources=sources, files={c: tuple(files) for c, files in named.items()})


# Rows.


def rows_of(files: Files) -> Iterator[pa.Table]:
    """The rows of the files in order; raises UnreadableWarehouse if a file is damaged."""
    last_id = 0
    for file in files:
        rows = 0
        for batch in batches_in(file.path, FILE_SCHEMA.names):
            ids = batch.column("id").to_numpy()
            if not len(ids) or ids[0] <= last_id or (np.diff(ids) <= 0).any():
                raise UnreadableWarehouse(f"{file.path}: its ids do not rise")
            last_id = int(ids[-1])
            rows += len(ids)
            with naming(file.path):
                table = pa.Table.from_batches([batch]).cast(FILE_SCHEMA)
            yield table
        if rows != file.rows:
            raise UnreadableWarehouse(f"{file.path}: {rows:,} rows instead of {file.rows:,}")
