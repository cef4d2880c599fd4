"""The rows of a search by structure, segment by segment.

The conditions that leave few rows come first: a standard, a name, the parameters. What is left of them is compared with
the others, and where only those are asked with all rows.
"""

from __future__ import annotations

from functools import lru_cache, reduce

import numpy as np

from sigdir.signatures import standards
from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.search_terms import MANY, SearchTerms, Shape
from sigdir.warehouse.evidence.summaries import named_by
from sigdir.warehouse.evidence.usage import hashes_used
from sigdir.warehouse.index.segment import NO_ROWS, Segment
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.manifest import POST

_ANY_USAGE = SearchTerms().usage


def rows_of_terms(view: View, collection: Collection, terms: SearchTerms) -> list[Array]:
    """The rows of each segment that have all terms, rising; raises UnreadableWarehouse."""
    used = None
    if terms.usage != _ANY_USAGE:
        least, most = terms.usage if terms.usage[0] else (terms.usage[1] + 1, MANY)
        used = hashes_used(view.snapshot.evidence, collection, least, most)
    return [_rows(view, segment, collection, terms, used) for segment in view.segments[collection]]


def rows_of_standards(segment: Segment, collection: Collection, standard: str = "") -> Array:
    """The rows of the texts of standards, rising, or of one standard by its name in any case."""
    hashes, entries = _standards(collection)
    numbers, rows = segment.with_hashes(hashes)
    found = []
    for number, row in zip(numbers.tolist(), rows.tolist(), strict=True):
        text, name = entries[number]
        if segment.text_at(row) == text and standard.lower() in ("", name.lower()):
            found.append(row)
    return np.sort(np.array(found, np.int64))


@lru_cache(maxsize=2)
def _standards(collection: Collection) -> tuple[Array, list[tuple[str, str]]]:
    """The hashes of all of them, rising, and their texts and names."""
    hashes = sorted(hash for hash in standards.canonical() if len(hash) == collection.hash_bytes)
    entries = [(standards.canonical()[hash], standards.sources()[hash]) for hash in hashes]
    return np.frombuffer(b"".join(hashes), np.uint8).reshape(len(hashes), -1), entries


def _rows(view: View, segment: Segment, collection: Collection, terms: SearchTerms, used: Array | None) -> Array:
    """``used`` are the hashes that are used as often as is asked; where that may be 0 times, those that are not."""
    if terms.kind and (terms.kind == Kind.EVENT) != (collection == EVENT_SIGNATURES):
        return NO_ROWS
    found = []
    if terms.standard:
        found.append(rows_of_standards(segment, collection, terms.standard))
    if used is not None:
        counted = np.unique(segment.with_hashes(used)[1])
        found.append(counted if terms.usage[0] else np.setdiff1d(np.arange(segment.rows), counted))
    if terms.name:
        found.append(segment.with_name(terms.name))
    rows = reduce(np.intersect1d, found) if found else None
    if terms.shape != Shape():
        rows = segment.with_shape(terms.shape, rows)
    first, last = segment.time_range(terms.since, None if terms.before is None else terms.before - 1)
    if rows is None:
        rows = np.arange(first, last)
    elif first > 0 or last < segment.rows:
        rows = rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]
    if terms.kind or terms.witness:
        rows = rows[_is_said(segment, rows, terms)]
    return rows[_is_named(view, segment, collection, rows, terms.source)] if terms.source else rows


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


def _is_named(view: View, segment: Segment, collection: Collection, rows: Array, label: str) -> Array:
    """Of which rows a source says so whose label has this piece, in any case. A staged row is a POST's."""
    evidence = view.snapshot.evidence
    sources = [number for number, source in evidence.sources.items() if label.lower() in source.label.lower()]
    if segment.is_staged:
        return np.full(len(rows), POST in sources)
    return named_by(evidence, collection, segment.ids[rows], sources)
