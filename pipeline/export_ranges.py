"""Ranges as files: what ``/range/signatures/a90`` answers is the file ``signatures/a90``, so that any web server can answer it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import Collection
from sigdir.signatures.pack_range import COUNT, DIGITS, range_bytes
from sigdir.signatures.pack_texts import PackRow
from sigdir.warehouse import Warehouse

RANGES = "ranges"
"""The name of the format."""

_RANKED = "SELECT hex_signature, text_signature, position FROM ranked WHERE collection = ? ORDER BY hash"


def write_ranges(
    warehouse: Warehouse, collections: Sequence[Collection], folder: Path, progress: Reporter, *, padded: bool
) -> dict[Collection, int]:
    """Write all ranges, empty ones too; gives the number of their texts by collection."""
    counts = {}
    for collection in collections:
        progress.stage(f"ranges {collection}", warehouse.count(collection))
        (folder / collection).mkdir()
        counts[collection] = 0
        for name, rows in _with_empty(_ranges(warehouse, collection)):
            content = range_bytes(collection, max(warehouse.version, 0), rows, padded=padded)
            (folder / collection / name).write_bytes(content)
            counts[collection] += len(rows)
    return counts


def _with_empty(ranges: Iterator[tuple[str, list[PackRow]]]) -> Iterator[tuple[str, list[PackRow]]]:
    """All ranges, of rising ones that have texts."""
    found = next(ranges, None)
    for number in range(COUNT):
        name = f"{number:0{DIGITS}x}"
        if found is not None and found[0] == name:
            yield found
            found = next(ranges, None)
        else:
            yield name, []


def _ranges(warehouse: Warehouse, collection: Collection) -> Iterator[tuple[str, list[PackRow]]]:
    """The ranges that have texts, each with its digits, in their order."""
    batches = warehouse.sql(_RANKED, [collection.value]).reader()
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    for prefix, some in groupby(rows, lambda row: row[0][2 : 2 + DIGITS]):
        yield prefix, [PackRow(text, position) for _, text, position in some]
