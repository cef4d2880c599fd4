"""The texts of a hash as decoding takes them, and readings of inputs by the texts of a view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sigdir.signatures.abi_decoder import SPARE
from sigdir.signatures.collections import Collection
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import Input, Known, Reading, Readings, known_of
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.view import View

_KEPT_HASHES, _KEPT_CHARACTERS = 4096, 2048


def known_texts(view: View, hash: bytes) -> list[Known]:
    """The texts of a selector (4 bytes) or topic (32 bytes) in rank order. The list is shared and not to be changed.

    The view keeps it: most calls are of a few selectors, and to make it takes 35 of the 90 us of a decoded transfer.
    """
    kept: list[Known] | None = view.known.get(hash)
    if kept is not None:
        return kept
    found = [known_of(row.ranked.summary) for row in ranked_rows(view, Collection.of_hash(hash), hash)]
    if sum(len(one.text) + len(one.declaration) + 64 for one in found) <= _KEPT_CHARACTERS:
        if len(view.known) >= _KEPT_HASHES:
            view.known.clear()
        view.known[hash] = found
    return found


def texts_of_hashes(view: View, hashes: Iterable[bytes]) -> dict[bytes, list[Known]]:
    """What ``known_texts`` gives for each hash."""
    return {hash: known_texts(view, hash) for hash in hashes}


def read_inputs(view: View, inputs: Iterable[Input], spare: int = SPARE) -> list[list[Reading]]:
    """The readings of each input, the likeliest first. ``spare`` is that of ``Readings``."""
    readings = Readings(inputs, spare)
    while wanted := readings.wanted():
        readings.supply(texts_of_hashes(view, wanted))
    return readings.results()


def read_alternatives(
    view: View, alternatives: Sequence[Input], spare: int = SPARE
) -> list[Reading]:  # fmt: skip
    """The readings of one input that may have several shapes, the surest first."""
    return ordered([reading for readings in read_inputs(view, alternatives, spare) for reading in readings])
