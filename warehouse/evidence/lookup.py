"""What all sources say about single texts, read from the evidence files by their ids: for pages, routes and exports.

A file's ids are known to the manifest and a row group's to the file, so a text that three lists name costs three row
groups, and texts that are asked for together share them. The files' footers are cached, and one sighting
of each row group whose sightings differ only in their ids.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary
from sigdir.warehouse.evidence.declarations import DECLARING, commonest, tally
from sigdir.warehouse.evidence.files import footer_of, id_ranges
from sigdir.warehouse.evidence.manifest import EvidenceFile, Manifest
from sigdir.warehouse.evidence.sums import sightings_between
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.schema import SIGHTING_SCHEMA

Ids = npt.NDArray[np.int64]


class Text(NamedTuple):
    """A row of the table whose evidence is wanted."""

    id: int
    text: str
    first_seen: datetime | None = None
    is_staged: bool = False
    """Whether it was POSTed and is not folded yet: the POST's sighting comes with the fold."""


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
    """The evidence of one text.

    ``summary`` is as in SQL. ``declarations`` have their counts, the commonest first. A text may have no sighting: its
    sources were replaced, or another program added it.
    """

    summary: Summary
    declarations: tuple[tuple[str, int], ...]
    count: int
    """The number of sightings."""
    _parts: tuple[_Part, ...]
    _labels: Mapping[int, str]

    def sightings(self, start: int, size: int) -> list[SourceSighting]:
        """The sightings ``start`` to ``start + size``, in the order in which they were published."""
        found: list[SourceSighting] = []
        for part in self._parts:
            found += [_sighting(row, self._labels) for row in part.slice(start, size - len(found))]
            start = max(start - part.rows, 0)
            if len(found) == size:
                break
        return found


@dataclass(frozen=True, slots=True)
class _Part:
    """Sightings of one text: those of a table, or one whose values are at hand."""

    table: pa.Table | None
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return 1 if self.table is None else self.table.num_rows

    def column(self, name: str) -> list[Any]:
        values: list[Any] = [self.values[name]] if self.table is None else self.table[name].to_pylist()
        return values

    @property
    def has_declaration(self) -> bool:
        if self.table is None:
            return self.values["declaration"] is not None
        return bool(self.table["declaration"].null_count < self.rows)

    def declaring(self, id: int) -> pa.Table:
        """The columns DECLARING of sightings of the text with this id."""
        if self.table is not None:
            return self.table.select(DECLARING)
        schema = pa.schema([SIGHTING_SCHEMA.field(name) for name in DECLARING])
        return pa.Table.from_pylist([{**self.values, "id": id}], schema=schema)

    def slice(self, start: int, size: int) -> list[Mapping[str, Any]]:
        if start >= self.rows or size <= 0:
            return []
        return [self.values] if self.table is None else self.table.slice(start, size).to_pylist()


def texts_evidence(manifest: Manifest, collection: Collection, texts: Sequence[Text]) -> list[TextEvidence]:
    """The evidence of these texts, in their order; raises UnreadableWarehouse."""
    labels = {number: source.label for number, source in manifest.sources.items()}
    found = _by_id(manifest, collection, [text.id for text in texts], SIGHTING_SCHEMA.names)
    declarations = _declarations(found)
    return [_evidence(text, found.get(text.id, []), declarations.get(text.id, ()), labels) for text in texts]


def _evidence(
    text: Text, parts: list[_Part], declarations: tuple[tuple[str, int], ...], labels: Mapping[int, str]
) -> TextEvidence:
    summary = _summary(parts, text, declarations)
    return TextEvidence(summary, declarations, sum(part.rows for part in parts), tuple(parts), labels)


def commonest_declarations(manifest: Manifest, collection: Collection, ids: Iterable[int]) -> dict[int, str]:
    """The commonest declaration of each of these texts that has one; raises UnreadableWarehouse."""
    return {id: counts[0][0] for id, counts in _declarations(_by_id(manifest, collection, ids, DECLARING)).items()}


def commonest_between(manifest: Manifest, collection: Collection, first: int, last: int) -> dict[int, str]:
    """The same for the texts with these ids, both inclusive: it reads fewer row groups than many single ids do."""
    tables = list(sightings_between(manifest, collection, first, last, DECLARING))
    if not tables:
        return {}
    table = pa.concat_tables(tables)
    ids, rows = commonest(table)
    return dict(zip(ids.tolist(), table["declaration"].take(pa.array(rows)).to_pylist(), strict=True))


class Declarations:
    """The commonest declarations of texts, kept for the manifest that was asked last. Safe for threads.

    Reading one from its file takes 2 ms, and decoding asks for the same few texts again and again.
    """

    def __init__(self) -> None:
        self._manifest: Manifest | None = None
        self._known: dict[tuple[Collection, int], str] = {}
        self._lock = threading.Lock()

    def of(self, manifest: Manifest, collection: Collection, ids: Iterable[int]) -> dict[int, str]:
        """What ``commonest_declarations`` gives, and "" for a text without one; raises UnreadableWarehouse."""
        wanted = list(dict.fromkeys(ids))
        with self._lock:
            if manifest is not self._manifest or len(self._known) > _KEPT:
                self._manifest, self._known = manifest, {}
            known = self._known  # another manifest's answers go into another dictionary
        missing = [id for id in wanted if (collection, id) not in known]
        if missing:
            found = commonest_declarations(manifest, collection, missing)
            known.update(((collection, id), found.get(id, "")) for id in missing)
        return {id: known[collection, id] for id in wanted}


_KEPT = 1 << 14


def _by_id(
    manifest: Manifest, collection: Collection, ids: Iterable[int], columns: Sequence[str]
) -> dict[int, list[_Part]]:
    """The sightings of these texts that count, in the order in which they were published."""
    wanted = np.array(sorted(set(ids)), np.int64)
    found: dict[int, list[_Part]] = {}
    for file in manifest.files[collection] if len(wanted) else ():
        if file.last_id < wanted[0] or wanted[-1] < file.first_id:
            continue
        for id, part in _sightings(file, wanted, manifest, columns):
            found.setdefault(id, []).append(part)
    return found


def _sightings(
    file: EvidenceFile, wanted: Ids, manifest: Manifest, columns: Sequence[str]
) -> Iterator[tuple[int, _Part]]:
    """The ids of some texts and their sightings that count, row group by row group."""
    with naming(file.path), ExitStack() as stack:
        parquet: pq.ParquetFile | None = None
        firsts, lasts = id_ranges(file.path)
        has_one = wanted.searchsorted(firsts) < wanted.searchsorted(lasts, side="right")
        for number in np.flatnonzero(has_one).tolist():
            uniform = _uniform(file.path, number)
            if uniform is not None:
                if manifest.counts(uniform["source"], uniform["import_id"]):
                    first, end = wanted.searchsorted(firsts[number]), wanted.searchsorted(lasts[number], side="right")
                    yield from ((id, _Part(None, uniform)) for id in wanted[first:end].tolist())
                continue
            parquet = parquet or stack.enter_context(_opened(file.path))
            group = parquet.read_row_group(number, columns=["id", "source", "import_id"])
            mine = np.flatnonzero(np.isin(group["id"].to_numpy(), wanted))
            said = zip(*(group[name].to_numpy()[mine].tolist() for name in ("source", "import_id")), strict=True)
            rows = mine[[manifest.counts(*pair) for pair in said]] if len(mine) else mine
            if len(rows):
                table = parquet.read_row_group(number, columns=list(columns)).take(rows)
                theirs = table["id"].to_numpy()
                yield from ((id, _Part(table.take(np.flatnonzero(theirs == id)))) for id in np.unique(theirs).tolist())


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, metadata=footer_of(path), page_checksum_verification=True)


@lru_cache(maxsize=4096)
def _uniform(path: Path, number: int) -> Mapping[str, Any] | None:
    """One sighting of a row group whose sightings have all ids of its range and differ in nothing else; None for others.

    A list of new texts makes such row groups. Reading one takes 3 ms, these values a kilobyte.
    """
    group = footer_of(path).row_group(number)
    firsts, lasts = id_ranges(path)
    if lasts[number] - firsts[number] + 1 != group.num_rows:
        return None
    if not all(map(_is_one_value, map(group.column, range(1, _NOTED)))):
        return None
    with _opened(path) as parquet:
        table = parquet.read_row_group(number).unify_dictionaries()
    ids, others = table["id"].to_numpy(), table.column_names[1:]
    if (np.diff(ids) != 1).any() or any(len(table[name].unique()) > 1 for name in others):
        return None
    values: dict[str, Any] = table.slice(0, 1).to_pylist()[0]
    return MappingProxyType(values)


_NOTED = 5
"""The first columns of a sighting, which have statistics."""


def _is_one_value(column: pq.ColumnChunkMetaData) -> bool:
    return column.statistics is not None and column.statistics.min == column.statistics.max


def _declarations(found: Mapping[int, list[_Part]]) -> dict[int, tuple[tuple[str, int], ...]]:
    """The declarations of texts that have any and their counts, the commonest first."""
    tables = [part.declaring(id) for id, parts in found.items() for part in parts if part.has_declaration]
    if not tables:
        return {}
    table = pa.concat_tables(tables)
    declared = tally(table)
    texts = table["declaration"].take(pa.array(declared.rows)).to_pylist()
    by_id: dict[int, list[tuple[str, int]]] = {}
    for id, text, count in zip(declared.ids.tolist(), texts, declared.counts.tolist(), strict=True):
        by_id.setdefault(id, []).append((text, count))
    return {id: tuple(counts) for id, counts in by_id.items()}


def _summary(parts: list[_Part], text: Text, declarations: tuple[tuple[str, int], ...]) -> Summary:
    if not parts:
        return Summary(text.id, text.text, sources=int(text.is_staged), first_seen=text.first_seen)
    column = {name: [value for part in parts for value in part.column(name)] for name in _RANKING}
    named = {key for key in column["contract_key"] if key is not None}
    compiled = {
        key for key, witness in zip(column["contract_key"], column["witness"], strict=True)
        if key is not None and witness == Witness.COMPILED
    }  # fmt: skip
    return Summary(
        text.id, text.text, Witness(max(column["witness"])), tuple(Kind(kind) for kind in sorted(set(column["kind"])) if kind),
        len(set(column["source"])), max(len(named), *column["contracts"]), len(compiled), any(column["verified"]), text.first_seen,
        declarations[0][0] if declarations else "",
    )  # fmt: skip


_RANKING = ("source", "kind", "witness", "contracts", "verified", "contract_key")


def _sighting(row: Mapping[str, Any], labels: Mapping[int, str]) -> SourceSighting:
    label = labels[row["source"]]
    return SourceSighting(
        label, row["import_id"], row["file"] or label, Kind(row["kind"]), Witness(row["witness"]), row["contract"] or "",
        row["declaration"] or "", row["contracts"], row["verified"],
    )  # fmt: skip
