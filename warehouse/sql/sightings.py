"""The sightings of evidence files in the engine: which count, and files written again without some."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.sql.views import read_parquet
from sigdir.warehouse.table.parquet import ROW_GROUP_ROWS, SIGHTING_SCHEMA, require_whole

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
