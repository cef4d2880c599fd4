"""Removes a text that is in a collection twice: the row with the older id stays.

It also accepts that staged rows are lost.

No run of this program stores a text twice. A flipped bit in an index that nobody checked could let that happen, and
so may a table that another program has written to. Older versions keep both rows, and so do copies that others made.

Protocol, under the publish lock
    1. Find the texts that occur twice in the table, and staged rows whose text is in the table.
    2. Write the data files that have younger rows again without them, as a compaction does, and the files of evidence
       with the ids of the older rows.
    3. Commit the old and the new files in one version, and delete the staged rows. The entry's summary counts the
       removed rows by import, so `sigdir verify` can still compare the imports with the table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import waiting
from sigdir.warehouse import failpoints
from sigdir.warehouse.compact import rows_of
from sigdir.warehouse.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.evidence.compact import merge
from sigdir.warehouse.files import RunFolder, run_name, sync, uninterrupted
from sigdir.warehouse.home import upload
from sigdir.warehouse.index.prebuild import build_indexes, build_ranks
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.commit import append, data_file
from sigdir.warehouse.log.evidence import ManifestFile, evidence_entry
from sigdir.warehouse.parquet import WrittenFile, write_data_file
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.staging.writer import Staging

_TWICE = """
    WITH rows AS (SELECT id, import_id, text_signature AS text FROM read_parquet($files)),
    twice AS (SELECT text, min(id) AS kept FROM rows GROUP BY text HAVING count(*) > 1)
    SELECT id, kept, import_id, text FROM rows JOIN twice USING (text) WHERE id > kept ORDER BY id"""
_STAGED = """
    SELECT staged.id, min(rows.id) AS kept, 0 AS import_id, staged.text
    FROM read_parquet($files) rows JOIN staged ON rows.text_signature = staged.text GROUP BY ALL ORDER BY staged.id"""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A row whose text an older row has, which is ``kept``; ``import_id`` is 0 for a POSTed row."""

    id: int
    kept: int
    import_id: int
    text: str
    is_staged: bool


Duplicates = Mapping[Collection, list[Duplicate]]


@dataclass(frozen=True, slots=True)
class Repaired:
    """The rows that were removed, or would be; the new version, None if no data file had one of them.

    ``lost`` are ids of POSTed rows, first and last, that damage to the staging file has lost. They stay unused.
    """

    version: int | None
    removed: Duplicates
    lost: Mapping[Collection, tuple[int, int]]

    def to_dict(self) -> dict[str, Any]:
        removed = {c: [asdict(row) for row in rows] for c, rows in self.removed.items()}
        return {"version": self.version, "removed": removed, "lost": dict(self.lost)}


def repair(
    paths: Paths,
    threads: int = 2,
    memory_limit: str = "512MB",
    dry_run: bool = False,
    wait: bool = True,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Repaired:
    """Accept that staged rows are lost, and remove rows whose text an older row has; with ``dry_run`` only find them.

    Rows are not searched by a dry run that finds lost ones. Raises Busy, and UnreadableWarehouse where a file cannot
    be read; then the table is as it was.
    """
    lost = _lost(paths, accept=not dry_run)
    if lost and dry_run:
        return Repaired(None, {collection: [] for collection in COLLECTIONS}, lost)
    with RunFolder(paths.tmp) as folder, Publisher(paths, threads, wait, on_wait) as publisher:
        with connect(paths, memory_limit, threads, folder.path) as engine:
            found = {collection: _duplicates(engine, publisher, collection) for collection in COLLECTIONS}
        if dry_run or not any(found.values()):
            return Repaired(None, found, lost)
        try:
            return Repaired(_remove(paths, publisher, found, threads), found, lost)
        except BaseException:
            with suppress(WarehouseError, OSError):
                publisher.recover()
            raise


def _lost(paths: Paths, accept: bool) -> dict[Collection, tuple[int, int]]:
    """The ids of staged rows that are lost; with ``accept`` their loss is noted, and no command reports it again.

    Raises UnreadableWarehouse.
    """
    staging = Staging(paths.staging)
    try:
        return staging.accept_losses() if accept else staging.losses()
    finally:
        staging.close()


def _duplicates(engine: Any, publisher: Publisher, collection: Collection) -> list[Duplicate]:
    """Step 1."""
    import duckdb

    files = publisher.snapshot.parquet_files(collection)
    if not files:
        return []
    staged = publisher.staged(collection)
    texts = pa.table({"id": [row.id for row in staged], "text": pa.array([row.text for row in staged], pa.string())})
    engine.register("staged", texts.cast(pa.schema([("id", pa.int64()), ("text", pa.string())])))
    try:
        found = []
        for query, is_staged in ((_TWICE, False), (_STAGED, True)):
            with waiting(engine.interrupt):
                rows = engine.sql(query, params={"files": files}).to_arrow_table().to_pylist()
            found += [Duplicate(**row, is_staged=is_staged) for row in rows]
        return found
    except duckdb.Error as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableWarehouse(f"searching for texts that are stored twice: {reason}") from error


def _remove(paths: Paths, publisher: Publisher, found: Duplicates, threads: int) -> int | None:
    """Steps 2 and 3; returns the new version."""
    stored = {c: [row for row in found[c] if not row.is_staged] for c in COLLECTIONS}
    committed = None
    if any(stored.values()):
        run, base = run_name(), publisher.snapshot
        with publisher.staging.exclusive() as staging:
            staging.begin_publish(run)
        replaced = {c: _files_with(base.files[c], stored[c]) for c in COLLECTIONS}
        files = [file for c in COLLECTIONS for file in _written(paths, run, c, replaced[c], stored[c])]
        manifest = _with_kept_ids(paths, run, base, found, threads)
        upload(paths, run)
        build_indexes(paths, map(data_file, files), threads)
        kept = base.files_without([file for c in COLLECTIONS for file in replaced[c]])
        build_ranks(paths, [*kept, *map(data_file, files)], manifest, threads)
        failpoints.reach("repair_written")
        removed = {c: {str(i): n for i, n in Counter(row.import_id for row in stored[c]).items()} for c in COLLECTIONS}
        watermarks = {c: base.high_water[c].id for c in COLLECTIONS}
        summary = {"kind": "repair", "run": run, "removed": removed, **evidence_entry(manifest)}
        committed = (paths, base.version, files, watermarks, summary)
    with uninterrupted(), publisher.staging.exclusive() as staging:
        if committed is not None:
            noted = append(*committed, [file for c in COLLECTIONS for file in replaced[c]], chain=base.chain)
            failpoints.reach("repair_committed")
            staging.end_publish(run)
            staging.note_version(*noted)
        for collection in COLLECTIONS:
            staging.remove(collection, [row.id for row in found[collection] if row.is_staged])
    return noted[0] if committed is not None else None


def _with_kept_ids(paths: Paths, run: str, base: Snapshot, found: Duplicates, threads: int) -> ManifestFile | None:
    """The evidence with the sightings of the removed rows at the rows that are kept."""
    kept = {c: {row.id: row.kept for row in found[c]} for c in COLLECTIONS}
    ids = {c: np.array(sorted(kept[c]), np.int64) for c in COLLECTIONS}
    merges = {
        c: [[file] for file in base.evidence.files[c] if ((file.first_id <= ids[c]) & (ids[c] <= file.last_id)).any()]
        for c in COLLECTIONS
    }
    return merge(paths, run, base.evidence, merges, threads, kept) if any(merges.values()) else base.manifest


def _files_with(files: tuple[DataFile, ...], rows: list[Duplicate]) -> list[DataFile]:
    """The files that have these rows; files are in id order."""
    first_ids = [file.first_id for file in files]
    return [files[at] for at in sorted({bisect_right(first_ids, row.id) - 1 for row in rows})]


def _written(
    paths: Paths, run: str, collection: Collection, files: list[DataFile], without: list[Duplicate]
) -> Iterator[WrittenFile]:
    """The files written again without some rows; none for a file of which no row is left."""
    ids = np.array([row.id for row in without], np.int64)
    for number, file in zip(count(1), files, strict=False):
        kept = (table.filter(pa.array(~np.isin(table["id"].to_numpy(), ids))) for table in rows_of([file]))
        if file.rows > int(((file.first_id <= ids) & (ids <= file.last_id)).sum()):
            yield write_data_file(paths.data_file(collection, run, number), collection, kept)
    sync(paths.partition(collection))
