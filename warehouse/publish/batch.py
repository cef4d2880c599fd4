"""The data files of one publish: a batch's new rows, split over several files, and the folded POSTed rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import Array, numbers, strings
from sigdir.signatures.candidates import binary_column
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.publish.spill import ImportSightings, Spill
from sigdir.warehouse.staging.transaction import Range, StagedRow
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import sync
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.parquet import NewRows, rows_table, write_data_file
from sigdir.warehouse.table.paths import Paths

FILE_ROWS = 20_000_000
"""Rows of a data file, about 300 MB.

A lookup in 20 files of 5 M rows took 30 microseconds, because it searches each file.
"""

Progress = Callable[[int], None]
"""Called with the number of rows that were written since the last call."""

Staged = Mapping[Collection, list[StagedRow]]


@dataclass(frozen=True, slots=True)
class Batch:
    """New rows of one collection: the rows of ``spill`` whose flag in ``keep`` is set.

    ``sightings`` are what the batch's sources say about all rows of the spill.
    """

    spill: Spill
    keep: npt.NDArray[np.bool_]
    sightings: ImportSightings

    @property
    def rows(self) -> int:
        return int(np.count_nonzero(self.keep))


@dataclass(frozen=True, slots=True)
class _BatchPart:
    """The rows of one file and their reserved ids: the spill's batches ``first`` up to and without ``last``.

    ``rows`` are the numbers of their rows.
    """

    number: int
    first: int
    last: int
    rows: slice
    reserved: Range


class BatchFiles:
    """The data files that one publish writes; none is visible until the log names it.

    File 0 of a collection holds the folded rows, whose ids are below the batch's; the batch's files count from 1.
    A row keeps its reserved id where another row's text is taken out: the evidence has it by then.
    """

    def __init__(
        self, paths: Paths, run: str, batches: Mapping[Collection, Batch], threads: int, progress: Progress
    ) -> None:
        self._paths, self._run, self._batches = paths, run, batches
        self._threads, self._progress = threads, progress
        self._parts: dict[Collection, list[_BatchPart]] = {}
        self._files: dict[tuple[Collection, int], DataFile] = {}
        self._removed: dict[Collection, set[int]] = {collection: set() for collection in batches}
        self._import_id = 0

    def written(self) -> list[DataFile]:
        return list(self._files.values())

    def rows(self, *, folded: bool) -> dict[Collection, int]:
        """Rows of the batch that are in the files, or folded ones."""
        counts = dict.fromkeys(COLLECTIONS, 0)
        for (collection, number), file in self._files.items():
            counts[collection] += file.rows if folded == (number == 0) else 0
        return counts

    def write(self, reserved: Mapping[Collection, Range], folded: Staged, import_id: int) -> None:
        """Write and sync all files: the batches with their reserved ids and times, and the folded rows."""
        self._import_id = import_id
        self._parts = {c: _plan(batch, reserved[c], self._threads) for c, batch in self._batches.items()}
        for collection, rows in folded.items():
            if rows:
                self._write_folded(collection, rows)
        parts = [(collection, part) for collection, parts in self._parts.items() for part in parts]
        for_each(lambda part: self._write_part(*part), parts, self._threads)
        for collection in COLLECTIONS:
            sync(self._paths.partition(collection))

    def remove_texts(self, staged: Staged) -> None:
        """Take the texts of staged rows out of the batches, and write the files that had them again."""
        for collection, rows in staged.items():
            batch = self._batches[collection]
            numbers, _ = batch.spill.rows_with([row.text for row in rows])
            numbers = numbers[batch.keep[numbers]]
            if not len(numbers):
                continue
            batch.keep[numbers] = False
            self._removed[collection].update(numbers.tolist())
            for part in self._parts[collection]:
                if ((part.rows.start <= numbers) & (numbers < part.rows.stop)).any():
                    self._rewrite(collection, part)
            sync(self._paths.partition(collection))

    def _write_part(self, collection: Collection, part: _BatchPart, suffix: str = "") -> None:
        path = self._paths.data_file(collection, self._run + suffix, part.number)
        self._files[collection, part.number] = write_data_file(path, collection, self._tables(collection, part))

    def _tables(self, collection: Collection, part: _BatchPart) -> Iterator[pa.Table]:
        """The rows of a part for which ids were reserved, without those that were removed since."""
        batch, rows = self._batches[collection], part.rows
        is_left, numbered = batch.keep[rows], batch.keep[rows].copy()
        numbered[[row - rows.start for row in self._removed[collection] if rows.start <= row < rows.stop]] = True
        is_left, done = is_left[numbered], 0
        for text in batch.spill.kept_texts(part.first, part.last, numbered):
            new = NewRows(text, binary_column(keccak256_column(text)[:, : collection.hash_bytes]))
            some = slice(done, done + len(text))
            offsets = np.arange(some.start, some.stop, dtype=np.int64)
            ids, created_at = part.reserved.first_id + offsets, part.reserved.first_created_at + offsets
            table = rows_table(new, ids, created_at, self._import_id)
            done = some.stop
            self._progress(len(text))
            yield table if is_left[some].all() else table.filter(numbers(is_left[some]))

    def _write_folded(self, collection: Collection, staged: list[StagedRow]) -> None:
        rows = NewRows(
            strings([row.text for row in staged]),
            pa.array([row.digest[: collection.hash_bytes] for row in staged], pa.binary()),
        )
        ids = np.array([row.id for row in staged], np.int64)
        created_at = np.array([row.created_at for row in staged], np.int64)
        path = self._paths.data_file(collection, self._run, 0)
        table = rows_table(rows, ids, created_at, import_id=0)
        self._files[collection, 0] = write_data_file(path, collection, [table])

    def _rewrite(self, collection: Collection, part: _BatchPart) -> None:
        """Write a part's file again under a new name, unless no row of it is left, and delete the old one."""
        old = self._files.pop((collection, part.number))
        if self._batches[collection].keep[part.rows].any():
            self._write_part(collection, part, suffix=f"-{time.time_ns()}")
        old.path.unlink()


def runs_of_batches(bounds: Array, wanted: int) -> Iterator[tuple[int, int]]:
    """The batches in so many runs of about as many rows; ``bounds`` has the rows in front of each batch, and all."""
    cuts = np.searchsorted(bounds, [bounds[-1] * k // wanted for k in range(1, wanted)])
    return pairwise([0, *cuts.tolist(), len(bounds) - 1])


def _plan(batch: Batch, reserved: Range, threads: int) -> list[_BatchPart]:
    """Split the batch into files of about equal size, as many as keep all threads busy, of at most FILE_ROWS."""
    if not reserved.rows:
        return []
    bounds = batch.spill.first_rows()
    per_batch = np.add.reduceat(batch.keep, bounds[:-1], dtype=np.int64)
    kept = np.concatenate([[0], np.cumsum(per_batch)])  # rows kept in front of each batch
    wanted = 1
    if reserved.rows > FILE_ROWS // 40:  # below that, a second file costs readers more than it saves
        wanted = threads * -(-reserved.rows // (FILE_ROWS * threads))
    parts: list[_BatchPart] = []
    for first, last in runs_of_batches(kept, wanted):
        rows, offset = int(kept[last] - kept[first]), int(kept[first])
        if rows:
            share = Range(reserved.first_id + offset, reserved.first_created_at + offset, rows)
            parts.append(_BatchPart(len(parts) + 1, first, last, slice(int(bounds[first]), int(bounds[last])), share))
    return parts
