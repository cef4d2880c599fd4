"""The texts of a hash as decoding takes them, and readings of inputs by the texts of a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sigdir.signatures import rank
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.evidence import Kind
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import Input, Known, Reading, Readings
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.ranked import RankedRow, ranked_rows
from sigdir.warehouse.index.view import View


def known_texts(view: View, hash: bytes, names: Names) -> list[Known]:
    """The texts of a selector (4 bytes) or topic (32 bytes) in rank order. ``names`` are the server's."""
    collection = SIGNATURES if len(hash) == SIGNATURES.hash_bytes else EVENT_SIGNATURES
    return [_known(row) for row in ranked_rows(view, collection, hash, names)]


def _known(row: RankedRow) -> Known:
    kinds = rank.kinds_of(row.key)
    kind = kinds[0] if len(kinds) == 1 else Kind.UNKNOWN  # the same text may be a function here and an error there
    return Known(row.segment.text_at(row.row), kind, rank.witness_of(row.key))


def read_inputs(view: View, inputs: Iterable[Input], names: Names) -> list[list[Reading]]:
    """The readings of each input, the likeliest first."""
    readings = Readings(inputs)
    while wanted := readings.wanted():
        readings.supply({hash: known_texts(view, hash, names) for hash in wanted})
    return readings.results()


def read_alternatives(view: View, alternatives: Sequence[Input], names: Names) -> list[Reading]:
    """The readings of one input that may have several shapes, the surest first."""
    return ordered([reading for readings in read_inputs(view, alternatives, names) for reading in readings])
