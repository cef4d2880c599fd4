"""A hash's rows in the order of their rank, from the mapped columns."""

from __future__ import annotations

from typing import NamedTuple

from sigdir.signatures import rank
from sigdir.signatures.collections import Collection
from sigdir.signatures.rank import Summary, as_standard
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View

LISTED_KEY = rank.key_of(Summary(0, ""))
"""The key of a text that one list names, which is all that is known of a staged one."""


class RankedRow(NamedTuple):
    """A row of a hash. ``sigdir.signatures.rank`` reads its ``key``: ``witness_of``, ``is_verified``, ``is_mined``, ..."""

    segment: Segment
    row: int
    key: int


def ranked_rows(view: View, collection: Collection, digest: bytes, names: Names) -> list[RankedRow]:
    """The rows with exactly this hash, the best first. ``names`` are the server's."""
    found = view.with_hash(collection, digest)
    if len(found) == 1 and len(found[0][1]) == 1:  # all but one in ten thousand; a loop would take twice as long
        segment, row = found[0][0], int(found[0][1][0])
        return [RankedRow(segment, row, row_key(segment, row, digest))]
    rows = [RankedRow(segment, row, row_key(segment, row, digest)) for segment, rows in found for row in rows.tolist()]
    return rows and _ordered(view, collection, digest, rows, names)


def row_key(segment: Segment, row: int, digest: bytes) -> int:
    """The key of a row with this hash, without regard to the other texts of the hash."""
    if segment.ranks is not None:
        return int(segment.ranks[row])
    is_standard = digest in canonical() and canonical()[digest] == segment.text_at(row)
    return as_standard(LISTED_KEY) if is_standard else LISTED_KEY


def _ordered(view: View, collection: Collection, digest: bytes, rows: list[RankedRow], names: Names) -> list[RankedRow]:
    texts = [_summary(row) for row in rows]

    def is_shared(name: str) -> bool:
        return len(names.rows(view, collection, name, 2)) > 1

    marked = [
        row._replace(key=rank.as_mined(row.key)) if rank.looks_mined(digest, text, texts, is_shared) else row
        for row, text in zip(rows, texts, strict=True)
    ]
    marked.sort(key=lambda row: rank.rank_of(row.key), reverse=True)  # stable: equal ones stay oldest first
    return marked


def _summary(row: RankedRow) -> Summary:
    """What ranks, of a row."""
    segment, number, key = row
    return Summary(
        int(segment.ids[number]), segment.text_at(number), rank.witness_of(key), rank.kinds_of(key),
        rank.sources_of(key), rank.contracts_of(key), verified=rank.is_verified(key),
    )  # fmt: skip
