"""Finding the rows of a search, the best first.

The rank of a row for a fragment is one int64, so a page of a million matches needs a partition, not a sort. From the
high bits down: how well the row matches (6 bits), the length of its text (18 bits), its age (40 bits).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.serve.pages.rows import Row, found_row
from sigdir.serve.pages.search_query import Kind, SearchQuery
from sigdir.signatures.collections import Collection
from sigdir.signatures.search_terms import SearchTerms
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.terms import rows_of_terms, well_known
from sigdir.warehouse.index.view import View
from sigdir.warehouse.table.fields import MAX_SEARCHED

Array = npt.NDArray[Any]

_LENGTH_SHIFT, _MATCH_SHIFT = 40, 58
_WELL_KNOWN, _WHOLE_NAME, _PREFIX, _INSIDE = 0, 1, 2, 3
_COMPARED_BYTES = 64


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
    found = rows_of_terms(view, collection, terms, start + size)
    known = well_known(collection, terms.shape)
    page = _ranked(view, collection, [rows for _, rows in found], "", known, start, size)
    return replace(page, count=sum(count for count, _ in found))


def _ranked(
    view: View, collection: Collection, rows: list[Array], fragment: str, known: list[tuple[bytes, str]], start: int,
    size: int,
) -> Matches:  # fmt: skip
    """A page of the matches: ``rows`` of each segment, rising, those of ``known`` texts first."""
    segments = view.segments[collection]
    firsts = np.cumsum([0, *map(len, rows)])
    count = int(firsts[-1])
    ranks = _ranks(segments, rows, fragment, known)
    stop = min(count, start + size)
    if stop < count:
        ranks = np.partition(ranks, stop)[:stop]
    ranks.sort()
    shown = []
    for place in (ranks[start:stop] & ((1 << _LENGTH_SHIFT) - 1)).tolist():
        number = int(firsts.searchsorted(place, side="right")) - 1
        shown.append(found_row(collection, segments[number], int(rows[number][place - firsts[number]]), fragment))
    return Matches(collection, count, shown)


def _ranks(
    segments: tuple[Segment, ...], rows: list[Array], fragment: str, known: list[tuple[bytes, str]]
) -> Array:  # fmt: skip
    """The rank of every match. ``rows`` are the matching rows of each segment, ascending."""
    found, first = [np.empty(0, np.int64)], 0
    for segment, matching in zip(segments, rows, strict=True):
        lengths = segment.offsets[matching + 1] - segment.offsets[matching]
        match = _match_kinds(segment, matching, lengths, fragment)
        _promote(segment, matching, match, known)
        places = np.arange(first, first + len(matching), dtype=np.int64)
        found.append((match << _MATCH_SHIFT) | (lengths << _LENGTH_SHIFT) | places)
        first += len(matching)
    return np.concatenate(found)


def _match_kinds(segment: Segment, rows: Array, lengths: Array, fragment: str) -> Array:
    """How each row matches: its whole name or text is the fragment, its text begins with it, or contains it."""
    starts = segment.offsets[rows]
    match = np.full(len(rows), _INSIDE, np.int64)
    prefix = np.frombuffer(fragment.encode()[:_COMPARED_BYTES].lower(), np.uint8)
    like = np.flatnonzero(lengths >= len(prefix))
    for at, byte in enumerate(prefix.tolist()):  # the first few bytes rule out almost every row
        here = segment.text[starts[like] + at]
        is_letter = 97 <= byte <= 122
        like = like[(here | 0x20 if is_letter else here) == byte]
    match[like] = _PREFIX
    after = np.minimum(starts[like] + len(fragment), len(segment.text) - 1)
    match[like[(segment.text[after] == 0x28) | (lengths[like] == len(fragment))]] = _WHOLE_NAME
    return match


def _promote(segment: Segment, rows: Array, match: Array, known: list[tuple[bytes, str]]) -> None:
    """Mark the well-known texts among rows whose text begins with the fragment."""
    for digest, text in known:
        for row in segment.with_hash(digest).tolist():
            at = int(rows.searchsorted(row))
            if at < len(rows) and rows[at] == row and segment.text_at(row) == text and match[at] < _INSIDE:
                match[at] = _WELL_KNOWN


def _well_known(collection: Collection, fragment: str) -> list[tuple[bytes, str]]:
    """The well-known texts that begin with a fragment, with their hashes."""
    return [
        (digest, text)
        for digest, text in canonical().items()
        if len(digest) == collection.hash_bytes and text.lower().startswith(fragment)
    ]
