"""Few files instead of many: adjacent data files are written again as one, in a version that adds no row.

Each fold and each small import adds a file per collection, and every lookup searches each file.

Invariants
    Rows stay in the order of their ids; ids, times, texts, hashes and import numbers stay as they are.
    Staging is not changed: the commit carries the watermarks of the version it replaces.
    Files are replaced, never changed. Those of older versions stay until ``warehouse/vacuum.py``.
    Files of evidence are merged in the same version, sorted, without what no longer counts.

Protocol, under the publish lock
    1. Record the run as unfinished, as a publish does: a crash from here on leaves files that no
       commit names, which ``Publisher.recover`` removes.
    2. Write and sync the new files, and build their indexes where a server reads.
    3. Commit both lists of files, old and new, in one version, and end the run. No row moves between
       staging and the table, so POST does not wait for the commit.

The tiers. With a fold a minute 1,440 files come a day. If all of them were merged into one every time, each row would
be written again all day long. So a file is merged with files of its own size only: ten of one tier make one of the
next. Every ninth fold fills the lowest tier. That makes 160 merges a day of less than 5,000 rows (80 KB) each: 13 MB a
day at most, whatever the traffic. Above that a row is written again once a tier, twice in all, until it is in a file of
500,000 rows. At most nine files of a tier stay, 27 a collection, beside the large ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse import failpoints
from sigdir.warehouse.batch import FILE_ROWS
from sigdir.warehouse.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.evidence.compact import Merges, merge, with_replaced_sightings
from sigdir.warehouse.evidence.manifest import EvidenceFile, Manifest
from sigdir.warehouse.files import run_name, sync, uninterrupted
from sigdir.warehouse.home import upload, upload_checkpoint
from sigdir.warehouse.index.prebuild import build_indexes, build_ranks
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.checkpoint import write_checkpoint
from sigdir.warehouse.log.commit import append, data_file
from sigdir.warehouse.log.evidence import evidence_entry
from sigdir.warehouse.parallel import result_of
from sigdir.warehouse.parquet import ROW_GROUP_ROWS, WrittenFile, naming, write_data_file
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot

GATHER = 10
"""So many files of a tier are merged into one. With more, readers search more files between two merges."""

SMALL_ROWS = 500_000
"""A file of so many rows is large enough not to be merged."""

_TIERS = (0, SMALL_ROWS // GATHER**2, SMALL_ROWS // GATHER, SMALL_ROWS)

AnyFile = TypeVar("AnyFile", DataFile, EvidenceFile)
Files = Sequence[DataFile]


class Choose(Protocol):
    """Given the files of a collection in their order, returns those to merge, each list into one."""

    def __call__(self, files: Sequence[AnyFile], /) -> list[Sequence[AnyFile]]: ...


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
        rows = FILE_ROWS
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
    if not _has_work(read_snapshot(paths), choose):  # most of a server's checks end here, without the lock
        return None
    with Publisher(paths, threads, wait, on_wait) as publisher:
        if not _has_work(publisher.snapshot, choose):  # another may have merged them while this one waited
            return None
        try:
            return _merge(paths, publisher, choose, threads)
        except BaseException:
            with suppress(WarehouseError, OSError):  # at once: the new files may fill the disk
                publisher.recover()
            raise


def _chosen(snapshot: Snapshot, choose: Choose) -> dict[Collection, list[Files]]:
    found = {collection: choose(snapshot.files[collection]) for collection in COLLECTIONS}
    return {collection: merges for collection, merges in found.items() if merges}


def _chosen_evidence(manifest: Manifest, choose: Choose) -> Merges:
    """The evidence files to merge.

    They are chosen by their rows, as data files are; `sigdir compact` also rewrites files with sightings that were
    replaced.
    """
    merges = {collection: choose(manifest.files[collection]) for collection in COLLECTIONS}
    merges = {collection: files for collection, files in merges.items() if files}
    return merges if choose is due else with_replaced_sightings(manifest, merges)


def _has_work(snapshot: Snapshot, choose: Choose) -> bool:
    return bool(_chosen(snapshot, choose) or _chosen_evidence(snapshot.evidence, choose))


def _merge(paths: Paths, publisher: Publisher, choose: Choose, threads: int) -> Compacted:
    run, base = run_name(), publisher.snapshot
    chosen, evidence = _chosen(base, choose), _chosen_evidence(base.evidence, choose)
    with publisher.staging.exclusive() as staging:
        staging.begin_publish(run)
    failpoints.reach("compact_begun")
    files = _write(paths, run, chosen, threads)
    manifest = merge(paths, run, base.evidence, evidence, threads) if evidence else base.manifest
    failpoints.reach("compact_written")
    upload(paths, run)
    build_indexes(paths, map(data_file, files), threads)
    replaced = [file for merges in chosen.values() for merge in merges for file in merge]
    build_ranks(paths, [*base.files_without(replaced), *map(data_file, files)], manifest, threads)
    counts = {collection: _counts(base, collection, chosen.get(collection, [])) for collection in COLLECTIONS}
    watermarks = {collection: base.high_water[collection].id for collection in COLLECTIONS}
    with uninterrupted():
        summary = {"kind": "compact", "run": run, "collections": counts, **evidence_entry(manifest)}
        committed = append(
            paths, base.version, files, watermarks, summary, replaced, chain=base.chain, data_change=False
        )
        failpoints.reach("compact_committed")
        with suppress(UnreadableWarehouse), publisher.staging.exclusive() as staging:  # else the next publish does it
            staging.end_publish(run)
            staging.note_version(*committed)
    write_checkpoint(paths, committed[0])
    upload_checkpoint(paths, committed[0])
    snapshot = read_snapshot(paths)
    return Compacted(snapshot, counts)


def _counts(base: Snapshot, collection: Collection, merges: list[Files]) -> dict[str, int]:
    before = len(base.files[collection])
    return {
        "files_before": before,
        "files_after": before - sum(len(merge) - 1 for merge in merges),
        "rows": sum(file.rows for merge in merges for file in merge),
    }


def _write(paths: Paths, run: str, chosen: dict[Collection, list[Files]], threads: int) -> list[WrittenFile]:
    """Step 2: the new files, numbered from 1."""
    with ThreadPoolExecutor(threads) as pool:
        work = [
            pool.submit(write_data_file, paths.data_file(collection, run, number), collection, rows_of(merge))
            for collection, merges in chosen.items()
            for number, merge in enumerate(merges, 1)
        ]
        files = [result_of(done) for done in work]
    for collection in chosen:
        sync(paths.partition(collection))
    return files


def rows_of(files: Files) -> Iterator[pa.Table]:
    """The rows of the files in order, a row group at a time; raises UnreadableWarehouse if a file is damaged."""
    last_id = 0
    for file in files:
        rows = 0
        with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
            for batch in parquet.iter_batches(ROW_GROUP_ROWS, columns=FILE_SCHEMA.names):
                ids = batch.column("id").to_numpy()
                if not len(ids) or ids[0] <= last_id or (np.diff(ids) <= 0).any():
                    raise UnreadableWarehouse(f"{file.path}: its ids do not rise")
                last_id = int(ids[-1])
                rows += len(ids)
                yield pa.Table.from_batches([batch]).cast(FILE_SCHEMA)
        if rows != file.rows:
            raise UnreadableWarehouse(f"{file.path}: {rows:,} rows instead of {file.rows:,}")
