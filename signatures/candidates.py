"""Candidates: the texts that a reader finds, as columns in source order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.collections import UNKNOWN
from sigdir.signatures.evidence import LISTED, Sighting
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK
from sigdir.signatures.sightings import Sightings

BATCH_ROWS = 65_536
_BATCH_BYTES = 1 << 25

Array = npt.NDArray[Any]


class Entry(NamedTuple):
    """One candidate as row-wise readers make it."""

    text: bytes
    line: int
    declared_kind: int = UNKNOWN
    """What the input states the text to be: FUNCTIONS, EVENTS or UNKNOWN."""
    declared_hash: bytes = b""
    """The hash that the input gives for the text: 4 or 32 bytes, or empty."""
    reject_reason: int = OK
    """A reason to reject the entry without reading its text; OK for none."""
    sighting: Sighting = LISTED
    """What the input says about the text."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """A batch of candidates; row ``i`` has the text ``data[starts[i]:ends[i]]``.

    A column that may be None is None if no row has a value.
    """

    data: Array  # uint8
    starts: Array  # int32
    ends: Array  # int32
    lines: Array  # int64: the line or entry number, from 1
    file: int  # the number of the source
    declared_kinds: Array | None = None  # uint8
    declared_hashes: Array | None = None  # uint8, rows x 32, filled from the left
    declared_hash_bytes: Array | None = None  # uint8: 0, 4 or 32
    reject_reasons: Array | None = None  # uint8
    sightings: Sightings | None = None  # None if each row is LISTED

    def __len__(self) -> int:
        return len(self.starts)


ReadTask = Candidates | Callable[[], Iterable[Candidates]]
"""What a reader yields: a batch, or a function that parses a block, which a worker thread calls."""


def pack(entries: Iterable[Entry], file: int) -> Iterator[Candidates]:
    """Gather entries into batches."""
    held: list[Entry] = []
    size = 0
    for entry in entries:
        if len(entry.text) > MAX_TEXT_BYTES:  # the grammar sees that it is too long
            entry = entry._replace(text=entry.text[: MAX_TEXT_BYTES + 1])
        held.append(entry)
        size += len(entry.text)
        if len(held) == BATCH_ROWS or size >= _BATCH_BYTES:
            yield _packed(held, file)
            held, size = [], 0
    if held:
        yield _packed(held, file)


def _packed(entries: list[Entry], file: int) -> Candidates:
    texts, lines, kinds, declared, reasons, sightings = zip(*entries, strict=True)
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    starts = np.concatenate([[0], ends[:-1]])
    widths = np.fromiter(map(len, declared), np.uint8, len(declared))
    hashes = None
    if widths.any():
        joined = b"".join(value.ljust(32, b"\0") for value in declared)
        hashes = np.frombuffer(joined, np.uint8).reshape(-1, 32)
    return Candidates(
        data=np.frombuffer(b"".join(texts), np.uint8),
        starts=starts.astype(np.int32),
        ends=ends.astype(np.int32),
        lines=np.array(lines, np.int64),
        file=file,
        declared_kinds=np.array(kinds, np.uint8),
        declared_hashes=hashes,
        declared_hash_bytes=widths if hashes is not None else None,
        reject_reasons=np.array(reasons, np.uint8),
        sightings=None if sightings.count(LISTED) == len(sightings) else Sightings.of(sightings),
    )
