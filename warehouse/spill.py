"""The spill of a batch: texts, hashes and keys in files of the run's folder.

A batch may be larger than memory, so canonical texts and their hashes are written to disk at once, one
spill per collection, in the order of the source. A row is identified by its number in that order. ``dedupe``
later decides which rows are new, one flag each.

The key is the first 16 bytes of the digest. Finding two texts that share it takes about 2^64 hashes; the
second of them would be taken for a duplicate of the first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sigdir.signatures.arrow import numbers
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import KEY_BYTES, Keys, Rows, keys_of
from sigdir.warehouse.evidence.spill import BatchSightings, SightingSpill
from sigdir.warehouse.parquet import NewRows

_KEYS_A_CHUNK = 1 << 19


class SpilledRows(ABC):
    """Accepted rows of one collection in batches, in the order of the source."""

    collection: Collection
    rows: int

    @abstractmethod
    def first_rows(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each batch, and the count of all rows at the end."""

    @abstractmethod
    def keys(self) -> Iterator[tuple[int, Keys]]:
        """All keys in row order: the first row's number and a chunk, again and again."""

    @abstractmethod
    def words(self) -> npt.NDArray[np.uint64]:
        """All keys in row order, of shape (rows, 2)."""

    @abstractmethod
    def read(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[NewRows]:
        """The kept rows of the batches ``first`` up to and without ``last``; ``keep`` has a flag for each of their rows."""

    @abstractmethod
    def sightings_of(self, batch: int) -> BatchSightings | None:
        """The sightings of a batch; None where each of its rows is LISTED."""

    @abstractmethod
    def text_files(self) -> list[Path]:
        """The files that ``read`` reads."""

    @abstractmethod
    def key_files(self) -> list[Path]:
        """The files that ``keys`` reads."""

    @abstractmethod
    def part(self, first: int, last: int) -> SpilledRows:
        """The batches ``first`` up to and without ``last`` as rows of their own."""

    def batches(self) -> int:
        return len(self.first_rows()) - 1

    def rows_with(self, digests: list[bytes]) -> npt.NDArray[np.int64]:
        """The numbers of the rows whose text has one of these digests."""
        wanted = keys_of(np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32))
        pairs = set(zip(wanted.high.tolist(), wanted.low.tolist(), strict=True))
        found = []
        for first, keys in self.keys():
            near = np.flatnonzero(np.isin(keys.high, wanted.high))
            found += [first + int(i) for i in near if (int(keys.high[i]), int(keys.low[i])) in pairs]
        return np.array(found, np.int64)


class Spill(SpilledRows):
    """The accepted rows of one collection. Append, then ``finish``, then read as often as needed.

    A finished spill can be pickled: the copy reads the same files.
    """

    def __init__(self, folder: Path, collection: Collection) -> None:
        self.collection = collection
        self.rows = 0
        self._texts_path = folder / f"{collection}.arrow"
        self._keys_path = folder / f"{collection}.keys"
        schema = pa.schema([("text", pa.string()), ("hash", pa.binary(collection.hash_bytes))])
        self._keys = self._keys_path.open("wb")
        try:
            self._sink = pa.OSFile(str(self._texts_path), "wb")
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

    def first_rows(self) -> npt.NDArray[np.int64]:
        return np.array([*self._firsts, self.rows], np.int64)

    def keys(self) -> Iterator[tuple[int, Keys]]:
        with self._keys_path.open("rb") as file:
            first = 0
            while chunk := file.read(_KEYS_A_CHUNK * KEY_BYTES):
                words = np.frombuffer(chunk, np.uint64).reshape(-1, 2)
                yield first, Keys(words[:, 0], words[:, 1])
                first += len(words)

    def words(self) -> npt.NDArray[np.uint64]:
        if not self.rows:
            return np.empty((0, 2), np.uint64)
        return np.asarray(np.memmap(self._keys_path, np.uint64, "r", shape=(self.rows, 2)))

    def read(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[NewRows]:
        start = self._firsts[first] if first < last else 0
        with pa.OSFile(str(self._texts_path)) as file:
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
        return self.sightings.read(batch)

    def text_files(self) -> list[Path]:
        return [self._texts_path]

    def key_files(self) -> list[Path]:
        return [self._keys_path]

    def part(self, first: int, last: int) -> SpilledRows:
        return JoinedSpills(self.collection, [_Piece(self, first, last)])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_keys", "_sink", "_texts")}


class _Piece(NamedTuple):
    """The batches ``first`` up to and without ``last`` of a spill."""

    spill: Spill
    first: int
    last: int

    def bounds(self) -> npt.NDArray[np.int64]:
        """The number in the spill of the first row of each batch, and the end of the last one."""
        return self.spill.first_rows()[self.first : self.last + 1]


class JoinedSpills(SpilledRows):
    """Finished spills of one collection, or batches of them, one after the other as one."""

    def __init__(self, collection: Collection, pieces: Sequence[_Piece]) -> None:
        self.collection = collection
        self._pieces = pieces
        self._first_batches = np.cumsum([0, *(piece.last - piece.first for piece in pieces)]).tolist()
        sizes = [np.diff(piece.bounds()) for piece in pieces]
        self._bounds = np.cumsum(np.concatenate([np.zeros(1, np.int64), *sizes]))
        self.rows = int(self._bounds[-1])

    @classmethod
    def of(cls, collection: Collection, spills: Sequence[Spill]) -> JoinedSpills:
        return cls(collection, [_Piece(spill, 0, spill.batches()) for spill in spills if spill.rows])

    def first_rows(self) -> npt.NDArray[np.int64]:
        return self._bounds

    def keys(self) -> Iterator[tuple[int, Keys]]:
        for first, piece in zip(self._first_batches, self._pieces, strict=False):
            bounds = piece.bounds()
            start, stop = int(bounds[0]), int(bounds[-1])
            for number, keys in piece.spill.keys():
                inside = slice(max(start - number, 0), max(stop - number, 0))
                high, low = keys.high[inside], keys.low[inside]
                if len(high):
                    yield int(self._bounds[first]) + max(number, start) - start, Keys(high, low)

    def words(self) -> npt.NDArray[np.uint64]:
        pieces = [piece.spill.words()[slice(*piece.bounds()[[0, -1]])] for piece in self._pieces]
        return np.concatenate([np.empty((0, 2), np.uint64), *pieces])

    def read(self, first: int, last: int, keep: npt.NDArray[np.bool_]) -> Iterator[NewRows]:
        start = int(self._bounds[first])
        for begin, piece in self._overlapping(first, last):
            one, other = max(first, begin), min(last, begin + piece.last - piece.first)
            flags = keep[int(self._bounds[one]) - start : int(self._bounds[other]) - start]
            yield from piece.spill.read(piece.first + one - begin, piece.first + other - begin, flags)

    def sightings_of(self, batch: int) -> BatchSightings | None:
        at = bisect_right(self._first_batches, batch) - 1
        piece = self._pieces[at]
        return piece.spill.sightings_of(piece.first + batch - self._first_batches[at])

    def text_files(self) -> list[Path]:
        return [file for piece in self._pieces for file in piece.spill.text_files()]

    def key_files(self) -> list[Path]:
        return [file for piece in self._pieces for file in piece.spill.key_files()]

    def part(self, first: int, last: int) -> SpilledRows:
        pieces = [
            _Piece(piece.spill, piece.first + max(first - begin, 0), min(piece.last, piece.first + last - begin))
            for begin, piece in self._overlapping(first, last)
        ]
        return JoinedSpills(self.collection, pieces)

    def _overlapping(self, first: int, last: int) -> Iterator[tuple[int, _Piece]]:
        """The pieces that have batches from ``first`` up to and without ``last``, each with its first batch's number."""
        for at in range(bisect_right(self._first_batches, first) - 1, len(self._pieces)):
            if self._first_batches[at] >= last:
                return
            yield self._first_batches[at], self._pieces[at]
