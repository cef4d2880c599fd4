"""The spill of a batch: texts, hashes and keys in files of the run's folder.

A batch may be larger than memory, so canonical texts and their hashes are written to disk at once, one
spill per collection, in the order of the source. A row is identified by its number in that order. ``dedupe``
later decides which rows are new, one flag each.

The key is the first 16 bytes of the digest. Finding two texts that share it takes about 2^64 hashes; the
second of them would be taken for a duplicate of the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.arrow import numbers
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import KEY_BYTES, Keys, Rows, keys_of
from sigdir.warehouse.evidence.spill import BatchSightings, SightingSpill
from sigdir.warehouse.table.parquet import NewRows

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
            self.sightings.append(len(self._firsts), rows.sightings)
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
                if (sightings := other.sightings_of(number)) is not None:
                    self.sightings.add(len(self._firsts), sightings)
                self._firsts.append(self.rows)
                self.rows += end - first

    def finish(self) -> None:
        """Write what is buffered; after this the spill can be read."""
        self._texts.close()
        self.close()

    def close(self) -> None:
        """Close the files, finished or not."""
        try:
            self._sink.close()
        finally:  # all fail on a full disk, writing their buffers
            try:
                self._keys.close()
            finally:
                self.sightings.close()

    def files(self) -> list[Path]:
        """The files of the spill."""
        return [self.texts_path, self.keys_path, *self.sightings.files()]

    def batches(self) -> int:
        return len(self._firsts)

    def first_rows(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each batch, and the count of all rows at the end."""
        return np.array([*self._firsts, self.rows], np.int64)

    def keys(self) -> Iterator[tuple[int, Keys]]:
        """All keys in row order: the first row's number and a chunk, again and again."""
        with self.keys_path.open("rb") as file:
            first = 0
            while chunk := file.read(_KEYS_A_CHUNK * KEY_BYTES):
                words = np.frombuffer(chunk, np.uint64).reshape(-1, 2)
                yield first, Keys(words[:, 0], words[:, 1])
                first += len(words)

    def rows_with(self, digests: list[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of the rows whose text has one of these digests."""
        wanted = keys_of(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32))
        pairs = set(zip(wanted.high.tolist(), wanted.low.tolist(), strict=True))
        found = []
        for first, keys in self.keys():
            near = np.flatnonzero(np.isin(keys.high, wanted.high))
            found += [first + int(i) for i in near if (int(keys.high[i]), int(keys.low[i])) in pairs]
        return np.array(found, np.int64)

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

    def sightings_of(self, batch: int) -> BatchSightings | None:
        """The sightings of a batch; None where each of its rows is LISTED."""
        return self.sightings.read(batch)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_keys", "_sink", "_texts")}
