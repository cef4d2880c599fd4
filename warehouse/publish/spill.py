"""The spill of a batch: texts, hashes, keys, sightings and ids of texts in files of the run's folder.

A batch may be larger than memory, so canonical texts and their hashes are written to disk at once, one
spill per collection, in the order of the source. A row is identified by its number in that order. ``dedupe``
later decides which rows are new, one flag each.

A plain list's rows have no sightings here, so a list costs nothing a row. The ids of texts take eight bytes a row.

The key is the first 16 bytes of the digest. Finding two texts that share it takes about 2^64 hashes; the
second of them would be taken for a duplicate of the first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.arrow import numbers
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import Rows, keys_of
from sigdir.warehouse.evidence.files import BASES_SCHEMA, SAID_SCHEMA, BatchSightings
from sigdir.warehouse.table.parquet import NewRows

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
    with path.open("wb") as file:  # on a full disk this is an error, writing to a hole is a SIGBUS
        os.posix_fallocate(file.fileno(), 0, max(1, rows) * np.dtype(np.int64).itemsize)
    return np.asarray(np.memmap(path, np.int64, "r+"))[:rows]


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
    text_ids: Ids
    replaces: bool = False


_KEYS_A_CHUNK = 1 << 19


class Spill:
    """The accepted rows of one collection. Append, then ``finish``, then read as often as needed.

    A finished spill can be pickled: the copy reads the same files.
    """

    def __init__(self, folder: Path, collection: Collection) -> None:
        self.collection = collection
        self.rows = 0
        self.texts_path = folder / f"{collection}.arrow"
        self.keys_path = folder / f"{collection}.keys"
        schema = pa.schema([("text", pa.string()), ("hash", pa.binary(collection.hash_bytes))])
        self._keys = self.keys_path.open("wb")
        try:
            self._sink = pa.OSFile(str(self.texts_path), "wb")
            self._texts = pa.ipc.new_file(self._sink, schema)
        except BaseException:
            self._keys.close()
            raise
        self._firsts: list[int] = []
        self.sightings = SightingSpill(folder, collection)
        """What the rows' sources say about them, where it is more than the text."""

    def append(self, rows: Rows) -> None:
        """Add rows, in order."""
        count = len(rows.text)
        if not count:
            return
        width = self.collection.hash_bytes
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), count, [None, pa.py_buffer(rows.hash)])
        self._texts.write_batch(pa.record_batch([rows.text, column], names=["text", "hash"]))
        self._keys.write(rows.keys.data)
        if rows.sightings is not None:
            self.sightings.append(len(self._firsts), BatchSightings.of(rows.sightings))
        self._firsts.append(self.rows)
        self.rows += count

    def extend(self, other: Spill) -> None:
        """Add the batches of a finished spill, in order."""
        if not other.rows:
            return
        words, bounds = other.words(), other.first_rows().tolist()
        with pa.OSFile(str(other.texts_path)) as file:
            texts = pa.ipc.open_file(file)
            for number, (first, end) in enumerate(pairwise(bounds)):
                self._texts.write_batch(texts.get_batch(number))
                self._keys.write(words[first:end].data)
                if (sightings := other.sightings.read(number)) is not None:
                    self.sightings.append(len(self._firsts), sightings)
                self._firsts.append(self.rows)
                self.rows += end - first

    def finish(self) -> None:
        """Write what is buffered; after this the spill can be read."""
        self._texts.close()
        self.close()

    def close(self) -> None:
        """Close the files, finished or not."""
        with ExitStack() as files:  # all fail on a full disk, writing their buffers
            for file in (self._sink, self._keys, self.sightings):
                files.callback(file.close)

    def files(self) -> list[Path]:
        """The files of the spill."""
        return [self.texts_path, self.keys_path, *self.sightings.files()]

    def batches(self) -> int:
        return len(self._firsts)

    def first_rows(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each batch, and the count of all rows at the end."""
        return np.array([*self._firsts, self.rows], np.int64)

    def rows_with(self, digests: list[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of the rows whose text has one of these digests."""
        wanted = keys_of(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32))
        pairs = set(zip(wanted.high.tolist(), wanted.low.tolist(), strict=True))
        words, found = self.words(), [np.empty(0, np.int64)]
        for first in range(0, self.rows, _KEYS_A_CHUNK):
            near = np.flatnonzero(np.isin(words[first : first + _KEYS_A_CHUNK, 0], wanted.high)) + first
            found.append(near[[(high, low) in pairs for high, low in words[near].tolist()]] if len(near) else near)
        return np.concatenate(found)

    def words(self) -> npt.NDArray[np.uint64]:
        """All keys in row order, of shape (rows, 2)."""
        if not self.rows:
            return np.empty((0, 2), np.uint64)
        return np.asarray(np.memmap(self.keys_path, np.uint64, "r", shape=(self.rows, 2)))

    def read(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[NewRows]:
        """The kept rows of the batches ``first`` up to and without ``last``; ``keep`` has a flag for each of their rows."""
        start = self._firsts[first] if first < last else 0
        with pa.OSFile(str(self.texts_path)) as file:
            reader = pa.ipc.open_file(file)
            for number in range(first, last):
                batch = reader.get_batch(number)
                at = self._firsts[number] - start
                mask = keep[at : at + batch.num_rows]
                if not mask.all():
                    batch = batch.filter(numbers(mask))
                if batch.num_rows:
                    yield NewRows(batch["text"], pc.cast(batch["hash"], pa.binary()))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_keys", "_sink", "_texts")}
