"""What all sources say about one text, read from the evidence files by its id: for the record page and its route.

A file's ids are known to the manifest and a row group's to the file, so a text that three lists name costs three row
groups. Nothing is cached and nothing is mapped: such a request comes once in a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary
from sigdir.warehouse.evidence.manifest import EvidenceFile, Manifest
from sigdir.warehouse.parquet import naming


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
    tables = [table for file in manifest.files[collection] for table in _sightings(file, id, manifest)]
    labels = {number: source.label for number, source in manifest.sources.items()}
    declarations = _declarations(tables)
    summary = _summary(tables, id, text, first_seen, declarations)
    parts = tuple((table, labels) for table in tables)
    return TextEvidence(summary, declarations, sum(table.num_rows for table in tables), parts)


def _sightings(file: EvidenceFile, id: int, manifest: Manifest) -> Iterator[pa.Table]:
    """The sightings of a text in a file that count, a table for each run of rows."""
    if not file.first_id <= id <= file.last_id:
        return
    with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
        for number in range(parquet.num_row_groups):
            ids = parquet.metadata.row_group(number).column(0).statistics
            if ids is not None and not ids.min <= id <= ids.max:
                continue
            group = parquet.read_row_group(number, columns=["id", "source", "import_id"])
            mine = np.flatnonzero(group["id"].to_numpy() == id)
            words = zip(
                group["source"].to_numpy()[mine].tolist(), group["import_id"].to_numpy()[mine].tolist(), strict=True
            )
            rows = mine[[manifest.counts(*word) for word in words]] if len(mine) else mine
            if len(rows):
                yield parquet.read_row_group(number).take(rows)


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
