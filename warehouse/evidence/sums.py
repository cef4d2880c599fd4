"""Sums over the sightings of texts, as columns. The rank columns of servers and the views of SQL use them.

Theory. Distinct sources and contracts are counted by sorting numbers: a row and a source in one int64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Witness
from sigdir.warehouse.evidence.files import footer_of
from sigdir.warehouse.evidence.manifest import Manifest
from sigdir.warehouse.parquet import naming

Array = npt.NDArray[Any]

SUMMED = ("id", "source", "import_id", "kind", "witness", "contracts", "verified", "contract_key")
"""The columns of sightings that ``Sums`` adds up."""

DECLARING = ("id", "source", "import_id", "contract_key", "declaration")
"""The columns that ``commonest`` needs, and those that say whether a sighting counts."""

_SHIFT = 32
_NO_NUMBERS = np.empty(0, np.int64)
_NEVER = np.iinfo(np.int64).max


def sightings_between(
    manifest: Manifest, collection: Collection, first: int, last: int, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """The sightings that count of the texts with these ids, both inclusive: a table for each row group that may have one.

    ``columns`` begin with id, source and import_id. Raises UnreadableWarehouse where a file is damaged or gone.
    """
    # By the number of a source, the first import of which its sightings count.
    since = np.full(max(manifest.sources, default=0) + 2, _NEVER)
    for source in manifest.sources.values():
        since[source.number] = source.import_id
    for file in manifest.files[collection]:
        if file.first_id > last or file.last_id < first:
            continue
        with naming(file.path):
            footer = footer_of(file.path)
            with pq.ParquetFile(file.path, metadata=footer, page_checksum_verification=True) as parquet:
                for number in range(footer.num_row_groups):
                    ids = footer.row_group(number).column(0).statistics
                    if ids is None or (ids.min <= last and ids.max >= first):
                        yield _counting(parquet.read_row_group(number, columns=list(columns)), first, last, since)


def _counting(table: pa.Table, first: int, last: int, since: Array) -> pa.Table:
    ids, source, import_id = (table[number].to_numpy() for number in range(3))
    counts = (ids >= first) & (ids <= last) & (import_id >= since[np.minimum(source, len(since) - 1)])
    return table if counts.all() else table.filter(pa.array(counts))


class Sums:
    """Adds up the sightings of the texts with these ids, which rise. Row ``i`` of each column is the text ``ids[i]``."""

    def __init__(self, ids: Array) -> None:
        self._ids, rows = ids, len(ids)
        self.witness = np.full(rows, Witness.LISTED, np.uint8)
        """The best one; LISTED for a text without sightings, which its import lists."""
        self.kinds = np.zeros(rows, np.uint8)
        """Bit ``kind`` is set for each known kind."""
        self.verified = np.zeros(rows, np.bool_)
        self._own = np.zeros(rows, np.int32)
        self._sources = [_NO_NUMBERS]
        # Rows and keys of contracts that sources name, and whether the contract's bytecode has the text.
        self._contracts = [(_NO_NUMBERS, _NO_NUMBERS, np.empty(0, np.bool_))]

    def add(self, sightings: pa.Table) -> None:
        """Add sightings that count, with the columns SUMMED; those of other texts are left out."""
        if not len(self._ids):
            return
        column = {name: sightings[name].to_numpy() for name in SUMMED[:-1]}
        rows = np.minimum(self._ids.searchsorted(column["id"]), len(self._ids) - 1)
        mine = self._ids[rows] == column["id"]
        rows = rows[mine]
        source, witness, kind, own, verified = (
            column[name][mine] for name in ("source", "witness", "kind", "contracts", "verified")
        )
        self._sources.append(rows << _SHIFT | source)
        if (witness > Witness.LISTED).any():
            np.maximum.at(self.witness, rows, witness.astype(np.uint8))
        if kind.any():
            np.bitwise_or.at(self.kinds, rows[kind > 0], np.left_shift(1, kind[kind > 0]).astype(np.uint8))
        if own.any():
            np.maximum.at(self._own, rows, own)
        self.verified[rows[verified]] = True
        contracts = sightings[SUMMED[-1]]
        if contracts.null_count < len(contracts):
            named = contracts.is_valid().to_numpy()[mine]
            keys = contracts.fill_null(0).to_numpy()[mine][named]
            self._contracts.append((rows[named], keys, witness[named] == Witness.COMPILED))

    def sources(self) -> Array:
        """How many sources name each text, at least one: int64."""
        return np.maximum(self._count(np.concatenate(self._sources)), 1)

    def contracts(self) -> tuple[Array, Array]:
        """How many contracts have each text, and how many of those that are named by their bytecode: int64.

        Contracts that several sources name are one. A source that counts its contracts without naming them counts
        the same contracts of the same chains as others do, so the greatest of these numbers counts.
        """
        rows, keys, is_compiled = (np.concatenate(parts) for parts in zip(*self._contracts, strict=True))
        pairs = rows << _SHIFT | np.unique(keys, return_inverse=True)[1]
        return np.maximum(self._count(pairs), self._own), self._count(pairs[is_compiled])

    def _count(self, pairs: Array) -> Array:
        """By row, the number of distinct pairs of the row and something else."""
        pairs = np.sort(pairs)
        return np.bincount(pairs[_differs(pairs)] >> _SHIFT, minlength=len(self._ids))


def commonest_between(manifest: Manifest, collection: Collection, first: int, last: int) -> dict[int, str]:
    """The commonest declaration of each text with one of these ids, both inclusive, that has one.

    For a few ids that lie apart ``lookup.commonest_declarations`` reads less. Raises UnreadableWarehouse.
    """
    tables = list(sightings_between(manifest, collection, first, last, DECLARING))
    if not tables:
        return {}
    ids, declarations = commonest(pa.concat_tables(tables))
    return dict(zip(ids.tolist(), declarations.to_pylist(), strict=True))


def commonest(sightings: pa.Table) -> tuple[Array, pa.StringArray]:
    """The ids of the texts that have a declaration, rising, and the commonest declaration of each.

    ``sightings`` count, and have the columns DECLARING. A declaration counts once for each contract
    that has it, and for each source that names no contract. The source that came first wins a tie.
    """
    declared = sightings.filter(sightings["declaration"].is_valid()).combine_chunks()
    ids = declared["id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(_differs(ids[order]))
    counts = np.diff(np.append(starts, len(ids)))
    best = order[starts]  # a row of each text; for most texts it is the only one
    several = order[np.repeat(counts > 1, counts)]
    if len(several):
        best[counts > 1] = several[_commonest_rows(declared.take(several))]
    return ids[best], declared["declaration"].take(pa.array(best)).combine_chunks()


def _commonest_rows(sightings: pa.Table) -> Array:
    """For each text, in the order of the ids, the number of a row with its commonest declaration."""
    import pyarrow.compute as pc  # takes 70 ms, and a server adds up without declarations

    ids, has_contract = sightings["id"].to_numpy(), sightings["contract_key"].is_valid().to_numpy()
    by = np.where(has_contract, sightings["contract_key"].fill_null(0).to_numpy(), sightings["source"].to_numpy())
    encoded = sightings["declaration"].combine_chunks().dictionary_encode()
    codes, alphabetical = encoded.indices.to_numpy(), pc.rank(encoded.dictionary, "ascending").to_numpy()
    rows = np.lexsort((has_contract, by, codes, ids))
    rows = rows[_differs(*(column[rows] for column in (ids, codes, by, has_contract)))]
    starts = np.flatnonzero(_differs(ids[rows], codes[rows]))
    counts = np.diff(np.append(starts, len(rows)))
    rows = rows[starts]
    rows = rows[np.lexsort((alphabetical[codes[rows]], -counts, ids[rows]))]
    found: Array = rows[_differs(ids[rows])]
    return found


def _differs(*columns: Array) -> Array:
    """Whether a row differs from the one in front of it; the first one does."""
    differs = np.ones(len(columns[0]), np.bool_)
    if len(differs):
        differs[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return differs
