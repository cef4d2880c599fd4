"""The accepted rows of one collection, of which each task has spilled some batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import Keys
from sigdir.warehouse.evidence.spill import BatchSightings
from sigdir.warehouse.publish.spill import Spill, SpilledRows
from sigdir.warehouse.table.parquet import NewRows


class SpilledBatch(NamedTuple):
    """A batch of a spill: its number, and its rows there."""

    spill: Spill
    number: int
    rows: range

    @classmethod
    def all_of(cls, spill: Spill, first: int = 0) -> list[SpilledBatch]:
        """The batches from ``first`` on."""
        bounds = spill.first_rows()[first:].tolist()
        return [cls(spill, number, range(*rows)) for number, rows in enumerate(pairwise(bounds), first)]


class JoinedRows(SpilledRows):
    """Batches of finished spills as one."""

    def __init__(self, collection: Collection, batches: Sequence[SpilledBatch]) -> None:
        self.collection = collection
        self._batches = batches
        self._bounds = np.cumsum([0, *(len(batch.rows) for batch in batches)])
        self.rows = int(self._bounds[-1])

    def first_rows(self) -> npt.NDArray[np.int64]:
        return self._bounds

    def keys(self) -> Iterator[tuple[int, Keys]]:
        for first, (spill, _, rows) in zip(self._bounds.tolist(), self._batches, strict=False):
            words = spill.words()[rows.start : rows.stop]
            yield first, Keys(words[:, 0], words[:, 1])

    def read(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[NewRows]:
        for spill, number, rows in self._batches[first:last]:
            yield from spill.read(number, number + 1, keep[: len(rows)])
            keep = keep[len(rows) :]

    def sightings_of(self, batch: int) -> BatchSightings | None:
        spill, number, _ = self._batches[batch]
        return spill.sightings_of(number)

    def part(self, first: int, last: int) -> JoinedRows:
        """The batches ``first`` up to and without ``last`` as rows of their own."""
        return JoinedRows(self.collection, self._batches[first:last])

    def text_files(self) -> list[Path]:
        """The files that ``read`` reads."""
        return list(dict.fromkeys(batch.spill.texts_path for batch in self._batches))

    def key_files(self) -> list[Path]:
        """The files that ``keys`` reads."""
        return list(dict.fromkeys(batch.spill.keys_path for batch in self._batches))
