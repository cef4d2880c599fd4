"""What the sources of an import said before of the texts that they name now.

A sighting is renewed by a later one of the same source, text and contract; sightings without a contract are alike in that.
A new one that says nothing beyond the earlier ones is not written: a list that is imported again costs nothing at rest.
An earlier one goes where a new one has another declaration, or another display, in its place. It stays where it says more: a kind, a
declaration, a better witness or more contracts. Kinds do not exclude each other.

An import that replaces its sources writes all that they say. There the earlier sightings are only counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind
from sigdir.warehouse.evidence.declarations import codes, differs
from sigdir.warehouse.evidence.files import Counting, footer_of, id_ranges, write_sightings
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.schema import SIGHTING_SCHEMA

Array = npt.NDArray[Any]

_WHOSE = ["id", "source", "import_id"]
_AMOUNTS = ["witness", "contracts", "verified"]
_COLUMNS = [*_WHOSE, "contract_key", "kind", "display", "declaration", *_AMOUNTS]

# What is noted of an earlier sighting: its source names the text, says the same again, says something else instead.
_NAMED, _AGAIN, _INSTEAD = np.uint8(1), np.uint8(2), np.uint8(4)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What replaced sources no longer say: ``sightings``, and ``texts`` that a source no longer names."""

    sightings: int = 0
    texts: int = 0


NOTHING_WITHDRAWN = Withdrawn()


class Renewal:
    """The earlier sightings of an import's sources in one collection. Safe for threads.

    ``added`` are the numbers of the sources whose earlier sightings stay, ``replaced`` those of the others. ``news`` is
    called for all sightings of the import, then the other methods.
    """

    def __init__(
        self,
        manifest: Manifest,
        collection: Collection,
        added: AbstractSet[int],
        replaced: AbstractSet[int] = frozenset(),
    ) -> None:
        known = added | replaced
        self._collection = collection
        self._added, self._replaced = (np.array(sorted(each), np.int64) for each in (added, replaced))
        self._known, self._counting = np.array(sorted(known), np.int64), Counting(manifest)
        self._files = [
            file for file in manifest.files[collection]
            if file.source_imports is None or not known.isdisjoint(source for source, _ in file.source_imports)
        ]  # fmt: skip
        self._notes = {file.path: np.zeros(file.rows, np.uint8) for file in self._files}

    def news(self, sightings: pa.Table) -> pa.Table:
        """Those of an import's sightings, in the order of their ids, that are written; raises UnreadableWarehouse."""
        if not self._files:
            return sightings
        source = values(sightings["source"])
        rows = np.flatnonzero(np.isin(source, self._added) | np.isin(source, self._replaced))
        says = sightings.select(_COLUMNS).take(numbers(rows))
        ids = values(says["id"])
        earlier = list(self._earlier(ids[differs(ids)]))
        if not earlier:
            return sightings
        is_written = np.ones(sightings.num_rows, np.bool_)
        is_written[rows] = ~self._compare(says, earlier)
        return sightings if is_written.all() else sightings.filter(numbers(is_written))

    def _earlier(self, ids: Array) -> Iterator[tuple[Array, Array, pa.Table]]:
        """The earlier sightings of these texts: the notes of their file, their rows in it, their values."""
        for file in self._files:
            firsts, lasts = id_ranges(file.path)
            has_one = ids.searchsorted(firsts) < ids.searchsorted(lasts, side="right")
            for start, parquet, group in _groups(file, np.flatnonzero(has_one)):
                table = parquet.read_row_group(group, columns=_WHOSE)
                rows = self._live(table)
                rows = rows[_are_among(ids, values(table["id"])[rows])]
                if len(rows):
                    said = parquet.read_row_group(group, columns=_COLUMNS).take(numbers(rows))
                    yield self._notes[file.path], rows + start, said.select(_COLUMNS)

    def _live(self, table: pa.Table) -> Array:
        """The rows of the sources' sightings that count."""
        return np.flatnonzero(self._counting.of(table) & np.isin(values(table["source"]), self._known))

    def _compare(self, says: pa.Table, earlier: list[tuple[Array, Array, pa.Table]]) -> npt.NDArray[np.bool_]:
        """Which of these sightings say nothing new; notes what they mean for the earlier ones."""
        every = _values_of(pa.concat_tables([says, *(table for _, _, table in earlier)]))
        new, old = every.taken(slice(says.num_rows)), every.taken(slice(says.num_rows, None))
        is_replaced = np.isin(old.source, self._replaced)
        is_known = _is_known(new, old) & np.isin(new.source, self._added)
        again, other = new.taken(is_known), new.taken(~is_known)
        note = _NAMED * np.isin(old.text, new.text)
        note |= _AGAIN * np.where(is_replaced, np.isin(old.place, new.place), np.isin(old.whole, again.whole))
        note |= _INSTEAD * (~is_replaced & _is_superseded(old, other))
        start = 0
        for notes, rows, table in earlier:
            notes[rows] |= note[start : start + table.num_rows]
            start += table.num_rows
        return is_known

    def without_superseded(
        self, paths: Paths, run: str, number: int
    ) -> Iterator[tuple[EvidenceFile, EvidenceFile | None, Counter[int]]]:
        """Write each file that has superseded sightings again without them; the first new one has this number.

        Gives the old file, the new one (None if nothing is left), and how many sightings of each source are gone.
        """
        for file in self._files:
            goes = self._notes[file.path] & (_AGAIN | _INSTEAD) == _INSTEAD
            if goes.any():
                gone: Counter[int] = Counter()
                path = paths.evidence_file(self._collection, run, number)
                yield file, write_sightings(path, self._collection, _without(file, goes, gone)), gone
                number += 1

    def withdrawn(self) -> Withdrawn:
        """What the replaced sources said before and do not say now."""
        sightings, texts = 0, [np.empty((2, 0), np.int64)]
        for file in self._files if len(self._replaced) else ():
            for start, parquet, group in _groups(file):
                table = parquet.read_row_group(group, columns=_WHOSE)
                rows = self._live(table)
                rows = rows[np.isin(values(table["source"])[rows], self._replaced)]
                notes = self._notes[file.path][rows + start]
                sightings += int(np.count_nonzero(notes & _AGAIN == 0))
                unnamed = rows[notes & _NAMED == 0]
                texts.append(np.array([values(table[name])[unnamed] for name in ("id", "source")], np.int64))
        return Withdrawn(sightings, np.unique(np.concatenate(texts, axis=1), axis=1).shape[1])


def _groups(file: EvidenceFile, chosen: Array | None = None) -> Iterator[tuple[int, pq.ParquetFile, int]]:
    """Row groups of a file, by default all: the number of the first row, the open file, the number of the group."""
    footer = footer_of(file.path)
    starts = np.cumsum([0, *(footer.row_group(number).num_rows for number in range(footer.num_row_groups))])
    numbered = np.arange(footer.num_row_groups) if chosen is None else chosen
    if len(numbered):
        with naming(file.path), pq.ParquetFile(file.path, metadata=footer, page_checksum_verification=True) as parquet:
            yield from ((int(starts[number]), parquet, number) for number in numbered.tolist())


def _are_among(rising: Array, wanted: Array) -> npt.NDArray[np.bool_]:
    """Whether each number is one of these, which rise; numpy's isin sorts them each time."""
    at = np.minimum(rising.searchsorted(wanted), len(rising) - 1)
    found: npt.NDArray[np.bool_] = rising[at] == wanted
    return found


def _without(file: EvidenceFile, goes: npt.NDArray[np.bool_], gone: Counter[int]) -> Iterator[pa.Table]:
    """The sightings of a file that stay; counts the others by their sources."""
    for start, parquet, group in _groups(file):
        table = parquet.read_row_group(group).cast(SIGHTING_SCHEMA)
        here = goes[start : start + table.num_rows]
        gone.update(values(table["source"])[here].tolist())
        yield table.filter(numbers(~here))


# Comparing what is said. Values are numbers that are equal where the values are.


class _SightingValues(NamedTuple):
    """Sightings as columns. ``place`` is a text's or a contract's in a source, ``declared`` is place, declaration and display,
    ``whole`` that and the kind.
    """

    source: Array
    text: Array
    place: Array
    of_kind: Array
    declared: Array
    whole: Array
    has_kind: Array
    has_declaration: Array
    witness: Array
    contracts: Array
    verified: Array

    def taken(self, rows: Any) -> _SightingValues:
        return _SightingValues(*(column[rows] for column in self))


def _values_of(table: pa.Table) -> _SightingValues:
    source, kind = values(table["source"]), values(table["kind"])
    text = _joined(values(table["id"]), source)
    place = _joined(text, codes(table["contract_key"]))
    of_kind, declaration = _joined(place, kind), codes(table["declaration"])
    declared = _joined(_joined(place, declaration), codes(table["display"]))
    return _SightingValues(
        source, text, place, of_kind, declared, _joined(declared, kind),
        kind != Kind.UNKNOWN, declaration >= 0, *(values(table[name]) for name in _AMOUNTS),
    )  # fmt: skip


def _joined(one: Array, other: Array) -> Array:
    """A number for each pair of two columns, equal where the pairs are. The first has no negative numbers."""
    width = int(other.max()) - int(other.min()) + 1
    if int(one.max()) >= _MOST // width:
        one = np.unique(one, return_inverse=True)[1]
    joined: Array = one.astype(np.int64) * width + (other - other.min())
    return joined


_MOST = 1 << 62


def _is_known(new: _SightingValues, old: _SightingValues) -> npt.NDArray[np.bool_]:
    """For each new sighting whether the old ones say as much: a kind and a declaration only where the new one has them."""
    found = np.zeros(len(new.text), np.bool_)
    for has_kind, has_declaration, key in (
        (False, False, "place"), (True, False, "of_kind"), (False, True, "declared"), (True, True, "whole"),
    ):  # fmt: skip
        rows = (new.has_kind == has_kind) & (new.has_declaration == has_declaration)
        found[rows] = _is_reached(new.taken(rows), old, key)
    return found


def _is_superseded(old: _SightingValues, new: _SightingValues) -> npt.NDArray[np.bool_]:
    """For each old sighting whether a new one in its place says as much, another declaration in place of the old one."""
    found = np.zeros(len(old.text), np.bool_)
    for others, is_of in ((new, ~old.has_declaration), (new.taken(new.has_declaration), old.has_declaration)):
        for key, rows in (("place", is_of & ~old.has_kind), ("of_kind", is_of & old.has_kind)):
            found[rows] = _is_reached(old.taken(rows), others, key)
    return found


def _is_reached(these: _SightingValues, others: _SightingValues, key: str) -> npt.NDArray[np.bool_]:
    """For each sighting whether those of ``others`` with the same key have as good a witness and as many contracts."""
    keys, other_keys = getattr(these, key), getattr(others, key)
    if not len(other_keys) or not len(keys):
        return np.zeros(len(keys), np.bool_)
    order = np.argsort(other_keys, kind="stable")
    starts = np.flatnonzero(differs(other_keys[order]))
    known = other_keys[order][starts]
    at = np.minimum(known.searchsorted(keys), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[at] == keys
    for name in _AMOUNTS:
        found &= np.maximum.reduceat(getattr(others, name)[order], starts)[at] >= getattr(these, name)
    return found
