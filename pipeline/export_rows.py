"""The rows of an export, read from a version's Parquet files in id order, some batches ahead.

Memory does not grow with the number of rows, except in formats that group the rows by selector, twelve bytes per row,
and with ``--ranked``, up to sixteen more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.export_ranked import Order
from sigdir.pipeline.export_report import ExportReport
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.standards import canonical, is_filtered
from sigdir.warehouse.index.hash_order import sorted_hashes
from sigdir.warehouse.index.scan import batches, hashes_of, pieces
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import Template
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.parallel import in_background

BATCHES_AHEAD = 2
_ROW_MASK = np.uint64(0xFFFF_FFFF)

Flags = npt.NDArray[np.bool_]


class ExportRows:
    """The rows of one export. Counts in ``report`` what was written."""

    def __init__(
        self, snapshot: Snapshot, collections: Sequence[Collection], report: ExportReport, progress: Reporter,
        order: Order | None = None,
    ) -> None:  # fmt: skip
        self.snapshot = snapshot
        self.collections = collections
        self.report = report
        self._order = order
        """The order by rank of the texts that share a selector; None for the standard's text, then the oldest."""
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

    def first_texts(self, collection: Collection) -> Flags | None:
        """A flag per row: whether it has the first text of its selector, the standard's or else the oldest.

        None for topics: every row has. Two texts of one topic would be a collision of keccak-256.
        """
        if collection == EVENT_SIGNATURES:
            return None
        by_hash = self._by_hash(collection)
        flags = _rows_flagged(by_hash, _begins_group)
        if self._order is not None:
            self._flag_best(collection, flags, self._order)
            return flags
        for first, row in self._standard_rows(collection, _shared_standards(by_hash)):
            flags[first], flags[row] = False, True
        return flags

    def _flag_best(self, collection: Collection, flags: Flags, order: Order) -> None:
        """Move the flag of each selector from its oldest text to its best."""
        ids = np.concatenate(
            [np.empty(0, np.int64), *(batch["id"].to_numpy() for batch in self.batches(collection, ["id"]))]
        )
        for texts in order.values():
            flags[ids.searchsorted(min(id for id, _ in texts))] = False
            flags[ids.searchsorted(texts[0][0])] = True

    def _standard_rows(self, collection: Collection, shared: dict[int, tuple[int, str]]) -> Iterator[tuple[int, int]]:
        """The rows with the texts of standards, each after the first row of its selector.

        ``shared`` has the first row and the standard's text of every row that may be one. Only files with such rows
        are read.
        """
        numbers = np.array(sorted(shared), np.int64)
        start = 0
        for file in self.snapshot.files[collection]:
            first, last = np.searchsorted(numbers, (start, start + file.rows)).tolist()
            start += file.rows
            at = start - file.rows
            for batch in batches(file.path, ["text_signature"]) if first < last else ():
                inside = numbers[(numbers >= at) & (numbers < at + batch.num_rows)].tolist()
                for row in inside:
                    first_row, text = shared[row]
                    if batch["text_signature"][row - at].as_py() == text:
                        yield first_row, row
                at += batch.num_rows

    def texts_by_hash(self, collection: Collection) -> Iterator[tuple[str, bytes]]:
        """Each hash as hex digits, with its texts joined by semicolons, the standard's first, then the oldest.

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
            yield name, b";".join(self._in_order(bytes.fromhex(name), texts))

    def _in_order(self, hash: bytes, texts: list[bytes]) -> list[bytes]:
        if self._order is None:
            return sorted(texts, key=partial(_is_filtered, hash))
        return [text.encode() for _, text in self._order[hash]]


def _is_filtered(hash: bytes, text: bytes) -> bool:
    return is_filtered(hash, text.decode())


def _shared_standards(by_hash: npt.NDArray[Any]) -> dict[int, tuple[int, str]]:
    """The rows of selectors with several texts and a standard: the selector's first row, and the standard's text."""
    found: dict[int, tuple[int, str]] = {}
    selectors = {hash: text for hash, text in canonical().items() if len(hash) == SIGNATURES.hash_bytes}
    for selector, text in selectors.items():
        number = np.uint64(int.from_bytes(selector) << 32)
        first = np.searchsorted(by_hash, number)
        last = np.searchsorted(by_hash, number | _ROW_MASK, side="right")
        rows = (by_hash[first:last] & _ROW_MASK).tolist()
        if len(rows) > 1:
            found |= dict.fromkeys(rows, (rows[0], text))
    return found


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
