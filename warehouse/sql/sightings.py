"""The sightings of evidence files in the engine: which count, and files written again without some.

Invariants of a merge
    What counts in a version counts in the compacted one: a sighting is dropped where its source was imported again,
    or where another of the same source says the same of the same text. A text keeps one sighting by POST.
    A merged file is in the order of the ids, then of the sources, then as the sightings came.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.evidence.files import write_sightings
from sigdir.warehouse.log.manifest import POST, EvidenceFile, Manifest, sync_folders
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.sql.views import read_parquet
from sigdir.warehouse.table.parquet import ROW_GROUP_ROWS, require_whole
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.schema import SIGHTING_SCHEMA

MEMORY = "512MB"
"""For the tables of a job that writes evidence; above it, they are spilled."""

_COLUMNS = ", ".join(SIGHTING_SCHEMA.names)


def live_sightings(files: Sequence[EvidenceFile], sources: str, columns: str = "") -> str:
    """The query of the sightings that count, by a table of sources with the imports from which on theirs do."""
    return f"""
    SELECT s.*{columns} FROM {read_parquet(file.path for file in files)} AS s
    JOIN {sources} AS o ON o.source = s.source AND s.import_id >= o.import_id"""


class SightingTables(ScratchTables):
    """A view ``live`` of the sightings of some files that count, and a table ``sources``.

    A sighting is named by ``file_index`` and ``file_row_number``. Raises UnreadableWarehouse, QueryError.
    """

    def __init__(
        self, manifest: Manifest, files: Sequence[EvidenceFile], threads: int, spill: Path | None = None
    ) -> None:
        for file in files:
            require_whole(file.path, file.sha256)
        super().__init__(connect(MEMORY, threads, spill))
        pairs = np.array([(one.number, one.import_id) for one in manifest.sources.values()], np.int64).reshape(-1, 2)
        sources = pa.table({"source": numbers(pairs[:, 0]), "import_id": numbers(pairs[:, 1])})
        self.append(sources, "CREATE TABLE sources AS FROM rows")
        self.execute(f"CREATE VIEW live AS {live_sightings(files, 'sources', ', file_index, file_row_number')}")

    def without(self, gone: str, order: str, where: str = "true") -> Iterator[pa.Table]:
        """The sightings of ``live`` that are not in a table and fulfil a condition, in an order."""
        query = f"""SELECT {_COLUMNS} FROM live ANTI JOIN {gone} USING (file_index, file_row_number)
            WHERE {where} ORDER BY {order}"""
        for batch in self.batches(query, ROW_GROUP_ROWS):
            yield pa.Table.from_batches([batch]).cast(SIGHTING_SCHEMA)

    def counts(self, rows: str) -> dict[Any, int]:
        """How many sightings of each source what stands behind FROM has."""
        return dict(self.rows(f"SELECT source, count(*) FROM {rows} GROUP BY source"))


Files = Sequence[EvidenceFile]
Merges = Mapping[Collection, Sequence[Files]]

_COMPARED = [name for name in SIGHTING_SCHEMA.names if name not in ("id", "source", "import_id")]
_REPEATS = f"""
CREATE TABLE repeats AS SELECT file_index, file_row_number, source FROM live
WHERE (id, source) IN (SELECT (id, source) FROM live GROUP BY ALL HAVING count(*) > 1)
QUALIFY row_number() OVER (
    PARTITION BY id, source, {", ".join(f"if(source = {POST}, NULL, {name})" for name in _COMPARED)}
    ORDER BY declaration IS NULL, import_id, file_index, file_row_number) > 1
"""
_ORDER = "id, source, file_index, file_row_number"


def with_replaced_sightings(manifest: Manifest, merges: Merges) -> Merges:
    """The merges, and each other file alone that has sightings which no longer count."""
    found = {}
    for collection in COLLECTIONS:
        chosen = {file.path for files in merges.get(collection, ()) for file in files}
        alone = [
            [file]
            for file in manifest.files[collection]
            if file.path not in chosen and not all(manifest.counts(*pair) for pair in file.source_imports or ())
        ]
        found[collection] = [*merges.get(collection, ()), *alone]
    return {collection: files for collection, files in found.items() if files}


def merge(paths: Paths, run: str, base: Manifest, merges: Merges, threads: int) -> Manifest:
    """Write and sync each list of files as one; returns what names them. Raises UnreadableWarehouse, QueryError."""
    dropped: Counter[int] = Counter()
    named = {collection: list(base.files[collection]) for collection in COLLECTIONS}
    for collection, lists in merges.items():
        for number, files in enumerate(lists, 1):
            path = paths.evidence_file(collection, run, number)
            with SightingTables(base, files, threads) as tables:
                tables.execute(_REPEATS)
                dropped.update(tables.counts(f"repeats WHERE source != {POST}"))
                written = write_sightings(path, collection, tables.without("repeats", _ORDER))
            at = named[collection].index(files[0])
            named[collection][at:at] = [written] if written is not None else []
            named[collection] = [file for file in named[collection] if file not in files]
            sync_folders([written] if written is not None else [])
    sources = {
        number: replace(source, sightings=source.sightings - dropped[number]) for number, source in base.sources.items()
    }
    return replace(base, sources=sources, files={c: tuple(files) for c, files in named.items()})
