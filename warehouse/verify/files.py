"""The version under check, and what can be said of any of its Parquet files as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.entry import LogEntry
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.rows import StagedRow
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parquet import naming, sha256_of
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.verify.report import VerifyReport, reason_of


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A Parquet file that a version names, and what was recorded when it was written.

    ``what`` a finding of the file is called, ``other_bytes`` one of bytes that differ. ``record`` has the numbers.
    """

    what: str
    path: Path
    schema: pa.Schema
    rows: int
    size: int | None = None
    sha256: str | None = None
    other_bytes: str = "sha256"
    record: str = "the log"


@dataclass
class StagedState:
    """All staged rows, the folded ones too, and the newest version that staging knows of (-1 for none)."""

    rows: dict[Collection, list[StagedRow]] = field(default_factory=lambda: {c: [] for c in COLLECTIONS})
    version: int = -1


@dataclass
class Verification:
    """What checks share: what is checked, and what earlier checks have read for later ones.

    ``begin_stage`` is called with a name and a number of rows, ``progress`` with rows checked. ``entries`` are those of
    the log, none where one cannot be read. ``readable`` are the data files whose rows could all be read.
    """

    paths: Paths
    report: VerifyReport
    snapshot: Snapshot
    staged: StagedState
    engine: duckdb.DuckDBPyConnection
    threads: int
    begin_stage: Callable[[str, int], None]
    progress: Callable[[int], None]
    entries: list[LogEntry] = field(default_factory=list)
    readable: dict[Collection, list[DataFile]] = field(default_factory=lambda: {c: [] for c in COLLECTIONS})

    def waiting(self, collection: Collection) -> list[StagedRow]:
        """The staged rows that are not folded."""
        return [row for row in self.staged.rows[collection] if row.id > self.snapshot.high_water[collection].id]

    def is_complete(self, collection: Collection) -> bool:
        """Whether all rows could be read, and can be read again: the files of an older version may be deleted."""
        return self.readable[collection] == [file for file in self.snapshot.files[collection] if file.path.exists()]

    def metadata_of(self, file: StoredFile) -> pq.FileMetaData | None:
        """A file's footer, once the file is compared with what was recorded; None if it cannot be read as ours."""
        try:
            with naming(file.path):
                size, metadata = file.path.stat().st_size, pq.read_metadata(file.path)
                schema = pq.read_schema(file.path)
                sha256 = file.sha256 and sha256_of(file.path)
        except UnreadableWarehouse as error:
            self.add_unreadable(file, error)
            return None
        rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        if file.size not in (None, size):
            self.report.add(file.what, file.path, f"{size} bytes, and {file.record} says {file.size}")
        if sha256 != file.sha256:
            self.report.add(file.other_bytes, file.path, "not the bytes that were written")
        if not metadata.num_rows == rows == file.rows:
            self.report.add(file.what, file.path, f"{metadata.num_rows} rows, and {file.record} says {file.rows}")
        if not schema.equals(file.schema):
            self.report.add(file.what, file.path, f"other columns than {', '.join(file.schema.names)}")
            return None
        return metadata

    def add_unreadable(self, file: StoredFile, error: Exception, row: str = "") -> None:
        """Add a finding, unless the newest version has no such file: it may be deleted during the check."""
        if file.path.exists():
            self.report.add(file.what, file.path, reason_of(error, file.path), row)
        elif self.is_current(file.path):
            self.report.add(file.what, file.path, "missing")

    def is_current(self, path: Path) -> bool:
        """Whether the newest version names a file. Rejects are never deleted."""
        newest = read_snapshot(self.paths)
        evidence = newest.evidence.all_files() if path.is_relative_to(self.paths.evidence) else ()
        named = {file.path for file in (*newest.all_files(), *evidence)}
        return path in named or path.is_relative_to(self.paths.rejects)

    def create_view(self, name: str, files: Iterable[Path], schema: pa.Schema) -> None:
        """A view of the rows of Parquet files, for ``select``, with ``filename`` and ``file_row_number``."""
        names = [str(path) for path in files if path.exists()]
        fields = [*schema, pa.field("filename", pa.string()), pa.field("file_row_number", pa.int64())]
        rows = (
            self.engine.read_parquet(names, filename=True, file_row_number=True, hive_partitioning=False)
            if names
            else self.engine.from_arrow(pa.schema(fields).empty_table())
        )
        rows.create_view(name, replace=True)

    def select(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of a query; raises UnreadableWarehouse. Beside damage an error of the engine is one more finding."""
        try:
            with waiting(self.engine.interrupt):
                rows: list[dict[str, Any]] = self.engine.sql(query, params=parameters).to_arrow_table().to_pylist()
            return rows
        except duckdb.Error as error:
            reason = f"the rows cannot be searched: {str(error).partition(chr(10))[0]}"
            if not self.report.findings:
                raise UnreadableWarehouse(f"{self.paths.table}: {reason}") from error
            self.report.add("file", self.paths.table, reason)
            return []
