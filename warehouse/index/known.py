"""The texts of a hash as decoding takes them, and readings of inputs by the texts of a view."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence

from sigdir.signatures import rank
from sigdir.signatures.abi_decoder import SPARE
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.rank import Summary
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import Input, Known, Reading, Readings, known_of
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
    """What ``known_texts`` gives for each hash. The lists are shared and not to be changed."""
    return _known_texts.of(view, hashes, names)


def are_kept(hash: bytes) -> bool:
    """Whether the texts of a hash were looked up lately, so that nothing has to be read for them again."""
    return hash in _known_texts


class _KnownTexts:
    """The texts of the hashes that were asked last, of the view that was asked last. Safe for threads.

    Most calls are of a few selectors. To rank the texts of one and to read their declarations takes 200 us where two
    share it, a third of an answer of /api/v1/decode/ (benchmarks/bench_decode.py).
    """

    def __init__(self) -> None:
        self._view: weakref.ref[View] | None = None
        self._known: dict[bytes, list[Known]] = {}
        self._lock = threading.Lock()

    def __contains__(self, hash: bytes) -> bool:
        return hash in self._known

    def of(self, view: View, hashes: Iterable[bytes], names: Names) -> dict[bytes, list[Known]]:
        """The texts of each hash, in rank order."""
        wanted = list(hashes)
        with self._lock:
            if self._view is None or self._view() is not view or len(self._known) >= _KEPT:
                self._view, self._known = weakref.ref(view), {}
            known = self._known  # another view's texts go into another dictionary
        missing = [hash for hash in wanted if hash not in known]
        if not missing:
            return {hash: known[hash] for hash in wanted}
        found = _texts_of_hashes(view, missing, names)
        known.update((hash, texts) for hash, texts in found.items() if _is_small(texts))
        return {hash: found[hash] if hash in found else known[hash] for hash in wanted}


_KEPT = 4096
_KEPT_CHARACTERS = 2048


def _is_small(texts: list[Known]) -> bool:
    return sum(len(one.text) + len(one.declaration) + 64 for one in texts) <= _KEPT_CHARACTERS


_known_texts = _KnownTexts()


def _texts_of_hashes(view: View, hashes: Iterable[bytes], names: Names) -> dict[bytes, list[Known]]:
    """The texts of each hash. The declarations of all are read together."""
    rows = {hash: ranked_rows(view, Collection.of_hash(hash), hash, names) for hash in hashes}
    declared = {
        collection: _declarations.of(
            view.snapshot.evidence,
            collection,
            (
                _id(row)
                for hash in rows
                if Collection.of_hash(hash) is collection
                for row in rows[hash][:_DECLARED_TEXTS]
            ),
        )
        for collection in COLLECTIONS
    }
    return {
        hash: [_known(row, declared[Collection.of_hash(hash)].get(_id(row), "")) for row in found]
        for hash, found in rows.items()
    }


_declarations = Declarations()


def _id(row: RankedRow) -> int:
    return int(row.segment.ids[row.row])


def _known(row: RankedRow, declaration: str) -> Known:
    text = row.segment.text_at(row.row)
    witness, kinds = rank.witness_of(row.key), rank.kinds_of(row.key)
    return known_of(Summary(_id(row), text, witness, kinds, declaration=declaration))


def read_inputs(view: View, inputs: Iterable[Input], names: Names, spare: int = SPARE) -> list[list[Reading]]:
    """The readings of each input, the likeliest first. ``spare`` is that of ``Readings``."""
    readings = Readings(inputs, spare)
    while wanted := readings.wanted():
        readings.supply(texts_of_hashes(view, wanted, names))
    return readings.results()


def read_alternatives(
    view: View, alternatives: Sequence[Input], names: Names, spare: int = SPARE
) -> list[Reading]:  # fmt: skip
    """The readings of one input that may have several shapes, the surest first."""
    return ordered([reading for readings in read_inputs(view, alternatives, names, spare) for reading in readings])
