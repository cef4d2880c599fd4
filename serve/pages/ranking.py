"""Finding the rows of a search, the best first: by how well they match, then by their evidence, then by age.

The weight of a row is one uint64, so a page of a million matches needs a partition, not a sort.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.serve.pages.rows import Row, found_row
from sigdir.serve.pages.search_query import Kind, SearchQuery
from sigdir.signatures.collections import Collection
from sigdir.signatures.search_terms import SearchTerms
from sigdir.signatures.standards import canonical
from sigdir.warehouse.evidence.summaries import COUNTS, LISTED, weights
from sigdir.warehouse.index.search import match_kinds, promote
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.terms import rows_of_terms, well_known
from sigdir.warehouse.index.view import View
from sigdir.warehouse.table.fields import MAX_SEARCHED

Array = npt.NDArray[Any]

_LISTED = weights(np.array([LISTED], COUNTS))


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches in one collection: ``count`` of them, and the ``rows`` of one page."""

    collection: Collection
    count: int
    rows: list[Row]
    kind: Kind = "fragment"

    @property
    def has_more(self) -> bool:
        return self.count > len(self.rows)


def find(view: View, collection: Collection, query: SearchQuery, start: int, size: int) -> Matches:
    """The matches of a query, with rows ``start`` to ``start + size``."""
    if len(query.fragment) > MAX_SEARCHED:
        return _of_text(view, collection, query)
    if query.kind == "terms":
        return _of_terms(view, collection, query.terms, start, size) if query.terms else Matches(collection, 0, [])
    if query.fragment:
        return _with_fragment(view, collection, query.fragment, start, size)
    found = _with_digits(view, collection, query)
    count = sum(len(rows) for _, rows in found)
    places = [(segment, row) for segment, rows in found for row in rows[: start + size]]
    shown = [
        found_row(collection, segment, int(row), digits=query.digits) for segment, row in places[start : start + size]
    ]
    shown.sort(key=lambda row: row.is_filtered)
    return Matches(collection, count, shown, query.kind)


def _of_text(view: View, collection: Collection, query: SearchQuery) -> Matches:
    """The row of a whole text that is too long to be searched as a part of others."""
    found = view.with_hash(collection, query.digest[: collection.hash_bytes])
    places = [(segment, row) for segment, rows in found for row in rows.tolist()]
    rows = [found_row(collection, segment, row) for segment, row in places if segment.text_at(row) == query.canonical]
    return Matches(collection, len(rows), rows)


def _with_digits(view: View, collection: Collection, query: SearchQuery) -> list[tuple[Segment, Array]]:
    if query.kind == "hex":
        return [(segment, segment.with_hex(query.digits)) for segment in view.segments[collection]]
    if len(query.digits) <= 2 * collection.hash_bytes:
        return view.with_hash(collection, bytes.fromhex(query.digits))
    return []  # a topic is longer than any selector


def _with_fragment(view: View, collection: Collection, fragment: str, start: int, size: int) -> Matches:
    if not fragment.isascii() or "\0" in fragment:
        return Matches(collection, 0, [])
    rows = [segment.with_text(fragment) for segment in view.segments[collection]]
    known = _well_known(collection, fragment.lower())
    return _ranked(view, collection, rows, fragment, known, start, size)


def _of_terms(view: View, collection: Collection, terms: SearchTerms, start: int, size: int) -> Matches:
    rows = rows_of_terms(view, collection, terms)
    return _ranked(view, collection, rows, terms.piece, well_known(collection, terms.shape), start, size)


def _ranked(
    view: View, collection: Collection, rows: list[Array], fragment: str, known: list[tuple[bytes, str]], start: int,
    size: int,
) -> Matches:  # fmt: skip
    """A page of the matches: ``rows`` of each segment, rising; those of ``known`` texts match best."""
    segments = view.segments[collection]
    found = [np.empty(0, np.uint64), *(_weights(*pair, fragment, known) for pair in zip(segments, rows, strict=True))]
    firsts = np.cumsum([0, *map(len, rows)])
    shown = []
    for place in _best(np.concatenate(found), start + size)[start:].tolist():
        number = int(firsts.searchsorted(place, side="right")) - 1
        shown.append(found_row(collection, segments[number], int(rows[number][place - firsts[number]]), fragment))
    return Matches(collection, int(firsts[-1]), shown)


def _weights(segment: Segment, rows: Array, fragment: str, known: list[tuple[bytes, str]]) -> Array:
    match = match_kinds(segment.text, segment.offsets, rows, fragment)
    _promote(segment, rows, match, known)
    of_rows = _LISTED if segment.summaries is None else segment.summaries.weights[rows]
    return match.astype(np.uint64) << np.uint64(32) | of_rows


def _best(weights: Array, stop: int) -> Array:
    """The places of the ``stop`` lowest weights in their order; of equal ones the first."""
    if stop >= len(weights):
        return np.argsort(weights, kind="stable")
    limit = np.partition(weights, stop)[stop]
    lower = np.flatnonzero(weights < limit)
    ordered = lower[np.argsort(weights[lower], kind="stable")]
    return np.concatenate([ordered, np.flatnonzero(weights == limit)[: stop - len(lower)]])


def _promote(segment: Segment, rows: Array, match: Array, known: list[tuple[bytes, str]]) -> None:
    """Mark the well-known texts among rows whose text begins with the fragment."""
    for digest, text in known:
        for row in segment.with_hash(digest).tolist():
            at = int(rows.searchsorted(row))
            if at < len(rows) and rows[at] == row and segment.text_at(row) == text:
                promote(match, at)


def _well_known(collection: Collection, fragment: str) -> list[tuple[bytes, str]]:
    """The well-known texts that begin with a fragment, with their hashes."""
    return [
        (digest, text)
        for digest, text in canonical().items()
        if len(digest) == collection.hash_bytes and text.lower().startswith(fragment)
    ]
