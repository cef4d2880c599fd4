"""What the staging file holds and gives out: rows, sightings, ranges of ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.plural import counted


@dataclass(frozen=True, slots=True)
class StagedRow:
    """A row that was POSTed and not folded; ``created_at`` in microseconds since 1970, UTC."""

    id: int
    created_at: int
    text: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class PostedSighting:
    """What a POST says of a text, which has this id; as in ``signatures/evidence.py``."""

    collection: Collection
    id: int
    kind: int = 0
    declaration: str = ""


@dataclass(frozen=True, slots=True)
class NewText:
    """A canonical text to stage; ``digest`` is all of its keccak-256. ``kind`` and ``declaration`` are as POSTed."""

    collection: Collection
    text: str
    digest: bytes
    kind: int = 0
    declaration: str = ""

    @property
    def is_declared(self) -> bool:
        """Whether the POST says more than the text."""
        return bool(self.kind or self.declaration)

    @property
    def hash(self) -> bytes:
        return self.digest[: self.collection.hash_bytes]


@dataclass(frozen=True, slots=True)
class Range:
    """Ids ``first_id`` up to and without ``first_id + rows``, and as many microseconds."""

    first_id: int
    first_created_at: int
    rows: int


@dataclass(frozen=True, slots=True)
class Loss:
    """Ids, inclusive, whose rows the staging file has lost. Not every id need have had a row."""

    collection: Collection
    first_id: int
    last_id: int

    def __str__(self) -> str:
        rows = counted(self.last_id - self.first_id + 1, "row")
        return (
            f"the rows of {self.collection} with the ids {self.first_id} to {self.last_id} are lost, up to {rows},"
            " because the file or its write-ahead log is damaged"
        )


@dataclass(frozen=True, slots=True)
class HighWaterMark:
    """The highest id and time of a collection. A sequence never falls below the snapshot's.

    So no id is given out twice where the staging file was lost or replaced and the table was not.
    """

    id: int = 0
    created_at: int = 0


@dataclass(frozen=True, slots=True)
class NotedEntry:
    """The newest version whose publish was noted, -1 for none, and the sha256 of its log entry in hex."""

    version: int = -1
    sha256: str = ""


NO_HIGH_WATER: Mapping[Collection, HighWaterMark] = MappingProxyType({c: HighWaterMark() for c in COLLECTIONS})
