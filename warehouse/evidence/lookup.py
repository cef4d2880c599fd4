"""What all sources say about single texts, read from the evidence files by their ids: for pages, routes and exports.

A file's ids are known to the manifest and a row group's to the file, so a text that three lists name costs three row
groups, and texts that are asked for together share them. Kept are the files' footers, and one sighting of each row group
whose sightings differ in their ids alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary
from sigdir.warehouse.evidence.manifest import EvidenceFile, Manifest
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.schema import SIGHTING_SCHEMA

Ids = npt.NDArray[np.int64]


class Text(NamedTuple):
    """A row of the table whose evidence is wanted."""

    id: int
    text: str
    first_seen: datetime | None = None


@dataclass(frozen=True, slots=True)
class SourceWord:
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

    ``summary`` is as in SQL. ``declarations`` have their counts, the commonest first. A text without sightings, from
    before the evidence or staged, is listed by one source, the import that brought it; ``count`` is 0 then.
    """

    summary: Summary
    declarations: tuple[tuple[str, int], ...]
    count: int
    """The number of sightings."""
    _parts: tuple[tuple[pa.Table, Mapping[int, str]], ...]

    def words(self, start: int, size: int) -> list[SourceWord]:
        """The sightings ``start`` to ``start + size``, in the order in which they were published."""
        found: list[SourceWord] = []
        for table, labels in self._parts:
            if start < table.num_rows:
                piece = table.slice(start, size - len(found))
                found += [_word(row, labels) for row in piece.to_pylist()]
            start = max(start - table.num_rows, 0)
            if len(found) == size:
                break
        return found


def text_evidence(
    manifest: Manifest, collection: Collection, id: int, text: str, first_seen: datetime | None = None
) -> TextEvidence:
    """The evidence of the text with this id; raises UnreadableWarehouse."""
    return texts_evidence(manifest, collection, [Text(id, text, first_seen)])[0]


def texts_evidence(manifest: Manifest, collection: Collection, texts: Sequence[Text]) -> list[TextEvidence]:
    """The evidence of these texts, in their order; raises UnreadableWarehouse."""
    labels = {number: source.label for number, source in manifest.sources.items()}
    found = _by_id(manifest, collection, [text.id for text in texts], SIGHTING_SCHEMA.names)
    return [_evidence(text, found.get(text.id, []), labels) for text in texts]


def _evidence(text: Text, tables: list[pa.Table], labels: Mapping[int, str]) -> TextEvidence:
    declarations = _declarations(tables)
    summary = _summary(tables, *text, declarations)
    parts = tuple((table, labels) for table in tables)
    return TextEvidence(summary, declarations, sum(table.num_rows for table in tables), parts)


def commonest_declarations(manifest: Manifest, collection: Collection, ids: Iterable[int]) -> dict[int, str]:
    """The commonest declaration of each of these texts that has one; raises UnreadableWarehouse."""
    found = _by_id(manifest, collection, ids, _DECLARING)
    declarations = {id: _declarations(tables) for id, tables in found.items()}
    return {id: counted[0][0] for id, counted in declarations.items() if counted}


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

_DECLARING = ["id", "source", "import_id", "contract_key", "declaration"]


def _by_id(
    manifest: Manifest, collection: Collection, ids: Iterable[int], columns: Sequence[str]
) -> dict[int, list[pa.Table]]:
    """The sightings of these texts that count, in tables of one text each."""
    wanted = np.array(sorted(set(ids)), np.int64)
    found: dict[int, list[pa.Table]] = {}
    for file in manifest.files[collection]:
        if _has_one(wanted, file.first_id, file.last_id):
            for table in _sightings(file, wanted, manifest, columns):
                theirs = table["id"].to_numpy()
                ids = np.unique(theirs).tolist()
                for id in ids:
                    own = table if len(ids) == 1 else table.take(np.flatnonzero(theirs == id))
                    found.setdefault(id, []).append(own)
    return found


def _has_one(wanted: Ids, first: int, last: int) -> bool:
    """Whether one of the rising ids is from ``first`` to ``last``, both inclusive."""
    return bool(np.searchsorted(wanted, first) < np.searchsorted(wanted, last, side="right"))


def _sightings(file: EvidenceFile, wanted: Ids, manifest: Manifest, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The sightings of some texts in a file that count, a table for each row group that has any."""
    with naming(file.path), ExitStack() as stack:
        parquet: pq.ParquetFile | None = None
        for number, (first, last) in enumerate(_id_ranges(file.path)):
            if not _has_one(wanted, first, last):
                continue
            uniform = _uniform(file.path, number)
            if uniform is not None:
                if manifest.counts(*(uniform[name][0].as_py() for name in ("source", "import_id"))):
                    ids = wanted[(first <= wanted) & (wanted <= last)]
                    table = uniform.take(np.zeros(len(ids), np.int64)).set_column(0, _ID, pa.array(ids))
                    yield table.select(columns)
                continue
            parquet = parquet or stack.enter_context(_opened(file.path))
            words = parquet.read_row_group(number, columns=["id", "source", "import_id"])
            mine = np.flatnonzero(np.isin(words["id"].to_numpy(), wanted))
            said = zip(*(words[name].to_numpy()[mine].tolist() for name in ("source", "import_id")), strict=True)
            rows = mine[[manifest.counts(*word) for word in said]] if len(mine) else mine
            if len(rows):
                yield parquet.read_row_group(number, columns=list(columns)).take(rows)


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, metadata=_metadata(path), page_checksum_verification=True)


@lru_cache(maxsize=256)
def _id_ranges(path: Path) -> list[tuple[int, int]]:
    """The lowest and the highest id of each row group."""
    metadata = _metadata(path)
    ids = [metadata.row_group(number).column(0).statistics for number in range(metadata.num_row_groups)]
    return [(0, 2**63 - 1) if one is None else (one.min, one.max) for one in ids]


@lru_cache(maxsize=4096)
def _uniform(path: Path, number: int) -> pa.Table | None:
    """One sighting of a row group whose sightings have all ids of its range and differ in nothing else; None for others.

    A list of new texts makes such row groups. Reading one takes 3 ms, this table no more than a kilobyte.
    """
    group = _metadata(path).row_group(number)
    first, last = _id_ranges(path)[number]
    if last - first + 1 != group.num_rows or not all(map(_is_one_value, map(group.column, range(1, _NOTED)))):
        return None
    with _opened(path) as parquet:
        table = parquet.read_row_group(number)
    ids, others = table["id"].to_numpy(), table.column_names[1:]
    if (np.diff(ids) != 1).any() or any(pc.count_distinct(table[name], mode="all").as_py() > 1 for name in others):
        return None
    return table.take([0])


_ID = SIGHTING_SCHEMA.field("id")
_NOTED = 5
"""The first columns of a sighting, which have statistics."""


def _is_one_value(column: pq.ColumnChunkMetaData) -> bool:
    return column.statistics is not None and column.statistics.min == column.statistics.max


@lru_cache(maxsize=256)
def _metadata(path: Path) -> pq.FileMetaData:
    """A file's footer. A file never changes, and its name is never used again."""
    return pq.read_metadata(path)


def _declarations(tables: list[pa.Table]) -> tuple[tuple[str, int], ...]:
    found = set()
    for table in tables:
        columns = (table[name].to_pylist() for name in ("declaration", "contract_key", "source"))
        for declaration, contract, source in zip(*columns, strict=True):
            if declaration is not None:
                found.add((declaration, contract is None, source if contract is None else contract))
    counts = Counter(declaration for declaration, *_ in found)
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _summary(
    tables: list[pa.Table], id: int, text: str, first_seen: datetime | None, declarations: tuple[tuple[str, int], ...]
) -> Summary:
    if not tables:
        return Summary(id, text, first_seen=first_seen)
    column = {name: [v for table in tables for v in table[name].to_pylist()] for name in _RANKING}
    named = {key for key in column["contract_key"] if key is not None}
    compiled = {
        key for key, witness in zip(column["contract_key"], column["witness"], strict=True)
        if key is not None and witness == Witness.COMPILED
    }  # fmt: skip
    return Summary(
        id, text, Witness(max(column["witness"])), tuple(Kind(kind) for kind in sorted(set(column["kind"])) if kind),
        len(set(column["source"])), max(len(named), *column["contracts"]), len(compiled), any(column["verified"]), first_seen,
        declarations[0][0] if declarations else "",
    )  # fmt: skip


_RANKING = ("source", "kind", "witness", "contracts", "verified", "contract_key")


def _word(row: dict[str, Any], labels: Mapping[int, str]) -> SourceWord:
    label = labels[row["source"]]
    return SourceWord(
        label, row["import_id"], row["file"] or label, Kind(row["kind"]), Witness(row["witness"]), row["contract"] or "",
        row["declaration"] or "", row["contracts"], row["verified"],
    )  # fmt: skip
