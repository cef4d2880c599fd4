"""The spill of a batch: texts, sightings and ids of texts in files of the run's folder.

A batch may be larger than memory, so canonical texts are written to disk at once, one spill per collection, in the
order of the source. A row is identified by its number in that order. ``dedupe`` decides later which rows are new, one
flag each.

A plain list's rows have no sightings here, so a list costs nothing a row. The ids of texts take eight bytes a row.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.arrow import Array, numbers, strings, values
from sigdir.signatures.candidates import Rows
from sigdir.signatures.collections import Collection
from sigdir.warehouse.evidence.mapped import BASES_SCHEMA, SAID_SCHEMA, BatchSightings

Ids = npt.NDArray[np.int64]


class SightingSpill:
    """The sightings of one collection's rows, by the number of the batch. ``append``, ``close``, then ``read``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = [folder / f"{name}.{part}.arrow" for part in ("bases", "sightings")]
        self._places: dict[int, int] = {}
        """The number, in both files, of each batch that has sightings."""
        self._sinks: list[Any] = []
        self._writers: list[Any] = []  # empty too once they are closed

    def append(self, batch: int, sightings: BatchSightings) -> None:
        """Add the sightings of a batch; the files are made with the first of them."""
        if not self._writers:
            self._sinks = [pa.OSFile(str(path), "wb") for path in self._paths]
            schemas = (BASES_SCHEMA, SAID_SCHEMA)
            self._writers = [pa.ipc.new_file(sink, schema) for sink, schema in zip(self._sinks, schemas, strict=True)]
        self._places[batch] = len(self._places)
        for writer, part in zip(self._writers, sightings, strict=True):
            writer.write_batch(part)

    def close(self) -> None:
        """Write what is buffered and close the files, finished or not."""
        files, self._sinks, self._writers = [*self._sinks, *self._writers], [], []
        with ExitStack() as stack:  # all fail on a full disk, writing their buffers
            for file in files:
                stack.callback(file.close)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_sinks": [], "_writers": []}

    def files(self) -> list[Path]:
        """The files that ``read`` reads; none if no batch has sightings."""
        return self._paths if self._places else []

    def read(self, batch: int) -> BatchSightings | None:
        """The sightings of a batch; None where each of its rows is LISTED."""
        if batch not in self._places:
            return None
        parts = []
        for path in self._paths:
            with pa.memory_map(str(path)) as file:
                parts.append(pa.ipc.open_file(file).get_batch(self._places[batch]))
        return BatchSightings(*parts)


def text_ids_in(path: Path, rows: int) -> Ids:
    """For each row of a spill the id of its text, to be set: 0 for a new row, ``-1 - n`` where row ``n`` has the same text.

    The numbers are in a new file.
    """
    return numbers_in(path, np.dtype(np.int64), rows)


def numbers_in(path: Path, dtype: np.dtype[Any], *shape: int) -> Array:
    """Numbers that memory need not hold, 0 at first, in a new file."""
    size = math.prod(shape)
    with path.open("wb") as file:  # on a full disk this is an error, writing to a hole is a SIGBUS
        os.posix_fallocate(file.fileno(), 0, max(1, size) * dtype.itemsize)
    return np.asarray(np.memmap(path, dtype, "r+"))[:size].reshape(shape)


class SightedInput(NamedTuple):
    """An input of an import: its source's label, and its name where that is another one."""

    label: str
    file: str | None


@dataclass(frozen=True, slots=True)
class ImportSightings:
    """What an import's sources say about the rows of one spill: ``inputs[of_batch[n]]`` has the rows of batch ``n``.

    ``replaced`` are the labels of the sources whose earlier statement stops to count, also of those without rows.
    """

    inputs: Sequence[SightedInput]
    of_batch: Sequence[int]
    text_ids: Ids
    replaced: AbstractSet[str] = frozenset()


_TEXTS = pa.schema([("text", pa.string())])


class Spill:
    """The accepted rows of one collection. Append, then ``finish``, then read as often as needed.

    A finished spill can be pickled: the copy reads the same files.
    """

    def __init__(self, folder: Path, collection: Collection) -> None:
        self.collection = collection
        self.rows = 0
        self.texts_path = folder / f"{collection}.arrow"
        self._sink = pa.OSFile(str(self.texts_path), "wb")
        self._texts = pa.ipc.new_file(self._sink, _TEXTS)
        self._firsts: list[int] = []
        self.sightings = SightingSpill(folder, collection)
        """What the rows' sources say about them, where it is more than the text."""

    def append(self, rows: Rows) -> None:
        """Add rows, in order."""
        if len(rows.text):
            self._append(rows.text, None if rows.sightings is None else BatchSightings.of(rows.sightings))

    def _append(self, text: pa.StringArray, sightings: BatchSightings | None) -> None:
        self._texts.write_batch(pa.record_batch([text], schema=_TEXTS))
        if sightings is not None:
            self.sightings.append(len(self._firsts), sightings)
        self._firsts.append(self.rows)
        self.rows += len(text)

    def extend(self, other: Spill) -> None:
        """Add the batches of a finished spill, in order."""
        for number, text in enumerate(other.texts()):
            self._append(text, other.sightings.read(number))

    def finish(self) -> None:
        """Write what is buffered; after this the spill can be read."""
        self._texts.close()
        self.close()

    def close(self) -> None:
        """Close the files, finished or not."""
        with ExitStack() as files:  # all fail on a full disk, writing their buffers
            for file in (self._sink, self.sightings):
                files.callback(file.close)

    def files(self) -> list[Path]:
        """The files of the spill."""
        return [self.texts_path, *self.sightings.files()]

    def batches(self) -> int:
        return len(self._firsts)

    def first_rows(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each batch, and the count of all rows at the end."""
        return np.array([*self._firsts, self.rows], np.int64)

    def texts(self, first: int = 0, last: int | None = None) -> Iterator[pa.StringArray]:
        """The texts of the batches ``first`` up to and without ``last``, of all by default."""
        with pa.OSFile(str(self.texts_path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(first, self.batches() if last is None else last):
                yield reader.get_batch(number)["text"]

    def kept_texts(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[pa.StringArray]:
        """The kept ones of these texts; ``keep`` has a flag for each row of the batches."""
        at = 0
        for text in self.texts(first, last):
            mask = keep[at : at + len(text)]
            at += len(text)
            if mask.any():
                yield text if mask.all() else text.filter(numbers(mask))

    def rows_with(self, texts: Sequence[str]) -> tuple[Ids, Ids]:
        """The numbers of the rows that have one of these texts, and which of them each has."""
        wanted, first = strings(texts), 0
        rows, which = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for text in self.texts():
            found = pc.index_in(text, wanted)
            here = np.flatnonzero(values(found.is_valid()))
            rows.append(here + first)
            which.append(values(found)[here])
            first += len(text)
        return np.concatenate(rows), np.concatenate(which)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_sink", "_texts")}
