"""How often a text is declared in each way: the one place that counts declarations.

A declaration counts once for each contract that has it, and for each source that names no contract. The commonest comes
first. Of those that are as common, those that nobody POSTed come first, so that a POST of a known text does not replace
the names that are shown. Then the oldest source's comes first, and of one source's the one that it has first. The view
``declarations`` of SQL counts the same way; tests compare the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array, numbers, values
from sigdir.warehouse.log.manifest import POST

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
    counts = np.diff(np.append(starts, len(order)))
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
    several = np.diff(np.append(starts, len(ids))) > 1
    best = rows[starts]  # for most texts it is the only one
    if several.any():
        chosen = np.sort(rows[np.repeat(several, np.diff(np.append(starts, len(ids))))])
        found = tally(sightings.select(DECLARING).take(numbers(chosen)))
        best[several] = chosen[found.rows[differs(found.ids)]]
    return ids[starts], best


def codes(column: pa.ChunkedArray) -> Array:
    """A column's values as numbers, int64, that are equal where the values are; -1 for a null."""
    if column.null_count == len(column):
        return np.full(len(column), -1)
    encoded = (
        column.combine_chunks() if pa.types.is_dictionary(column.type) else column.combine_chunks().dictionary_encode()
    )
    return np.where(values(encoded.is_valid()), values(encoded.indices), -1).astype(np.int64)


def differs(*columns: Array) -> Array:
    """Whether a row differs from the one in front of it; the first one does."""
    found = np.ones(len(columns[0]), np.bool_)
    if len(found):
        found[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return found
