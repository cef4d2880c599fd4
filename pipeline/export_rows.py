"""The rows of an export, read from a version's Parquet files in id order, some batches ahead.

Memory does not grow with the number of rows, except in formats that choose among the texts of a selector, ten bytes
a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.plural import counted
from sigdir.signatures.standards import is_filtered
from sigdir.warehouse import Warehouse
from sigdir.warehouse.index.build import batches, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import Template
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.parallel import in_background

BATCHES_AHEAD = 2

Flags = npt.NDArray[np.bool_]


@dataclass
class ExportReport:
    """What an export did."""

    format: str
    target: str
    version: int = -1
    rows: Counter[Collection] = field(default_factory=Counter)
    left_out: Counter[Collection] = field(default_factory=Counter)
    """Rows that a format with one text per selector omits, because another text of their selector is exported."""
    files: int = 1
    bytes: int | None = None
    seconds: float = 0.0
    mixes: bool = False
    """Whether both collections are in one file without a column that names them."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "target": self.target,
            "version": self.version,
            "rows": {collection: self.rows[collection] for collection in COLLECTIONS},
            "left_out": {collection: self.left_out[collection] for collection in COLLECTIONS},
            "files": self.files,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rate()),
        }

    def rate(self) -> float:
        return self.rows.total() / self.seconds if self.seconds else 0.0

    def lines(self) -> Iterator[str]:
        """The report for people."""
        for collection in COLLECTIONS:
            if self.rows[collection] or self.left_out[collection]:
                left_out = self.left_out[collection]
                more = f", {left_out:,} left out: another text of the selector is exported" if left_out else ""
                yield f"{collection}: {counted(self.rows[collection], 'row')}{more}"
        size = f", {self.bytes / 1e6:,.1f} MB" if self.bytes is not None else ""
        files = f", {self.files:,} files" if self.files != 1 else ""
        yield (
            f"{counted(self.rows.total(), 'row')} of version {max(self.version, 0)} in {self.seconds:.1f} s"
            f" ({self.rate():,.0f} a second){files}{size}: {self.target}"
        )
        if self.mixes and all(self.rows[collection] for collection in COLLECTIONS):
            yield "both collections, and an id is unique in its collection only; --collection NAME exports one"


Order = dict[bytes, list[tuple[int, str]]]
"""Id and text of each text of a selector, the best first."""

_BY_RANK = "SELECT hash, id, text_signature FROM parts.rivals ORDER BY hash, position"
_BY_AGE = """
    SELECT hash, id, text_signature FROM signatures
    WHERE hash IN (SELECT hash FROM signatures GROUP BY hash HAVING count(*) > 1) ORDER BY hash, id
"""


def order_of_texts(warehouse: Warehouse, by_rank: bool) -> Order:
    """The selectors with several texts, of 10 M texts some twenty thousand: by rank, or the standard's text first, then the
    oldest. Raises UnreadableWarehouse.
    """
    order: Order = {}
    for hash, id, text in warehouse.sql(_BY_RANK if by_rank else _BY_AGE).rows():
        order.setdefault(hash, []).append((id, text))
    if not by_rank:
        for hash, texts in order.items():
            texts.sort(key=lambda one, hash=hash: is_filtered(hash, one[1]))  # type: ignore[misc]
    return order


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
