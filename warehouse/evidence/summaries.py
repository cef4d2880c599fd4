"""What all sources say together about texts, as columns: a summary a row. Servers map them, SQL reads them by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import numbers
from sigdir.signatures.evidence import Kind, Witness

Array = npt.NDArray[Any]


class SightingCounts(NamedTuple):
    """A row of ``Summaries.counts``; the names are those of ``rank.Summary``. By default one list names the text."""

    sources: int = 1
    contracts: int = 0
    compiled: int = 0
    witness: int = Witness.LISTED
    kinds: int = 0
    """Bit ``kind`` is set for each known kind."""
    verified: bool = False


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
