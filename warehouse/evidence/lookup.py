"""What all sources say about one text, sighting by sighting, read from the evidence files by its id.

A file's ids are known to the manifest and a row group's to the file, so a text that three lists name costs three row
groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.clear_signing import Descriptor, Place
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.warehouse.evidence.mapped import counting, footer_of, id_ranges
from sigdir.warehouse.evidence.summaries import tally
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.parquet import SIGHTING_SCHEMA, naming


@dataclass(frozen=True, slots=True)
class SourceSighting:
    """One sighting of a text: what the source of this label says, by this import (0 for a POST).

    ``file`` is the input's name, the label where the input is the whole source. ``contract`` and ``declaration`` are ""
    where the source has none; ``contracts`` is its own count of contracts that it does not name.
    """

    source: str
    import_id: int
    file: str
    kind: Kind
    witness: Witness
    contract: str
    declaration: str
    contracts: int
    verified: bool


@dataclass(frozen=True, slots=True)
class TextEvidence:
    """The sightings of one text that count, in the order in which they were published.

    ``declarations`` have their counts, the commonest first. A text may have no sighting: its sources were replaced, or
    another program added it.
    """

    declarations: tuple[tuple[str, int], ...]
    _parts: tuple[_Part, ...]
    _manifest: Manifest

    @property
    def count(self) -> int:
        """The number of sightings."""
        return sum(map(len, self._parts))

    def sightings(self, start: int, size: int) -> list[SourceSighting]:
        """The sightings ``start`` to ``start + size``."""
        found: list[SourceSighting] = []
        for part in self._parts:
            found += [_sighting(row, self._manifest) for row in _rows(part, start, size - len(found))]
            start = max(start - len(part), 0)
        return found


_Row = Mapping[str, Any]
_Part: TypeAlias = list[_Row] | pa.Table
"""A text's sightings in a row group: one as a row, or a table, for a million contracts may declare a text."""


def _rows(part: _Part, start: int, size: int) -> list[_Row]:
    if isinstance(part, list):
        return part[start : start + size]
    rows: list[_Row] = part.slice(start, size).to_pylist()
    return rows


def text_evidence(manifest: Manifest, collection: Collection, id: int) -> TextEvidence:
    """The evidence of the text with this id; raises UnreadableWarehouse."""
    files = [file for file in manifest.files[collection] if file.first_id <= id <= file.last_id]
    parts = tuple(part for file in files for part in _sightings(file, id, manifest) if len(part))
    return TextEvidence(_declarations(parts, id), parts, manifest)


def descriptors_of(manifest: Manifest, ids: Iterable[int]) -> dict[Place, list[Descriptor]]:
    """The descriptors of the functions with these ids by the contracts they are made for, the newest of a text first.

    A text whose evidence was vacuumed or is damaged has none.
    """
    found: dict[Place, list[Descriptor]] = {}
    for id in ids:
        with suppress(WarehouseError, OSError):
            for display in _displays_of(manifest, id):
                one = Descriptor.of(*display)
                for place in one.places:
                    found.setdefault(place, []).append(one)
    return found


def _displays_of(manifest: Manifest, id: int) -> list[tuple[str, str, str]]:
    """Each declaration of a function that has a display, with it and the label of its source, the newest first."""
    files = [file for file in manifest.files[SIGNATURES] if file.first_id <= id <= file.last_id]
    parts = [_table(part) for file in files for part in _sightings(file, id, manifest, _has_displays)]
    rows = [row for table in parts for row in table.filter(table["display"].is_valid()).to_pylist()]
    rows.sort(key=lambda row: -row["import_id"])
    return [(row["declaration"] or "", row["display"], manifest.sources[row["source"]].label) for row in rows]


def _has_displays(group: pq.RowGroupMetaData) -> bool:
    """Whether a row group may have a display."""
    statistics = group.column(_DISPLAY).statistics
    return statistics is None or statistics.null_count is None or statistics.null_count < group.num_rows


_DISPLAY = SIGHTING_SCHEMA.get_field_index("display")


def _sightings(
    file: EvidenceFile, id: int, manifest: Manifest, wanted: Callable[[pq.RowGroupMetaData], bool] = lambda _: True
) -> Iterator[_Part]:
    """The text's sightings that count, row group by row group, of the wanted ones."""
    with naming(file.path), ExitStack() as stack:
        parquet: pq.ParquetFile | None = None
        firsts, lasts = id_ranges(file.path)
        for number in np.flatnonzero((firsts <= id) & (id <= lasts)).tolist():
            if not wanted(footer_of(file.path).row_group(number)):
                continue
            one = _only_sighting(file.path, number)
            if one is not None and not manifest.counts(one.row["source"], one.row["import_id"]):
                continue
            if one is not None and one.is_of_all:
                yield [one.row]
                continue
            parquet = parquet or stack.enter_context(_opened(file.path))
            mine = np.flatnonzero(values(parquet.read_row_group(number, columns=["id"])["id"]) == id)
            if one is not None:
                yield [one.row] * len(mine)
            elif len(mine):
                table = parquet.read_row_group(number).take(numbers(mine))
                yield table.filter(numbers(counting(manifest, table)))


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, metadata=footer_of(path), page_checksum_verification=True)


class _OnlySighting(NamedTuple):
    """The sighting of a row group whose sightings differ in nothing but their ids; ``row`` has the first one's.

    ``is_of_all``: the group has each id of its range.
    """

    row: _Row
    is_of_all: bool


@lru_cache(maxsize=4096)
def _only_sighting(path: Path, number: int) -> _OnlySighting | None:
    """None for a row group whose sightings differ.

    A list makes such row groups. Reading one takes 3 ms, 50 times what the rest of a text's page takes, and one sighting
    a kilobyte for 100,000 texts.
    """
    group = footer_of(path).row_group(number)
    if not all(map(_is_one_value, map(group.column, range(1, _NOTED)))):
        return None
    with _opened(path) as parquet:
        table = parquet.read_row_group(number).unify_dictionaries()
    if any(len(table[name].unique()) > 1 for name in table.column_names[1:]):
        return None
    (row,) = table.slice(0, 1).to_pylist()
    return _OnlySighting(row, bool((np.diff(values(table["id"])) == 1).all()))


_NOTED = 5
"""The first columns of a sighting, which have statistics."""


def _is_one_value(column: pq.ColumnChunkMetaData) -> bool:
    return column.statistics is not None and column.statistics.min == column.statistics.max


def _declarations(parts: Iterable[_Part], id: int) -> tuple[tuple[str, int], ...]:
    """The declarations of one text and their counts, the commonest first. A row alone has another text's id."""
    tables = [_table(part) for part in parts if not isinstance(part, list) or part[0]["declaration"]]
    if not tables:
        return ()
    table = pa.concat_tables(tables).unify_dictionaries()
    if table["declaration"].null_count == table.num_rows:
        return ()
    declared = tally(table.set_column(0, "id", numbers(np.full(table.num_rows, id))))
    texts = table["declaration"].take(numbers(declared.rows)).to_pylist()
    return tuple(zip(texts, declared.counts.tolist(), strict=True))


def _table(part: _Part) -> pa.Table:
    return pa.Table.from_pylist(part, SIGHTING_SCHEMA) if isinstance(part, list) else part


def _sighting(row: _Row, manifest: Manifest) -> SourceSighting:
    label = manifest.sources[row["source"]].label
    return SourceSighting(
        label, row["import_id"], row["file"] or label, Kind(row["kind"]), Witness(row["witness"]), row["contract"] or "",
        row["declaration"] or "", row["contracts"], row["verified"],
    )  # fmt: skip
