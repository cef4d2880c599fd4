"""Evidence: what a source says about a text. ``Sighting`` is one source's word for one text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy.typing as npt


class Kind(IntEnum):
    """What a text was declared as. The numbers are those of the sightings at rest."""

    UNKNOWN = 0
    FUNCTION = 1
    EVENT = 2
    ERROR = 3


class Witness(IntEnum):
    """How well a source knows that a text is in use; a higher number is better. The numbers are those at rest."""

    LISTED = 1
    """A list names it."""
    DECLARED = 2
    """An ABI or a source declares it."""
    COMPILED = 3
    """An ABI declares it, and its runtime bytecode holds the selector or the topic: checked by us."""


class Contract(NamedTuple):
    """A contract that declares a text. Two with the same ``key`` count as one."""

    name: str
    key: bytes
    """8 bytes: of the runtime code's hash without its metadata, else of the path and the name."""


class Sighting(NamedTuple):
    """What one source says about one text; the import and the file are known to whoever reads the file."""

    kind: Kind = Kind.UNKNOWN
    witness: Witness = Witness.LISTED
    declaration: str = ""
    """As declared, canonically spelled: ``function transfer(address to, uint256 amount) returns (bool)``; "" for none."""
    contract: Contract | None = None
    contracts: int = 0
    """How many contracts a source counts that does not name them (Sourcify's compilations)."""
    verified: bool = False
    """Whether a source that compiles contracts itself vouches for it (Sourcify)."""


LISTED = Sighting()
"""A list's word: the text alone."""


@dataclass(frozen=True, slots=True)
class Sightings:
    """The sightings of a batch: row ``i`` has ``values[of_row[i]]``."""

    values: tuple[Sighting, ...]
    of_row: npt.NDArray[Any]  # int32

    def filter(self, keep: npt.NDArray[Any]) -> Sightings:
        """Those of the rows whose flag is set."""
        return Sightings(self.values, self.of_row[keep])
