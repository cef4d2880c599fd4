"""The best matches of a search: by how well they match, then by their evidence, then by age.

The weight of a row is one uint64, so a page of a million matches needs a partition, not a sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import Collection
from sigdir.warehouse.evidence.summaries import COUNTS, LISTED, weights
from sigdir.warehouse.index.search import match_weights
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.terms import rows_of_standards
from sigdir.warehouse.index.view import View

_LISTED = weights(np.array(LISTED, COUNTS))


class Match(NamedTuple):
    """A row that a search found. Those of both collections can be ordered by their weights, the best lowest."""

    weight: int
    segment: Segment
    row: int


def rows_with_fragment(view: View, collection: Collection, fragment: str) -> list[Array]:
    """The rows of each segment whose text has a fragment, whatever its case, rising."""
    if not fragment.isascii() or "\0" in fragment:
        return [NO_ROWS for _ in view.segments[collection]]
    return [segment.with_text(fragment) for segment in view.segments[collection]]


def best_matches(
    view: View, collection: Collection, rows: list[Array], fragment: str, start: int, stop: int
) -> list[Match]:
    """Matches ``start`` up to ``stop``, exclusive, the best first: ``rows`` of each segment, rising."""
    segments = view.segments[collection]
    found = [np.empty(0, np.uint64)]
    found += [_weights(collection, *pair, fragment) for pair in zip(segments, rows, strict=True)]
    all_weights, firsts = np.concatenate(found), np.cumsum([0, *map(len, rows)])
    best = []
    for place in _best(all_weights, stop)[start:].tolist():
        number = int(firsts.searchsorted(place, side="right")) - 1
        best.append(Match(int(all_weights[place]), segments[number], int(rows[number][place - firsts[number]])))
    return best


def _weights(collection: Collection, segment: Segment, rows: Array, fragment: str) -> Array:
    known = rows_of_standards(segment, collection)
    places = rows.searchsorted(known)
    places = places[places < rows.searchsorted(known, side="right")]
    of_rows = np.full(len(rows), _LISTED) if segment.summaries is None else segment.summaries.weights[rows]
    return match_weights(segment.text, segment.offsets, rows, fragment, of_rows, places)


def _best(weights: Array, stop: int) -> Array:
    """The places of the ``stop`` lowest weights in their order; of equal ones the first."""
    if stop >= len(weights):
        return np.argsort(weights, kind="stable")
    limit = np.partition(weights, stop)[stop]
    lower = np.flatnonzero(weights < limit)
    ordered = lower[np.argsort(weights[lower], kind="stable")]
    return np.concatenate([ordered, np.flatnonzero(weights == limit)[: stop - len(lower)]])
