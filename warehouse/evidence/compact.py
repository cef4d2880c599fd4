"""Few sorted files of evidence instead of many, without the sightings that no longer count.

Invariants
    What counts in a version counts in the compacted one: a sighting is dropped where its source was imported again,
    or where another of the same source says the same of the same text. A text keeps one sighting by POST.
    A merged file is in the order of the ids, then of the sources, then as the sightings came.
    Memory does not grow with the files: they are read a range of ids at a time, of about WINDOW_ROWS sightings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.arrow import numbers
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import each
from sigdir.warehouse.evidence.declarations import codes, differs
from sigdir.warehouse.evidence.files import Counting, sorted_by_id, write_sightings
from sigdir.warehouse.log.manifest import POST, EvidenceFile, Manifest, sync_folders
from sigdir.warehouse.table.parallel import result_of
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.schema import SIGHTING_SCHEMA

WINDOW_ROWS = 1 << 20
"""About so many sightings are in memory at a time, in each thread."""

_BUCKETS = 1 << 16

Files = Sequence[EvidenceFile]
Merges = Mapping[Collection, Sequence[Files]]


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


def merge(paths: Paths, run: str, base: Manifest, merges: Merges, threads: int) -> Manifest:
    """Write and sync each list of files as one; returns what names them. Raises UnreadableWarehouse."""
    numbered = [(c, n, files) for c, lists in merges.items() for n, files in enumerate(lists, 1)]
    with ThreadPoolExecutor(threads) as pool:
        work = [pool.submit(_Merge(base, files).write, paths, run, c, n) for c, n, files in numbered]
        done = [result_of(one) for one in work]
    dropped: Counter[int] = Counter()
    named = {collection: list(base.files[collection]) for collection in COLLECTIONS}
    for (collection, _, files), (written, repeated) in zip(numbered, done, strict=True):
        dropped.update(repeated)
        at = named[collection].index(files[0])
        gone = {file.path for file in files}
        named[collection][at:at] = [written] if written is not None else []
        named[collection] = [file for file in named[collection] if file.path not in gone]
    sync_folders(written for written, _ in done if written is not None)
    sources = {
        number: replace(source, sightings=source.sightings - dropped[number]) if dropped[number] else source
        for number, source in base.sources.items()
    }
    return replace(base, sources=sources, files={c: tuple(files) for c, files in named.items()})


class _Merge:
    """The merge of some files into one."""

    def __init__(self, manifest: Manifest, files: Files) -> None:
        self._files = files
        self._counting = Counting(manifest)
        self._repeated: Counter[int] = Counter()

    def write(
        self, paths: Paths, run: str, collection: Collection, number: int
    ) -> tuple[EvidenceFile | None, Counter[int]]:
        """The new file, None if nothing is left, and how many sightings of each source said the same as another."""
        path = paths.evidence_file(collection, run, number)
        return write_sightings(path, collection, self._tables()), self._repeated

    def _tables(self) -> Iterator[pa.Table]:
        for first, last in self._windows():
            tables = [table for file in self._files for table in self._read(file, first, last)]
            yield self._distinct(sorted_by_id(tables))

    def _windows(self) -> Iterator[tuple[int, int]]:
        """Ranges of ids, the last ones exclusive, each with about WINDOW_ROWS sightings."""
        lowest, highest = min(file.first_id for file in self._files), max(file.last_id for file in self._files)
        width = (highest - lowest) // _BUCKETS + 1
        counts = np.zeros(_BUCKETS + 1, np.int64)
        for file in self._files:
            with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
                for batch in each(parquet.iter_batches(WINDOW_ROWS, columns=["id"])):
                    ids = (batch.column(0).to_numpy() - lowest) // width
                    counts += np.bincount(ids, minlength=_BUCKETS + 1)
        window = np.cumsum(counts) // WINDOW_ROWS
        starts = np.flatnonzero(np.concatenate([[True], window[1:] != window[:-1]])) * width + lowest
        yield from pairwise([*starts.tolist(), highest + 1])

    def _read(self, file: EvidenceFile, first: int, last: int) -> Iterator[pa.Table]:
        """The sightings of a file in a range of ids that count."""
        if file.last_id < first or file.first_id >= last:
            return
        is_inside = (pc.field("id") >= first) & (pc.field("id") < last)
        with naming(file.path):
            table = pq.read_table(file.path, filters=is_inside, page_checksum_verification=True)
        counts = self._counting.of(table)
        yield (table if counts.all() else table.filter(numbers(counts))).cast(SIGHTING_SCHEMA)

    def _distinct(self, table: pa.Table) -> pa.Table:
        """The sightings that differ in more than their import, in the order of ids, of sources, and as they were."""
        ids, sources = table["id"].to_numpy(), table["source"].to_numpy()
        order = np.lexsort((sources, ids))
        same = (ids[order][1:] == ids[order][:-1]) & (sources[order][1:] == sources[order][:-1])
        if not same.any():
            return table.take(pa.array(order))
        said = [codes(table[name]) for name in _SAID]
        nulls_last = (np.where(column < 0, np.iinfo(np.int64).max, column) for column in said)
        order = np.lexsort((table["import_id"].to_numpy(), *nulls_last, sources, ids))
        repeats = ~differs(*(column[order] for column in (ids, sources, *said)))
        repeats |= (sources[order] == POST) & ~differs(
            ids[order], sources[order]
        )  # those with a declaration come first
        self._repeated.update(sources[order[repeats & (sources[order] != POST)]].tolist())
        kept = order[~repeats]
        return table.take(pa.array(kept[np.lexsort((kept, sources[kept], ids[kept]))]))


_SAID = tuple(name for name in SIGHTING_SCHEMA.names if name not in ("id", "source", "import_id"))
"""The columns after id and source by which sightings are ordered, the least important first: declaration is the last."""
