"""Sightings of many texts, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures import arrow
from sigdir.signatures.evidence import Sighting


class SightingColumns(Sequence[Sighting]):
    """Sightings that differ in their declarations, as columns: number ``n`` is ``bases[base_of[n]]`` with the declaration
    ``declarations[n]``. A list of declarations has millions, and a tuple of each takes ten times as long.
    """

    def __init__(self, bases: tuple[Sighting, ...], base_of: npt.NDArray[Any], declarations: pa.StringArray) -> None:
        self.bases = bases
        """Without declarations."""
        self.base_of = base_of.astype(np.int32)
        self.declarations = declarations
        """Null for none."""

    @classmethod
    def of(cls, values: Sequence[Sighting]) -> SightingColumns:
        bases: dict[Sighting, int] = {}
        base_of = [bases.setdefault(value._replace(declaration=""), len(bases)) for value in values]
        declarations = arrow.strings([value.declaration or None for value in values])
        return cls(tuple(bases), np.array(base_of, np.int32), declarations)

    @classmethod
    def joined(cls, parts: Sequence[SightingColumns]) -> SightingColumns:
        """The sightings of all parts, in their order."""
        first = np.cumsum([0, *(len(part.bases) for part in parts)]).tolist()
        return cls(
            tuple(base for part in parts for base in part.bases),
            np.concatenate([part.base_of + start for part, start in zip(parts, first, strict=False)]),
            pa.concat_arrays([part.declarations for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.base_of)

    @property
    def has_declaration(self) -> npt.NDArray[np.bool_]:
        return arrow.values(self.declarations.is_valid())

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self[number] for number in range(*at.indices(len(self))))
        return self.bases[self.base_of[at]]._replace(declaration=self.declarations[int(at)].as_py() or "")

    def take(self, numbers: npt.NDArray[Any]) -> SightingColumns:
        return SightingColumns(self.bases, self.base_of[numbers], self.declarations.take(arrow.numbers(numbers)))


@dataclass(frozen=True, slots=True)
class Sightings:
    """The sightings of a batch: row ``i`` has ``values[of_row[i]]``."""

    values: SightingColumns
    of_row: npt.NDArray[Any]  # int32

    @classmethod
    def alike(cls, value: Sighting, rows: int) -> Sightings:
        """The same one of each row."""
        return cls(SightingColumns.of((value,)), np.zeros(rows, np.int32))

    def filter(self, keep: npt.NDArray[Any]) -> Sightings:
        """Those of the rows whose flag is set, with the values that they have."""
        used, of_row = np.unique(self.of_row[keep], return_inverse=True)
        return Sightings(self.values.take(used), of_row.astype(np.int32))
