"""The rows of a search by structure, segment by segment; and the names that differ from a typed one by a typing error.

Structure: the conditions that leave few rows come first: a standard, a name, the parameters. What is left of them is
compared with the others, and where only those are asked with all rows.

Typing errors: the measure is optimal string alignment: a letter too many, missing or wrong, or two neighbours swapped,
is one error each. Letters are compared without regard to case. The text of every row is scanned, as in a search
(``search``): the place of the parenthesis rules out most rows, and few of the others need all of their letters.
10 M rows take 30 to 350 ms on one core, most for a long name with two errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from sigdir.signatures import standards
from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import EVENT_SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.kernels import kernel
from sigdir.signatures.search_terms import MANY, SearchTerms, Shape
from sigdir.warehouse.evidence.contracts import hashes_used
from sigdir.warehouse.evidence.summaries import named_by
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


_SHORTEST, _LONGEST = 4, 64
_TWO_ERRORS = 6  # letters of a name from which on two errors are allowed
_MOST_ROWS = 4096  # that one scan of a segment collects


def similar_texts(segments: Sequence[Segment], typed: str, limit: int) -> list[str]:
    """What ``typed``, a name with or without the beginning of a parameter list, may have meant; the best first.

    Fewer errors come first, then names of more rows. Of names that differ in case alone one is taken. The typed
    parameters are kept if a row has them after its name. Names of less than 4 or more than 64 characters, and names
    that are not ASCII, have none.
    """
    name, parenthesis, parameters = typed.partition("(")
    if not (name.isascii() and _SHORTEST <= len(name) <= _LONGEST):
        return []
    places = _places(name.lower().encode())
    for errors in range(1, 3 if len(name) >= _TWO_ERRORS else 2):
        spellings: dict[tuple[int, str], Counter[str]] = {}
        wholes: set[str] = set()
        for segment in segments:
            rows, distances = np.empty(_MOST_ROWS, np.int64), np.empty(_MOST_ROWS, np.int64)
            count = _scan(segment.text, segment.offsets, segment.rows, places, len(name), errors, rows, distances)
            for row, distance in zip(rows[:count].tolist(), distances[:count].tolist(), strict=True):
                text = segment.text_at(row)
                found = text.partition("(")[0]
                spellings.setdefault((distance, found.lower()), Counter())[found] += 1
                if text.startswith(whole := found + parenthesis + parameters):
                    wholes.add(whole)
        if spellings:
            best = sorted(spellings, key=lambda key: (key[0], -spellings[key].total(), key[1]))[:limit]
            names = [_spelling(spellings[key], name) for key in best]
            return [whole if (whole := found + parenthesis + parameters) in wholes else found for found in names]
    return []


def _spelling(counts: Counter[str], typed: str) -> str:
    """Of names that differ in case alone the one that begins as the typed one does, then the most common."""
    return max(counts, key=lambda name: (name[0] == typed[0], counts[name]))


def _places(name: bytes) -> Array:
    """For each byte, in any case, the places at which the name has it, as bits of an uint64."""
    places = np.zeros(256, np.uint64)
    for at, letter in enumerate(name):
        for byte in {letter, *bytes([letter]).upper()}:
            places[byte] |= np.uint64(1 << at)
    return places


@kernel(nogil=True)
def _scan(
    text: Array, offsets: Array, rows: int, places: Array, size: int, most: int, found: Array, distances: Array
) -> int:
    """Collect rows whose name is at most ``most`` errors from that of ``places``; returns their number."""
    count = 0
    for row in range(rows):
        at, end = offsets[row], offsets[row + 1]
        length = max(size - most, 0)
        last = min(size + most, end - at - 1)
        while length <= last and text[at + length] != 0x28:
            length += 1
        if length > last:
            continue
        distance = _distance(text[at : at + length], places, size)
        if distance <= most:
            found[count], distances[count] = row, distance
            count += 1
            if count == len(found):
                break
    return count


@kernel(nogil=True)
def _distance(name: Array, places: Array, size: int) -> Any:
    """The distance of a name from the one of ``places``, which has ``size`` letters; more than that for one with ``(``.

    Hyyro 2003: bit ``i`` of ``up`` and ``down`` says whether a column of the table rises or falls from cell ``i`` to the
    next; of ``same`` whether the table's diagonal is level there. A column is a few operations on whole words.
    """
    one, top = np.uint64(1), np.uint64(size - 1)
    up, down, same, before = ~np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
    distance = np.int64(size)
    for letter in name:
        if letter == 0x28:
            return 2 * size
        here = places[letter]
        swapped = ((~same & here) << one) & before
        same = (((here & up) + up) ^ up) | here | down | swapped
        right, left = down | ~(same | up), same & up
        distance += np.int64((right >> top) & one) - np.int64((left >> top) & one)
        right, left = (right << one) | one, left << one
        up, down, before = left | ~(same | right), right & same, here
    return distance


def warm() -> None:
    """Load the kernel before any request waits for it."""
    numbers = np.zeros(1, np.int64)
    text = np.frombuffer(b"warn()", np.uint8)
    segment = Segment.of(1, numbers, numbers, np.array([0, len(text)]), text, np.zeros((1, 4), np.uint8), {})
    similar_texts([segment], "warm", 1)
