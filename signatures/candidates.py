"""Candidates: the texts that a reader finds, as columns in source order; their sightings; their canonical texts and
hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures import arrow
from sigdir.signatures.arrow import Array, validity
from sigdir.signatures.collections import UNKNOWN
from sigdir.signatures.evidence import LISTED, Kind, Sighting
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK

BATCH_ROWS = 65_536
_BATCH_BYTES = 1 << 25


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


HEX_PAIRS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two digits of each byte."""


def as_readonly(array: Array) -> Array:
    """A read-only view of an array.

    numba compiles a kernel once for writable arrays and once for read-only ones, the grammar 20 s each time. What
    is mapped from a file or comes from Arrow is read-only, so a kernel is given all its inputs as such.
    """
    view = array.view()
    view.flags.writeable = False
    return view


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Offsets and bytes of a string or binary column that has rows, and no nulls.

    Row ``i`` is ``data[offsets[i]:offsets[i + 1]]``.
    """
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    # A column of nothing but empty texts may have no data buffer at all.
    return bounds, np.frombuffer(data or b"", np.uint8)


@dataclass(frozen=True, slots=True)
class Rows:
    """Accepted rows of one collection: canonical texts, and what their source says about them.

    ``sightings`` is None if the source says nothing but the text about any row.
    """

    text: pa.StringArray
    sightings: Sightings | None = None


def binary_column(rows: Array, is_valid: npt.NDArray[np.bool_] | None = None) -> pa.BinaryArray:
    """Values of one size, uint8 of (rows, size), as a column; those that are not valid are null."""
    count, size = rows.shape
    bitmap = None if is_valid is None else validity(is_valid)
    fixed = pa.Array.from_buffers(pa.binary(size), count, [bitmap, pa.py_buffer(np.ascontiguousarray(rows))])
    return fixed.cast(pa.binary())


def fixed_bytes(column: pa.Array, size: int) -> Array:
    """The values of a column of bytes without nulls, all of one size."""
    if not len(column):
        return np.empty(0, f"S{size}")
    offsets, data = column.buffers()[1:]
    start = int(np.frombuffer(offsets, np.int32)[column.offset])
    return np.frombuffer(data, np.uint8)[start : start + size * len(column)].view(f"S{size}")
