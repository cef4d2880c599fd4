"""Sightings of many texts, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures import arrow
from sigdir.signatures.evidence import Kind, Sighting


class Sightings(Sequence[Sighting]):
    """The sightings of a batch: row ``i`` has ``bases[base_of[i]]`` with the kind ``kinds[i]`` and the declaration
    ``declarations[i]``. A list of declarations has millions of rows, and a tuple of each takes ten times as long.
    """

    def __init__(
        self, bases: tuple[Sighting, ...], base_of: npt.NDArray[np.int32], kinds: npt.NDArray[np.uint8],
        declarations: pa.StringArray,
    ) -> None:  # fmt: skip
        self.bases = bases
        """Different ones, without kinds and declarations."""
        self.base_of = base_of
        self.kinds = kinds
        self.declarations = declarations
        """Null for none."""

    @classmethod
    def of(cls, sightings: Sequence[Sighting]) -> Self:
        """From one of each row."""
        distinct: dict[Sighting, int] = {}
        of_row = np.fromiter((distinct.setdefault(one, len(distinct)) for one in sightings), np.int32, len(sightings))
        bases: dict[Sighting, int] = {}
        plain = [one._replace(kind=Kind.UNKNOWN, declaration="") for one in distinct]
        base_of = np.array([bases.setdefault(one, len(bases)) for one in plain], np.int32)
        kinds = np.array([one.kind for one in distinct], np.uint8)
        declarations = arrow.strings([one.declaration or None for one in distinct])
        return cls(tuple(bases), base_of[of_row], kinds[of_row], declarations.take(arrow.numbers(of_row)))

    @classmethod
    def alike(cls, one: Sighting, rows: int) -> Self:
        """The same one of each row."""
        first, same = cls.of([one]), np.zeros(rows, np.int32)
        return cls(first.bases, same, first.kinds[same], first.declarations.take(arrow.numbers(same)))

    def __len__(self) -> int:
        return len(self.base_of)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return tuple(self[row] for row in range(*at.indices(len(self))))
        base = self.bases[self.base_of[at]]
        return base._replace(kind=Kind(self.kinds[at]), declaration=self.declarations[int(at)].as_py() or "")

    def filter(self, keep: npt.NDArray[np.bool_]) -> Self:
        """Those of the rows whose flag is set."""
        declarations = self.declarations.filter(arrow.numbers(keep))
        return type(self)(self.bases, self.base_of[keep], self.kinds[keep], declarations)
