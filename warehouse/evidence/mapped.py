"""A file of columns that readers map: contracts and usage beside the sightings, indexes and summaries in the cache.

::

    8 bytes                     how long the next line is
    {"name": [dtype, rows, width], ...}     the columns in their order, padded to 8 bytes
    column after column         each padded to 8 bytes; a row of a column is one value of its dtype, or ``width`` of them

A file never changes once it is named. Whoever opens one compares its digest or checksum first: a flipped bit in a
column that ends ranges would point outside of another.

Files of sightings: their columns and encodings.

A list's sightings differ in their ids alone. Every other column is one value, which Parquet writes once a row group,
and the ids of a sorted file are small differences: 0.1 bytes a sighting where a list brought all of its texts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures import arrow
from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import Sightings, as_readonly
from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import LISTED
from sigdir.warehouse.log.manifest import MAX_LISTED, POST, EvidenceFile, Manifest, MappedFile
from sigdir.warehouse.table.files import make_folder, sync
from sigdir.warehouse.table.parquet import ROW_GROUP_ROWS, SIGHTING_SCHEMA, naming, require_whole, sha256_of

Columns = Mapping[str, Array]

Shapes = Mapping[str, tuple[str, int, int | None]]
"""For each column its dtype, its rows, and its width: how many values a row has, None for one."""

_ALIGNMENT = 8
_SMALL_BYTES = 1 << 14
PIECE_ROWS = 1 << 16


def create_columns(path: Path, shapes: Shapes) -> Columns:
    """Make a file of these columns, to be filled; raises OSError where the disk has no room."""
    head = json.dumps(shapes).encode()
    head += b" " * (-len(head) % _ALIGNMENT)
    places, size = _places(shapes, _ALIGNMENT + len(head))
    with path.open("wb") as file:
        file.write(len(head).to_bytes(_ALIGNMENT, "little") + head)
        file.flush()
        os.posix_fallocate(file.fileno(), 0, size)  # on a full disk this is an error, writing to a hole is a SIGBUS
    return _columns(map_bytes(path, "r+"), shapes, places)


def write_columns(path: Path, columns: Columns) -> None:
    """Make a file of these columns, whose rows have one value each."""
    made = create_columns(path, {name: (column.dtype.str, len(column), None) for name, column in columns.items()})
    for name, column in columns.items():
        made[name][:] = column


def open_columns(file: MappedFile) -> Columns:
    """The columns of a file that a manifest names, mapped; raises UnreadableWarehouse where it is not as it was written."""
    return _opened(file.path, file.sha256)


@lru_cache(maxsize=256)
def _opened(path: Path, sha256: str) -> Columns:
    require_whole(path, sha256)
    return mapped_columns(path)


def mapped_columns(path: Path) -> Columns:
    """The columns of a file that is known to be whole; raises OSError where it is missing."""
    raw = map_bytes(path)
    length = int.from_bytes(raw[:_ALIGNMENT].tobytes(), "little")
    shapes = json.loads(raw[_ALIGNMENT : _ALIGNMENT + length].tobytes())
    return _columns(raw, shapes, _places(shapes, _ALIGNMENT + length)[0])


def map_bytes(path: Path, mode: Literal["r", "r+"] = "r") -> Array:
    """The bytes of a file as a plain array: numpy's memmap class costs a microsecond a slice.

    A mapping holds a descriptor for as long as it lives. A warehouse of many small versions has ten files for each of its
    data files, so what is small is read.
    """
    if mode == "r" and path.stat().st_size <= _SMALL_BYTES:
        return as_readonly(np.fromfile(path, np.uint8))
    return np.asarray(np.memmap(path, np.uint8, mode))


def _places(shapes: Shapes, start: int) -> tuple[list[int], int]:
    """Where each column begins, and the size of the file."""
    places = []
    for dtype, rows, width in shapes.values():
        places.append(start)
        start += rows * (1 if width is None else width) * np.dtype(dtype).itemsize
        start += -start % _ALIGNMENT
    return places, start


def _columns(raw: Array, shapes: Shapes, places: list[int]) -> Columns:
    found: dict[str, Array] = {}
    for (name, (dtype, rows, width)), start in zip(shapes.items(), places, strict=True):
        size = rows * (1 if width is None else width) * np.dtype(dtype).itemsize
        column = raw[start : start + size].view(dtype)
        found[name] = column if width is None else column.reshape(rows, width)
    return found


def numbers_of(packed: Array) -> npt.NDArray[np.int64]:
    """Numbers that are written in as few bytes as the largest needs: uint8 of (rows, bytes); all 0 in no byte."""
    rows, width = packed.shape
    wide = np.zeros((rows, 8), np.uint8)
    wide[:, :width] = packed
    return wide.view("<i8")[:, 0]


def packed_numbers(numbers: Array, width: int) -> Array:
    """The reverse, in so many bytes."""
    return np.ascontiguousarray(numbers, "<i8").view(np.uint8).reshape(-1, 8)[:, :width]


def bytes_for(largest: int) -> int:
    """The bytes that numbers up to this one need."""
    return (largest.bit_length() + 7) // 8


def rows_between(column: Array, wanted: bytes, first: int = 0, last: int | None = None) -> tuple[int, int]:
    """The rows of a sorted column of bytes, from ``first`` up to ``last``, that have this value, as a half-open range."""
    part, value = column[first:last], np.array([wanted], column.dtype)
    return first + int(part.searchsorted(value)[0]), first + int(part.searchsorted(value, side="right")[0])


def raw_bytes(column: Array) -> npt.NDArray[np.uint8]:
    """The values of a column of bytes as uint8 of (rows, size)."""
    return np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize)


def pieces_of(column: Array) -> Iterator[slice]:
    """The rows of a column, PIECE_ROWS at a time."""
    for first in range(0, len(column), PIECE_ROWS):
        yield slice(first, min(first + PIECE_ROWS, len(column)))


DECLARED_GROUP_ROWS = 8_192
"""Sightings of a row group with declarations. One text's evidence is read by whole groups: 30 ms with 100,000 rows, 3 so."""

FILE_ROWS = 5_000_000
"""At most so many sightings are in a file."""

BASE_NAMES = ("witness", "contracts", "verified", "contract", "contract_key", "display")
"""The columns that come from what many rows' sightings have in common."""

BASES_SCHEMA = pa.schema(
    [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in map(SIGHTING_SCHEMA.field, BASE_NAMES)
    ]
)
"""Here strings are plain."""

SAID_SCHEMA = pa.schema([("base", pa.int32()), *map(SIGHTING_SCHEMA.field, ("kind", "declaration"))])
"""What a row's sighting has besides: the number of its base, its kind and its declaration."""

_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": [
        name for name in SIGHTING_SCHEMA.names if name not in ("id", "verified", "display", "declaration")
    ],
    "column_encoding": {"id": "DELTA_BINARY_PACKED"},
    "write_statistics": ["id", "source", "import_id", "kind", "witness", "display"],
    "write_page_index": True,
    "write_page_checksum": True,
    "version": "2.6",
}


def contract_key(key: bytes) -> int:
    """A contract's key as the column has it: its eight bytes, the highest first, as a signed number."""
    return int.from_bytes(key, "big", signed=True)


class BatchSightings(NamedTuple):
    """``Sightings`` as Arrow has them, of BASES_SCHEMA and SAID_SCHEMA."""

    bases: pa.RecordBatch
    rows: pa.RecordBatch

    @classmethod
    def of(cls, sightings: Sightings) -> Self:
        bases = sightings.bases
        has_contract = np.array([base.contract is not None for base in bases], np.bool_)
        keys = np.array([contract_key(base.contract.key) if base.contract else 0 for base in bases], np.int64)
        counted = (("witness", np.int8), ("contracts", np.int32), ("verified", np.bool_))
        columns = [
            *(arrow.numbers(np.array([getattr(base, name) for base in bases], kind)) for name, kind in counted),
            arrow.strings([base.contract.name if base.contract else None for base in bases]),
            arrow.numbers(keys, has_contract),
            arrow.strings([base.display or None for base in bases]),
        ]
        rows = [arrow.numbers(sightings.base_of), arrow.numbers(sightings.kinds.view(np.int8)), sightings.declarations]
        return cls(
            pa.RecordBatch.from_arrays(columns, schema=BASES_SCHEMA),
            pa.RecordBatch.from_arrays(rows, schema=SAID_SCHEMA),
        )

    def filter(self, keep: npt.NDArray[np.bool_]) -> Self:
        """Those of the rows whose flag is set."""
        return self._replace(rows=self.rows.filter(arrow.numbers(keep)))


def sightings_table(
    ids: npt.NDArray[np.int64], source: int, import_id: int, file: str | None, said: BatchSightings | None = None
) -> pa.Table:
    """The sightings of one input: row ``i`` is of the text ``ids[i]``; each is LISTED where nothing is ``said``."""
    rows = len(ids)
    if said is None:
        one = sightings_table(np.zeros(1, np.int64), source, import_id, file, BatchSightings.of(Sightings.of([LISTED])))
        # To repeat a value takes half the time of taking its row again and again.
        alike = {name: pa.repeat(one[name][0], rows) for name in one.column_names}
        return pa.table(alike | {"id": arrow.numbers(ids)}, schema=SIGHTING_SCHEMA)
    columns = {
        "id": arrow.numbers(ids),
        "source": arrow.numbers(np.full(rows, source, np.int32)),
        "import_id": arrow.numbers(np.full(rows, import_id, np.int64)),
        "kind": said.rows["kind"],
        "file": _repeated(file, rows),
        "declaration": said.rows["declaration"],
        **{name: _encoded(name, said.bases[name]).take(said.rows["base"]) for name in BASE_NAMES},
    }
    return pa.table([columns[name] for name in SIGHTING_SCHEMA.names], schema=SIGHTING_SCHEMA)


def _encoded(name: str, column: pa.Array) -> pa.Array:
    return column.dictionary_encode() if pa.types.is_dictionary(SIGHTING_SCHEMA.field(name).type) else column


def _repeated(value: str | None, rows: int) -> pa.DictionaryArray:
    """A dictionary column of one value."""
    if value is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), arrow.strings([]))
    return pa.DictionaryArray.from_arrays(arrow.numbers(np.zeros(rows, np.int32)), arrow.strings([value]))


def sorted_by_id(tables: Iterable[pa.Table]) -> pa.Table:
    """One table of several, in the order of its ids; sightings of one text keep their order."""
    parts = list(tables)
    table = parts[0] if len(parts) == 1 else pa.concat_tables([pa.Table.from_batches([], SIGHTING_SCHEMA), *parts])
    table = table.unify_dictionaries()
    ids = arrow.values(table["id"])
    if len(ids) < 2 or (ids[1:] >= ids[:-1]).all():
        return table
    return table.combine_chunks().take(arrow.numbers(np.argsort(ids, kind="stable")))


def write_sightings(path: Path, collection: Collection, tables: Iterable[pa.Table]) -> EvidenceFile | None:
    """Write and sync one file of sightings; None, and no file, if there are none."""
    rows, first_id, last_id = 0, 0, 0
    listed: set[tuple[int, int]] = set()
    writer: pq.ParquetWriter | None = None
    try:
        for table in tables:
            if not table.num_rows:
                continue
            if writer is None:
                make_folder(path.parent)
                writer = pq.ParquetWriter(path, SIGHTING_SCHEMA, **_OPTIONS)
            ids = arrow.values(table["id"])
            lowest, highest = int(ids.min()), int(ids.max())
            first_id = min(first_id, lowest) if rows else lowest
            last_id = max(last_id, highest)
            rows += table.num_rows
            if len(listed) <= MAX_LISTED:
                listed |= _source_imports(table)
            is_plain = table["declaration"].null_count == table.num_rows
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS if is_plain else DECLARED_GROUP_ROWS)
    finally:
        if writer is not None:
            writer.close()
    if writer is None:
        return None
    sync(path)
    noted = tuple(sorted(listed)) if len(listed) <= MAX_LISTED else None
    return EvidenceFile(path, collection, rows, path.stat().st_size, sha256_of(path), first_id, last_id, noted)


def _source_imports(table: pa.Table) -> set[tuple[int, int]]:
    """The distinct pairs of source and import, found where one follows another."""
    source, import_id = arrow.values(table["source"]), arrow.values(table["import_id"])
    starts = np.flatnonzero((source[1:] != source[:-1]) | (import_id[1:] != import_id[:-1])) + 1
    at = np.concatenate([[0], starts])
    return set(zip(source[at].tolist(), import_id[at].tolist(), strict=True))


@lru_cache(maxsize=256)
def footer_of(path: Path) -> pq.FileMetaData:
    """A file's footer: 1.5 ms for 64 row groups, of the 3 ms that one text's sightings take.

    A file never changes, and its name is never used again.
    """
    return pq.read_metadata(path)


@lru_cache(maxsize=256)
def id_ranges(path: Path) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The lowest and the highest id of each row group: 0.5 ms for 64 of them."""
    metadata = footer_of(path)
    ids = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
    ranges = [(0, 2**63 - 1) if one is None else (one.min, one.max) for one in ids]
    firsts, lasts = np.array(ranges, np.int64).reshape(-1, 2).T
    return firsts, lasts


def counting(manifest: Manifest, sightings: pa.Table) -> npt.NDArray[np.bool_]:
    """Which sightings of a version count: a flag each."""
    # By the number of a source, the first import of which its sightings count; those of unknown ones never do.
    since = np.full(max(manifest.sources, default=0) + 2, np.iinfo(np.int64).max)
    for number, one in manifest.sources.items():
        since[number] = one.import_id
    source, import_id = arrow.values(sightings["source"]), arrow.values(sightings["import_id"])
    counts: npt.NDArray[np.bool_] = import_id >= since[np.minimum(source, len(since) - 1)]
    return counts


def posted_ids(files: Iterable[EvidenceFile], ids: Iterable[int]) -> dict[int, bool]:
    """Which of these texts have a POST's sighting in the files, and whether one of them has a declaration.

    Raises UnreadableWarehouse.
    """
    wanted = arrow.numbers(np.array(sorted(ids), np.int64))
    found: dict[int, bool] = {}
    for file in files if len(wanted) else ():
        if not file.may_have(lambda source, _: source == POST):
            continue
        is_wanted = (pc.field("source") == POST) & pc.field("id").isin(wanted)
        with naming(file.path):
            table = pq.read_table(file.path, columns=["id", "declaration"], filters=is_wanted)
        declared = table["declaration"].is_valid().to_pylist()
        for id, has_declaration in zip(table["id"].to_pylist(), declared, strict=True):
            found[id] = found.get(id, False) or has_declaration
    return found
