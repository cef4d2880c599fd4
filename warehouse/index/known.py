"""The texts of a hash as decoding takes them, and readings of inputs by the texts of a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sigdir.signatures import rank
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.evidence import Kind
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import Input, Known, Reading, Readings
from sigdir.warehouse.evidence.lookup import Declarations
from sigdir.warehouse.index.names import Names
from sigdir.warehouse.index.ranked import RankedRow, ranked_rows
from sigdir.warehouse.index.view import View

_DECLARED_TEXTS = 32
"""So many texts of a hash are given their declarations: of those behind them none is likely."""


def known_texts(view: View, hash: bytes, names: Names) -> list[Known]:
    """The texts of a selector (4 bytes) or topic (32 bytes) in rank order. ``names`` are the server's."""
    return texts_of_hashes(view, [hash], names)[hash]


def texts_of_hashes(view: View, hashes: Iterable[bytes], names: Names) -> dict[bytes, list[Known]]:
    """What ``known_texts`` gives for each hash. The declarations of all are read together."""
    rows = {hash: ranked_rows(view, _collection(hash), hash, names) for hash in hashes}
    declared = {
        collection: _declarations.of(
            view.snapshot.evidence,
            collection,
            (_id(row) for hash in rows if _collection(hash) is collection for row in rows[hash][:_DECLARED_TEXTS]),
        )
        for collection in COLLECTIONS
    }
    return {
        hash: [_known(row, declared[_collection(hash)].get(_id(row), "")) for row in found]
        for hash, found in rows.items()
    }


_declarations = Declarations()


def _collection(hash: bytes) -> Collection:
    return SIGNATURES if len(hash) == SIGNATURES.hash_bytes else EVENT_SIGNATURES


def _id(row: RankedRow) -> int:
    return int(row.segment.ids[row.row])


def _known(row: RankedRow, declaration: str) -> Known:
    kinds = rank.kinds_of(row.key)
    kind = kinds[0] if len(kinds) == 1 else Kind.UNKNOWN  # the same text may be a function here and an error there
    known = Known(row.segment.text_at(row.row), kind, rank.witness_of(row.key))
    return known.declared_as(declaration) if declaration else known


def read_inputs(view: View, inputs: Iterable[Input], names: Names) -> list[list[Reading]]:
    """The readings of each input, the likeliest first."""
    readings = Readings(inputs)
    while wanted := readings.wanted():
        readings.supply(texts_of_hashes(view, wanted, names))
    return readings.results()


def read_alternatives(view: View, alternatives: Sequence[Input], names: Names) -> list[Reading]:
    """The readings of one input that may have several shapes, the surest first."""
    return ordered([reading for readings in read_inputs(view, alternatives, names) for reading in readings])
