"""The rows of an export, read from a version's Parquet files in id order, some batches ahead.

Memory does not grow with the number of rows, except in formats that choose among the texts of a selector, ten bytes
a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.export_order import Order
from sigdir.pipeline.export_report import ExportReport
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.scan import batches, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import Template
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.parallel import in_background

BATCHES_AHEAD = 2

Flags = npt.NDArray[np.bool_]


class ExportRows:
    """The rows of one export. Counts in ``report`` what was written."""

    def __init__(
        self, snapshot: Snapshot, collections: Sequence[Collection], report: ExportReport, progress: Reporter,
        order: Order,
    ) -> None:  # fmt: skip
        self.snapshot = snapshot
        self.collections = collections
        self.report = report
        self._order = order
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

    def first_texts(self, collection: Collection) -> Flags | None:
        """A flag per row: whether it has the first text of its selector.

        None for topics: every row has. Two texts of one topic would be a collision of keccak-256.
        """
        if collection == EVENT_SIGNATURES:
            return None
        return ~self._rows_of(collection, [id for texts in self._order.values() for id, _ in texts[1:]])

    def _rows_of(self, collection: Collection, ids: list[int]) -> Flags:
        """A flag per row: whether it has one of these ids."""
        flags = np.zeros(self.snapshot.count(collection), np.bool_)
        if ids:
            known = np.concatenate([batch["id"].to_numpy() for batch in self.batches(collection, ["id"])])
            flags[known.searchsorted(ids)] = True
        return flags

    def texts_by_hash(self, collection: Collection) -> Iterator[tuple[str, bytes]]:
        """Each hash as hex digits, with its texts joined by semicolons.

        Texts that share a selector, some thousands in a million, come last.
        """
        order = self._order if collection == SIGNATURES else {}
        shared = self._rows_of(collection, [id for texts in order.values() for id, _ in texts])
        at = 0
        for segment, rows in self._selected(collection):
            names = segment.hash[: segment.rows].tobytes().hex()
            digits = 2 * collection.hash_bytes
            text, bounds = segment.text.tobytes(), segment.offsets.tolist()
            for row in np.flatnonzero(~shared[at : at + segment.rows]).tolist():
                yield names[row * digits : (row + 1) * digits], text[bounds[row] : bounds[row + 1]]
            at += segment.rows
            self.count(collection, len(rows), segment.rows)
        for hash, texts in order.items():
            yield hash.hex(), ";".join(text for _, text in texts).encode()
