"""The rows of a search by structure, segment by segment.

The conditions that leave few rows come first: a standard, a name, the parameters. What is left of them is compared with
the others, and where only those are asked with all rows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures import standards
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.columns import as_readonly
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.search_terms import SearchTerms, Shape
from sigdir.warehouse.index.parameter_lists import bounds_of, fits
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.view import View

Array = npt.NDArray[Any]

_FIRST, _LAST = -(2**62), 2**62


def rows_of_terms(view: View, collection: Collection, terms: SearchTerms, most: int) -> list[tuple[int, Array]]:
    """How many rows of each segment have all terms, and these rows, rising.

    Where only the parameters are asked, the rows are the ``most`` with the shortest texts of each list, and the well-known
    ones.
    """
    if terms._replace(shape=Shape(), understood=()) == SearchTerms():
        known = well_known(collection, terms.shape)
        return [_with_shape(segment, terms.shape, known, most) for segment in view.segments[collection]]
    found = [_rows(segment, collection, terms) for segment in view.segments[collection]]
    return [(len(rows), rows) for rows in found]


def well_known(collection: Collection, shape: Shape) -> list[tuple[bytes, str]]:
    """The texts of standards whose parameters fit, with their hashes."""
    entries, text, begins, ends = _standards(collection)
    return [entries[n] for n in np.flatnonzero(fits(text, begins, ends, shape)).tolist()]


@lru_cache(maxsize=2)
def _standards(collection: Collection) -> tuple[list[tuple[bytes, str]], Array, Array, Array]:
    """All of them, their texts as bytes, and where their parameter lists begin and end."""
    known = standards.canonical().items()
    entries = [(digest, text) for digest, text in known if len(digest) == collection.hash_bytes and "(" in text]
    offsets = np.cumsum([0, *(len(text) for _, text in entries)])
    data = as_readonly(np.frombuffer("".join(text for _, text in entries).encode(), np.uint8))
    return entries, data, *bounds_of(data, as_readonly(offsets), np.arange(len(entries)))


def _with_shape(segment: Segment, shape: Shape, known: list[tuple[bytes, str]], most: int) -> tuple[int, Array]:
    if segment.lists is None:
        rows = segment.with_shape(shape)
        return len(rows), rows
    count, rows = segment.lists.with_shape(shape, most)
    return count, np.union1d(rows, np.concatenate([NO_ROWS, *(_of_text(segment, *one) for one in known)]))


def _of_text(segment: Segment, digest: bytes, text: str) -> Array:
    rows = segment.with_hash(digest)
    return rows[[segment.text_at(row) == text for row in rows.tolist()]] if len(rows) else NO_ROWS


def _rows(segment: Segment, collection: Collection, terms: SearchTerms) -> Array:
    if terms.kind and (terms.kind == Kind.EVENT) != (collection == EVENT_SIGNATURES):
        return NO_ROWS
    rows = _of_standard(segment, collection, terms.standard) if terms.standard else None
    if terms.name:
        named = segment.with_name(terms.name)
        rows = named if rows is None else np.intersect1d(rows, named)
    if terms.shape != Shape():
        rows = segment.with_shape(terms.shape, rows)
    first, last = segment.time_range(
        _FIRST if terms.since is None else terms.since, _LAST if terms.before is None else terms.before - 1
    )
    if rows is None:
        rows = np.arange(first, max(first, last))
    elif first > 0 or last < segment.rows:
        rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]
    return rows[_is_said(segment, rows, terms)]


def _is_said(segment: Segment, rows: Array, terms: SearchTerms) -> Array:
    """Of which rows the sources say what is asked. An error is declared as one; anything else is a function."""
    held = np.ones(len(rows), np.bool_)
    summaries = segment.summaries
    if terms.witness > Witness.SOLVED:
        held &= summaries.counts["witness"][rows] >= terms.witness if summaries else terms.witness <= Witness.LISTED
    if terms.kind in (Kind.FUNCTION, Kind.ERROR):
        kinds = summaries.counts["kinds"][rows] if summaries else np.zeros(len(rows), np.uint8)
        is_error = kinds & (1 << Kind.ERROR) != 0
        held &= is_error if terms.kind == Kind.ERROR else ~is_error | (kinds & (1 << Kind.FUNCTION) != 0)
    return held


def _of_standard(segment: Segment, collection: Collection, standard: str) -> Array:
    """The rows of the texts of a standard, by its name in any case."""
    found = [NO_ROWS]
    for digest, source in standards.sources().items():
        if len(digest) == collection.hash_bytes and source.lower() == standard.lower():
            found.append(_of_text(segment, digest, standards.canonical()[digest]))
    return np.sort(np.concatenate(found))
