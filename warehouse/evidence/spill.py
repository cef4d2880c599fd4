"""What an import keeps of its evidence until it is published: sightings beside the spilled rows, and ids of texts.

A plain list's rows have no sightings here, so a list costs nothing a row. Other sightings are written once a batch,
with a number for each row. The ids are written by ``dedupe``, eight bytes a row, only where a row is a duplicate.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.evidence import Sightings
from sigdir.warehouse.evidence.files import VALUES_SCHEMA, values_batch

Ids = npt.NDArray[np.int64]


class BatchSightings(NamedTuple):
    """The sightings of a batch: row ``i`` has ``values[of_row[i]]``."""

    values: pa.RecordBatch
    of_row: npt.NDArray[np.int32]


class SightingSpill:
    """The sightings of one collection's rows, by the number of the batch. ``append``, ``close``, then ``read``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._values_path, self._rows_path = folder / f"{name}.sightings.arrow", folder / f"{name}.sightings.rows"
        self._places: dict[int, tuple[int, int, int]] = {}
        """For each batch that has sightings: its values' number, the offset of its rows in bytes, and its rows."""
        self._values: Any = None  # None too once it is closed

    def append(self, batch: int, sightings: Sightings) -> None:
        """Add the sightings of a batch; the files are made with the first of them."""
        self.add(batch, BatchSightings(values_batch(sightings.values), sightings.of_row))

    def add(self, batch: int, sightings: BatchSightings) -> None:
        """Add the sightings of a batch as another spill has them."""
        if self._values is None:
            self._sink = pa.OSFile(str(self._values_path), "wb")
            self._values = pa.ipc.new_file(self._sink, VALUES_SCHEMA)
            self._rows = self._rows_path.open("wb")
        self._places[batch] = (len(self._places), self._rows.tell(), len(sightings.of_row))
        self._values.write_batch(sightings.values)
        self._rows.write(np.ascontiguousarray(sightings.of_row, np.int32).data)

    def close(self) -> None:
        """Write what is buffered and close the files, finished or not."""
        values, self._values = self._values, None
        if values is None:
            return
        try:
            values.close()
        finally:
            try:
                self._sink.close()
            finally:  # both fail on a full disk, writing their buffers
                self._rows.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_sink", "_rows")}

    def files(self) -> list[Path]:
        """The files that ``read`` reads; none if no batch has sightings."""
        return [self._values_path, self._rows_path] if self._places else []

    def read(self, batch: int) -> BatchSightings | None:
        """The sightings of a batch; None where each of its rows is LISTED."""
        if batch not in self._places:
            return None
        number, offset, rows = self._places[batch]
        with pa.OSFile(str(self._values_path)) as file:
            values = pa.ipc.open_file(file).get_batch(number)
        return BatchSightings(values, np.fromfile(self._rows_path, np.int32, rows, offset=offset))


class TextIds:
    """For each row of a spill the id of its text: 0 where the row is new, ``-1 - n`` where row ``n`` has the same text.

    The numbers are in a file, which is not made while all rows are new.
    """

    def __init__(self, path: Path, rows: int) -> None:
        self._path, self._rows = path, rows
        self._ids: Ids | None = None

    @property
    def are_all_new(self) -> bool:
        return self._ids is None

    def set(self, numbers: Ids, ids: Ids) -> None:
        """Give rows the ids of their texts."""
        if not len(numbers):
            return
        if self._ids is None:
            with self._path.open("wb") as file:  # on a full disk this is an error, writing to a hole is a SIGBUS
                os.posix_fallocate(file.fileno(), 0, self._rows * np.dtype(np.int64).itemsize)
            self._ids = np.memmap(self._path, np.int64, "r+", shape=(self._rows,))
        self._ids[numbers] = ids

    def of(self, rows: slice) -> Ids:
        """A copy of the ids of some rows."""
        if self._ids is None:
            return np.zeros(rows.stop - rows.start, np.int64)
        return np.array(self._ids[rows])

    def at(self, numbers: Ids) -> Ids:
        """The ids of single rows."""
        if self._ids is None:
            return np.zeros(len(numbers), np.int64)
        return np.array(self._ids[numbers])


class SightedInput(NamedTuple):
    """An input of an import: its source's label, its name where that is another one, and whether it was read whole."""

    label: str
    file: str | None
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class ImportSightings:
    """What an import's sources say about the rows of one spill: ``inputs[of_batch[n]]`` has the rows of batch ``n``.

    ``replaces`` says whether the earlier statement of the sources stops to count. The statement of a source that has an
    input which was not read whole never replaces an earlier one.
    """

    inputs: Sequence[SightedInput]
    of_batch: Sequence[int]
    text_ids: TextIds
    replaces: bool = False


@dataclass
class SightingCount:
    """How many sightings a source brings, and their digest, whatever their order."""

    sightings: int = 0
    digest: int = 0

    def add(self, other: SightingCount) -> None:
        self.sightings += other.sightings
        self.digest = (self.digest + other.digest) % (1 << 256)


def summed(counts: Sequence[Mapping[str, SightingCount]]) -> dict[str, SightingCount]:
    """The counts by source, over the parts of an import."""
    total: dict[str, SightingCount] = {}
    for part in counts:
        for label, count in part.items():
            total.setdefault(label, SightingCount()).add(count)
    return total
