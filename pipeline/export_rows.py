"""The rows of an export, read from a version's Parquet files in id order, some batches ahead.

Memory does not grow with the number of rows, except for twelve bytes per row in formats with one text per
selector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.export_report import ExportReport
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.scan import batches, hashes_of, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import Template
from sigdir.warehouse.parallel import in_background
from sigdir.warehouse.snapshot import Snapshot

BATCHES_AHEAD = 2
_ROW_MASK = np.uint64(0xFFFF_FFFF)

Flags = npt.NDArray[np.bool_]


class ExportRows:
    """The rows of one export. Counts in ``report`` what was written."""

    def __init__(
        self, snapshot: Snapshot, collections: Sequence[Collection], report: ExportReport, progress: Reporter
    ) -> None:
        self.snapshot = snapshot
        self.collections = collections
        self.report = report
        self._progress = progress
        progress.stage("export", sum(map(snapshot.count, collections)))

    def batches(self, collection: Collection, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the rows, in id order."""
        for file in self.snapshot.files[collection]:
            yield from batches(file.path, columns)

    def _segments(self, collection: Collection) -> Iterator[Segment]:
        """The rows in id order, unpacked by a background thread."""
        files = self.snapshot.files[collection]
        return in_background(chain.from_iterable(pieces(collection, file.path) for file in files), BATCHES_AHEAD)

    def count(self, collection: Collection, rows: int, read: int) -> None:
        """Count ``rows`` rows as written, of ``read`` rows read."""
        self.report.rows[collection] += rows
        self.report.left_out[collection] += read - rows
        self._progress.advance(read)
        self._progress.rows(rows)

    def _selected(
        self, collection: Collection, keep: Flags | None = None
    ) -> Iterator[tuple[Segment, npt.NDArray[Any]]]:
        """The segments, each with the numbers of its rows that ``keep`` selects."""
        at = 0
        for segment in self._segments(collection):
            rows = np.arange(segment.rows) if keep is None else np.flatnonzero(keep[at : at + segment.rows])
            at += segment.rows
            yield segment, rows

    def rendered(
        self, collection: Collection, pattern: str, keep: Flags | None = None, again: bool = False
    ) -> Iterator[bytes]:
        """The rows rendered by a template. ``again`` if they have been counted already."""
        template = Template(pattern)
        for segment, rows in self._selected(collection, keep):
            yield template.render(segment, rows)
            if not again:
                self.count(collection, len(rows), segment.rows)

    def _by_hash(self, collection: Collection) -> npt.NDArray[Any]:
        """The collection's rows in hash order, in the form of ``sorted_hashes``."""
        hashes = np.empty((self.snapshot.count(collection), 4), np.uint8)
        at = 0
        for batch in self.batches(collection, ["hash"]):
            hashes[at : at + batch.num_rows] = hashes_of(batch["hash"], collection.hash_bytes)[:, :4]
            at += batch.num_rows
        return sorted_hashes(hashes)

    def oldest(self, collection: Collection) -> Flags | None:
        """A flag per row: whether it has the oldest text of its selector. None for topics: every row has.

        Two texts of one topic would be a collision of keccak-256.
        """
        return None if collection == EVENT_SIGNATURES else _rows_flagged(self._by_hash(collection), _begins_group)

    def texts_by_hash(self, collection: Collection) -> Iterator[tuple[str, bytes]]:
        """Each hash as hex digits, with its texts joined by semicolons, the oldest first.

        Texts that share a selector, some thousands in a million, are collected and come last.
        """
        shared = None
        if collection == SIGNATURES:
            shared = _rows_flagged(self._by_hash(collection), _in_larger_group)
        collected: dict[str, list[bytes]] = {}
        at = 0
        for segment, rows in self._selected(collection):
            names = segment.hash[: segment.rows].tobytes().hex()
            digits = 2 * collection.hash_bytes
            text, bounds = segment.text.tobytes(), segment.offsets.tolist()
            is_shared_row = shared[at : at + segment.rows].tolist() if shared is not None else [False] * segment.rows
            for row, is_shared in enumerate(is_shared_row):
                name = names[row * digits : (row + 1) * digits]
                one_text = text[bounds[row] : bounds[row + 1]]
                if is_shared:
                    collected.setdefault(name, []).append(one_text)
                else:
                    yield name, one_text
            at += segment.rows
            self.count(collection, len(rows), segment.rows)
        for name, texts in collected.items():
            yield name, b";".join(texts)


def _rows_flagged(by_hash: npt.NDArray[Any], wanted: Callable[[npt.NDArray[Any]], Flags]) -> Flags:
    """A flag per row in id order, from the function ``wanted`` of the prefixes in hash order."""
    flags = np.zeros(len(by_hash), np.bool_)
    flags[(by_hash[wanted(by_hash >> np.uint64(32))] & _ROW_MASK).astype(np.int64)] = True
    return flags


def _begins_group(prefixes: npt.NDArray[Any]) -> Flags:
    flags = np.ones(len(prefixes), np.bool_)
    flags[1:] = prefixes[1:] != prefixes[:-1]
    return flags


def _in_larger_group(prefixes: npt.NDArray[Any]) -> Flags:
    same = prefixes[1:] == prefixes[:-1]
    flags = np.zeros(len(prefixes), np.bool_)
    flags[1:] = same
    flags[:-1] |= same
    return flags
