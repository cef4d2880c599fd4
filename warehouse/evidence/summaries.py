"""What all sources say together about texts, as columns: a summary a row. Servers map them, SQL reads them by id.

Only this module adds sightings up. It counts distinct sources and contracts by sorting numbers: a row and a source in
one int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import Array, numbers, values
from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary
from sigdir.warehouse.evidence.mapped import counting, footer_of, id_ranges
from sigdir.warehouse.log.manifest import POST, Manifest
from sigdir.warehouse.table.parquet import naming


class SightingCounts(NamedTuple):
    """A row of ``Summaries.counts``; the names are those of ``rank.Summary``. By default one list names the text."""

    sources: int = 1
    contracts: int = 0
    compiled: int = 0
    witness: int = Witness.LISTED
    kinds: int = 0
    """Bit ``kind`` is set for each known kind."""
    verified: bool = False

    def is_posted(self, import_id: int) -> bool:
        """Whether POSTs alone name the text; ``import_id`` is that of its row."""
        return import_id == 0 and self.sources <= 1

    def summary(
        self, id: int, text: str, declaration: str, import_id: int, first_seen: datetime | None = None
    ) -> Summary:
        """What the sources say of the text that has these counts."""
        return Summary(
            id, text, Witness(self.witness), KINDS[self.kinds], self.sources, self.contracts, self.compiled, self.verified,
            first_seen, declaration, is_posted=self.is_posted(import_id),
        )  # fmt: skip


COUNTS: Final = np.dtype(
    [
        ("sources", "<u4"),
        ("contracts", "<u4"),
        ("compiled", "<u4"),
        ("witness", "u1"),
        ("kinds", "u1"),
        ("verified", "?"),
    ]
)
"""15 bytes a text."""

LISTED: Final = SightingCounts()
"""What is known of a staged text: one list names it."""

KINDS: Final = tuple(tuple(kind for kind in Kind if kind and mask >> kind & 1) for mask in range(2 << max(Kind)))
"""The known kinds, rising, by ``SightingCounts.kinds``."""


_MOST_USED, _MOST_CONTRACTS, _MOST_SOURCES = (1 << 5) - 1, (1 << 17) - 1, (1 << 7) - 1
BELOW_WITNESS: Final = np.uint32((1 << 29) - 1)
"""The bits of a weight that are not the witness's."""


def weights(counts: Array, uses: Array | int = 0) -> Array:
    """What orders texts of different hashes, uint32, the best lowest: by witness, use, contracts, sources.

    Uses of the hashes count by their powers of four. Beyond 131,071 contracts and 127 sources they count as equal.
    """
    found: Array = (~counts["witness"] & np.uint32(7)) << np.uint32(29)
    often = np.ceil(np.log2(1 + np.asarray(uses, np.float64)) / 2).astype(np.uint32)
    found |= (_MOST_USED - np.minimum(often, np.uint32(_MOST_USED))) << np.uint32(24)
    found |= (_MOST_CONTRACTS - np.minimum(counts["contracts"], _MOST_CONTRACTS)) << np.uint32(7)
    found |= _MOST_SOURCES - np.minimum(counts["sources"], _MOST_SOURCES)
    return found


@dataclass(frozen=True, slots=True)
class Summaries:
    """Summaries of texts, a row each. Most texts of a list have no declaration, so only the others have a place there."""

    counts: Array
    """Of type COUNTS."""
    declared: Array
    """The rows that have a declaration, rising: int64."""
    texts: pa.Array
    """Their commonest declarations: string or large_string."""
    weights: Array
    """As ``weights`` gives them."""

    def at(self, row: int) -> SightingCounts:
        return SightingCounts._make(self.counts.item(row))

    def declaration_at(self, row: int) -> str:
        """The commonest declaration of a text; "" for none."""
        place = int(self.declared.searchsorted(row))
        found: str = self.texts[place].as_py() if place < len(self.declared) and self.declared[place] == row else ""
        return found

    def declarations(self, rows: Array) -> pa.Array:
        """The commonest declarations of some rows, null for none."""
        if not len(self.declared):
            return pa.nulls(len(rows), self.texts.type)
        places = np.minimum(self.declared.searchsorted(rows), len(self.declared) - 1)
        return self.texts.take(numbers(places, self.declared[places] == rows))


# How often a text is declared in each way: the one place that counts declarations.
#
# A declaration counts once for each contract that has it, and for each source that names no contract. The commonest comes
# first. Of those that are as common, those that nobody POSTed come first, so that a POST of a known text does not replace
# the names that are shown. Then the oldest source's comes first, and of one source's the one that it has first. The view
# ``declarations`` of SQL counts the same way; tests compare the two.

DECLARING = ("id", "source", "import_id", "contract_key", "declaration")
"""The columns of sightings that are needed here, and those that say whether a sighting counts."""


class Tally(NamedTuple):
    """Declarations of texts, in the order of the texts' ids, the commonest of each text first."""

    ids: Array
    rows: Array
    """The number of a row that has the declaration."""
    counts: Array


def tally(sightings: pa.Table) -> Tally:
    """Each declaration of each text and its count. ``sightings`` count, and have the columns DECLARING."""
    rows = np.flatnonzero(values(sightings["declaration"].is_valid()))
    declared = sightings.take(numbers(rows))
    ids, sources = values(declared["id"]), values(declared["source"])
    has_contract = values(declared["contract_key"].is_valid())
    by = np.where(has_contract, values(declared["contract_key"]), sources)
    encoded = declared["declaration"].combine_chunks().dictionary_encode()
    codes = values(encoded.indices)
    order = np.lexsort((has_contract, by, codes, ids))
    groups = np.flatnonzero(differs(ids[order], codes[order]))
    oldest, first = np.minimum.reduceat(sources[order], groups), np.minimum.reduceat(order, groups)
    order = order[differs(*(column[order] for column in (ids, codes, by, has_contract)))]
    starts = np.flatnonzero(differs(ids[order], codes[order]))
    counts = np.diff(starts, append=len(order))
    is_posted = np.maximum.reduceat(sources[order] == POST, starts)
    order = order[starts]
    best_first = np.lexsort((first, oldest, is_posted, -counts, ids[order]))
    order = order[best_first]
    return Tally(ids[order], rows[order], counts[best_first])


def commonest(sightings: pa.Table) -> tuple[Array, Array]:
    """The ids of the texts that have a declaration, rising, and the row of the commonest one of each.

    ``sightings`` are as for ``tally``.
    """
    rows = np.flatnonzero(values(sightings["declaration"].is_valid()))
    ids = values(sightings["id"])[rows]
    if (ids[1:] < ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        ids, rows = ids[order], rows[order]
    starts = np.flatnonzero(differs(ids))
    sizes = np.diff(starts, append=len(ids))
    several = sizes > 1
    best = rows[starts]  # for most texts it is the only one
    if several.any():
        chosen = np.sort(rows[np.repeat(several, sizes)])
        found = tally(sightings.select(DECLARING).take(numbers(chosen)))
        best[several] = chosen[found.rows[differs(found.ids)]]
    return ids[starts], best


def differs(*columns: Array) -> Array:
    """Whether a row differs from the one in front of it; the first one does."""
    found = np.ones(len(columns[0]), np.bool_)
    if len(found):
        found[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return found


_SUMMED = ("id", "source", "import_id", "kind", "witness", "contracts", "verified", "contract_key", "declaration")
_NAMED = ("id", "source", "import_id")

_READ_ROWS = 1 << 17
_SHIFT = 32
_NO_NUMBERS = np.empty(0, np.int64)


def summed(manifest: Manifest, collection: Collection, ids: Array, uses: Array | int = 0) -> Summaries:
    """The summaries of the texts with these ids, which rise, and these uses; raises UnreadableWarehouse."""
    sums, declared = _Sums(ids), []
    for sightings in _sightings_of(manifest, collection, ids):
        sums.add(sightings)
        if sightings["declaration"].null_count < sightings.num_rows:
            declared.append(sightings.select(DECLARING))
    counts = sums.counts()
    if not declared:
        return Summaries(counts, _NO_NUMBERS, pa.nulls(0, pa.string()), weights(counts, uses))
    table = pa.concat_tables(declared)
    found, best = commonest(table)
    rows, mine = sums.rows_of(found)
    texts = table["declaration"].combine_chunks().take(numbers(best[mine]))
    return Summaries(counts, rows, texts, weights(counts, uses))


def named_by(manifest: Manifest, collection: Collection, ids: Array, sources: Sequence[int]) -> npt.NDArray[np.bool_]:
    """Which of these texts, whose ids rise, one of the sources names: a flag each; raises UnreadableWarehouse."""
    files = tuple(file for file in manifest.files[collection] if file.may_have(lambda source, _: source in sources))
    sightings = _sightings_of(replace(manifest, files={collection: files}), collection, ids, _NAMED)
    found = [values(some["id"])[np.isin(values(some["source"]), sources)] for some in sightings]
    return np.isin(ids, np.concatenate([_NO_NUMBERS, *found]))


def _sightings_of(
    manifest: Manifest, collection: Collection, ids: Array, columns: Sequence[str] = _SUMMED
) -> Iterator[pa.Table]:
    """The sightings that count, of these texts and of others between them, in tables of about _READ_ROWS.

    Raises UnreadableWarehouse where a file is damaged or gone.
    """
    first, last = (int(ids[0]), int(ids[-1])) if len(ids) else (0, -1)
    for file in manifest.files[collection]:
        if file.first_id > last or file.last_id < first:
            continue
        with naming(file.path):
            footer = footer_of(file.path)
            with pq.ParquetFile(file.path, metadata=footer, page_checksum_verification=True) as parquet:
                for groups in _row_groups(file.path, ids):
                    table = parquet.read_row_groups(groups, columns=list(columns))
                    yield _between(table, first, last, manifest)


def _row_groups(file: Path, ids: Array) -> Iterator[list[int]]:
    """The row groups that may have one of these ids, in runs of at least _READ_ROWS: reading a group alone takes 1 ms."""
    firsts, lasts = id_ranges(file)
    groups: list[int] = []
    rows = 0
    for number in np.flatnonzero(ids.searchsorted(firsts) < ids.searchsorted(lasts, side="right")).tolist():
        groups.append(number)
        rows += footer_of(file).row_group(number).num_rows
        if rows >= _READ_ROWS:
            yield groups
            groups, rows = [], 0
    if groups:
        yield groups


def _between(table: pa.Table, first: int, last: int, manifest: Manifest) -> pa.Table:
    ids = values(table["id"])
    counts = (ids >= first) & (ids <= last) & counting(manifest, table)
    return table if counts.all() else table.filter(numbers(counts))


class _Sums:
    """Adds up the sightings of the texts with these ids, which rise. Row ``i`` of each column is the text ``ids[i]``."""

    def __init__(self, ids: Array) -> None:
        self._ids, rows = ids, len(ids)
        self._is_dense = rows > 0 and int(ids[-1]) - int(ids[0]) == rows - 1
        self._witness = np.full(rows, Witness.LISTED, np.uint8)  # that of a text without sightings
        # Whether a search found it, and whether another source names it.
        self._is_solved, self._is_named = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_)
        self._kinds = np.zeros(rows, np.uint8)
        self._verified = np.zeros(rows, np.bool_)
        self._own = np.zeros(rows, np.int32)
        self._sources = [_NO_NUMBERS]
        # Rows and keys of contracts that sources name, and whether the contract's bytecode has the text.
        self._contracts = [(_NO_NUMBERS, _NO_NUMBERS, np.empty(0, np.bool_))]

    def add(self, sightings: pa.Table) -> None:
        """Add sightings that count, with the columns _SUMMED; those of other texts are left out."""
        rows, mine = self.rows_of(values(sightings["id"]))
        source, witness, kind, own, verified = (
            values(sightings[name])[mine] for name in ("source", "witness", "kind", "contracts", "verified")
        )
        self._sources.append(rows << _SHIFT | source)
        is_solved = witness == Witness.SOLVED
        self._is_solved[rows[is_solved]], self._is_named[rows[~is_solved]] = True, True
        if (witness > Witness.LISTED).any():
            np.maximum.at(self._witness, rows, witness.astype(np.uint8))
        if kind.any():
            np.bitwise_or.at(self._kinds, rows[kind > 0], np.left_shift(1, kind[kind > 0]).astype(np.uint8))
        if own.any():
            np.maximum.at(self._own, rows, own)
        self._verified[rows[verified]] = True
        contracts = sightings["contract_key"]
        if contracts.null_count < len(contracts):
            named = values(contracts.is_valid())[mine]
            keys = values(contracts)[mine][named]
            self._contracts.append((rows[named], keys, witness[named] == Witness.COMPILED))

    def rows_of(self, ids: Array) -> tuple[Array, Any]:
        """The rows of those of these texts that are added up, and which of the ids are theirs."""
        if self._is_dense:
            rows = ids - self._ids[0]
            mine = (rows >= 0) & (rows < len(self._ids))
            return (rows, slice(None)) if mine.all() else (rows[mine], mine)
        rows = np.minimum(self._ids.searchsorted(ids), len(self._ids) - 1)
        mine = self._ids[rows] == ids
        return rows[mine], mine

    def counts(self) -> Array:
        """The sums, of type COUNTS.

        Contracts that several sources name are one. A source that counts its contracts without naming them counts
        the same contracts of the same chains as others do, so the greatest of these numbers counts.
        """
        rows, keys, is_compiled = (np.concatenate(parts) for parts in zip(*self._contracts, strict=True))
        pairs = rows << _SHIFT | np.unique(keys, return_inverse=True)[1]
        counts = np.empty(len(self._ids), COUNTS)
        counts["sources"] = self._count(np.concatenate(self._sources))
        counts["contracts"] = np.maximum(self._count(pairs), self._own)
        counts["compiled"] = self._count(pairs[is_compiled])
        self._witness[self._is_solved & ~self._is_named] = Witness.SOLVED
        counts["witness"], counts["kinds"], counts["verified"] = self._witness, self._kinds, self._verified
        return counts

    def _count(self, pairs: Array) -> Array:
        """By row, the number of distinct pairs of the row and something else."""
        pairs = np.sort(pairs)
        return np.bincount(pairs[differs(pairs)] >> _SHIFT, minlength=len(self._ids))
