"""What the sources say of single texts, read from the evidence files of one version.

A file is up to a few million sightings in row groups, each with its lowest and highest id. Of a text the row groups are
read whose range has its id, one for each source that names many texts: 3 ms for a group with declarations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import Collection
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.rank import Summary
from sigdir.warehouse.evidence.manifest import EvidenceFile, EvidenceSource, Manifest
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.schema import SIGHTING_SCHEMA

Ids = npt.NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OTHERS = [name for name in SIGHTING_SCHEMA.names if name != "id"]


class Said(NamedTuple):
    """One source's word for one text: a sighting that counts."""

    source: EvidenceSource
    import_id: int
    kind: Kind
    witness: Witness
    contracts: int
    """How many contracts the source counts that it does not name."""
    verified: bool
    file: str | None
    """The input's name below what the user named; None where it is the source's label."""
    contract: str | None
    contract_key: int | None
    declaration: str | None


class Text(NamedTuple):
    """A row of the table whose evidence is wanted; ``created_at`` in microseconds since 1970, UTC."""

    id: int
    text: str
    created_at: int


@dataclass(frozen=True, slots=True)
class TextEvidence:
    """All that is said of one text; nothing where no source is known, as for a row from before the evidence."""

    summary: Summary
    declarations: tuple[tuple[str, int], ...]
    """Each with the number of its sightings, the commonest first."""
    said: tuple[Said, ...]
    """In the order of the sources, files and contracts."""


def evidence_of(manifest: Manifest, collection: Collection, texts: Iterable[Text]) -> list[TextEvidence]:
    """The evidence of these rows, in their order; raises UnreadableWarehouse."""
    rows = list(texts)
    said = _said(manifest, collection, sorted({row.id for row in rows}))
    return [_evidence(row, said.get(row.id, ())) for row in rows]


def declarations_of(manifest: Manifest, collection: Collection, ids: Iterable[int]) -> dict[int, str]:
    """The commonest declaration of each of these rows that has one; raises UnreadableWarehouse."""
    counted: dict[int, Counter[str]] = {}
    for row in _counting(manifest, collection, sorted(set(ids)), ["source", "import_id", "declaration"]):
        if row["declaration"]:
            counted.setdefault(row["id"], Counter())[row["declaration"]] += 1
    return {id: commonest(counts)[0][0] for id, counts in counted.items()}


def commonest(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """Declarations with their counts, the commonest first; of equally common ones the first of the alphabet."""
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _evidence(row: Text, said: Sequence[Said]) -> TextEvidence:
    first_seen = _EPOCH + timedelta(microseconds=row.created_at)
    if not said:
        return TextEvidence(Summary(row.id, row.text, first_seen=first_seen), (), ())
    declarations = commonest(Counter(one.declaration for one in said if one.declaration))
    summary = Summary(
        row.id,
        row.text,
        witness=max(one.witness for one in said),
        kinds=tuple(sorted({one.kind for one in said} - {Kind.UNKNOWN})),
        sources=len({one.source.number for one in said}),
        contracts=_contracts(said),
        compiled=len({one.contract_key for one in said if one.witness == Witness.COMPILED} - {None}),
        verified=any(one.verified for one in said),
        first_seen=first_seen,
        declaration=declarations[0][0] if declarations else "",
    )
    return TextEvidence(summary, declarations, tuple(said))


def _contracts(said: Sequence[Said]) -> int:
    """The distinct contracts, and the counts of sources that do not name theirs."""
    counts: dict[int, int] = {}
    for one in said:
        counts[one.source.number] = max(one.contracts, counts.get(one.source.number, 0))
    return len({one.contract_key for one in said} - {None}) + sum(counts.values())


def _said(manifest: Manifest, collection: Collection, ids: list[int]) -> Mapping[int, list[Said]]:
    found: dict[int, list[Said]] = {}
    for row in _counting(manifest, collection, ids, _OTHERS):
        found.setdefault(row["id"], []).append(_one(manifest, row))
    for one in found.values():
        one.sort(key=lambda said: (said.source.number, said.file or "", said.contract or "", said.declaration or ""))
    return found


def _counting(
    manifest: Manifest, collection: Collection, ids: list[int], columns: list[str]
) -> Iterator[dict[str, Any]]:
    """The sightings of these ids, which rise, that count."""
    wanted = np.array(ids, np.int64)
    for file in manifest.files[collection]:
        if _has_one(wanted, file.first_id, file.last_id):
            for row in _rows_of(file, wanted, columns):
                if manifest.counts(row["source"], row["import_id"]):
                    yield row


def _one(manifest: Manifest, row: Mapping[str, Any]) -> Said:
    return Said(
        manifest.sources[row["source"]], row["import_id"], Kind(row["kind"]), Witness(row["witness"]),
        row["contracts"], row["verified"], row["file"], row["contract"], row["contract_key"], row["declaration"],
    )  # fmt: skip


def _has_one(wanted: Ids, first: int, last: int) -> bool:
    """Whether one of the rising ids is from ``first`` to ``last``, both inclusive."""
    return bool(np.searchsorted(wanted, first) < np.searchsorted(wanted, last, side="right"))


def _rows_of(file: EvidenceFile, wanted: Ids, columns: list[str]) -> list[dict[str, Any]]:
    """The sightings of a file with one of these ids, those included that no longer count."""
    found: list[dict[str, Any]] = []
    with naming(file.path):
        metadata, ranges = _metadata(file.path)
        groups = [n for n, (first, last) in enumerate(ranges) if _has_one(wanted, first, last)]
        if not groups:
            return []
        with pq.ParquetFile(file.path, metadata=metadata, page_checksum_verification=True) as parquet:
            for group in groups:
                ids = parquet.read_row_group(group, ["id"], use_threads=False)["id"].to_numpy()
                rows = np.flatnonzero(np.isin(ids, wanted))
                if len(rows):
                    others = parquet.read_row_group(group, columns, use_threads=False).take(pa.array(rows))
                    values = zip(ids[rows].tolist(), others.to_pylist(), strict=True)
                    found += [{"id": id} | row for id, row in values]
    return found


@lru_cache(maxsize=256)
def _metadata(path: Path) -> tuple[pq.FileMetaData, list[tuple[int, int]]]:
    """A file's footer, and the lowest and the highest id of each row group.

    They are kept: a file never changes, and its name is never used again.
    """
    with pq.ParquetFile(path) as parquet:
        metadata = parquet.metadata
        column = metadata.schema.names.index("id")
        statistics = [metadata.row_group(n).column(column).statistics for n in range(metadata.num_row_groups)]
    return metadata, [(one.min, one.max) for one in statistics]
