"""The version under check, what was found in it, and what can be said of any of its files as a whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.log.entry import LogEntry
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.sql.views import quoted
from sigdir.warehouse.staging.transaction import StagedRow
from sigdir.warehouse.table.errors import UnreadableWarehouse, first_line
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.parquet import naming, sha256_of
from sigdir.warehouse.table.paths import Paths

SHOWN = 1000
"""At most so many findings are reported."""


@dataclass(slots=True)
class Finding:
    """One line of the report. ``more`` counts further rows of the same file with the same problem."""

    what: str
    where: str
    row: str
    why: str
    more: int = 0

    def __str__(self) -> str:
        where = f"{self.where}, {self.row}" if self.row else self.where
        more = f" (and {self.more:,} more rows there)" if self.more else ""
        return f"{self.what}: {where}: {self.why}{more}"


@dataclass
class VerifyReport:
    """What was checked and what was found; ``rows`` of the table and ``staged`` ones, by collection."""

    root: Path
    version: int = -1
    rows: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    staged: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    seconds: float = 0.0
    _first: dict[tuple[str, str, str], Finding] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add(self, what: str, where: Path, why: str, row: str = "") -> None:
        self.extend([Finding(what, self.name(where), row, why)])

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add findings; a row with the same problem in the same file is only counted. Safe for threads."""
        for finding in findings:
            same = "" if finding.row else finding.why
            with self._lock:
                first = self._first.setdefault((finding.what, finding.where, same), finding)
                if first is not finding:
                    first.more += 1 + finding.more if finding.row else 0
                elif len(self.findings) < SHOWN:
                    self.findings.append(finding)

    def note(self, where: Path, why: str) -> None:
        self.notes.append(Finding("orphan", self.name(where), "", why))

    def name(self, path: Path) -> str:
        """A path as reports show it: relative to the warehouse."""
        return path.relative_to(self.root).as_posix()

    def to_dict(self) -> dict[str, Any]:
        return {
            "clean": not self.findings,
            "version": self.version,
            "rows": self.rows,
            "staged": self.staged,
            "files": self.files,
            "findings": [asdict(finding) for finding in self.findings],
            "notes": [asdict(note) for note in self.notes],
            "seconds": round(self.seconds, 3),
        }


def reason_of(error: Exception, path: Path) -> str:
    """An error's message without the path, which the finding names already."""
    return str(error).removeprefix(f"{path}: ")


def shortened(text: str) -> str:
    """A text as findings show it."""
    return json.dumps(text if len(text) <= 80 else text[:80] + "...")


ROWS, EVIDENCE, STAGING, LOG = "rows", "evidence", "staging", "log"
"""What can be read as a whole."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a version names, what its findings are called, and what was recorded when it was written."""

    what: str
    path: Path
    schema: pa.Schema
    rows: int
    size: int | None = None
    sha256: str | None = None

    @property
    def record(self) -> str:
        """What has the numbers."""
        return {"evidence": "the manifest", "older": "an older version"}.get(self.what, "the log")


@dataclass
class Verification:
    """What checks share: what is checked, and what earlier checks have read for later ones.

    ``begin_stage`` is called with a name and a number of rows, ``progress`` with rows checked. ``readable`` are the
    files whose rows could all be read, ``complete`` says what could be read as a whole.
    """

    paths: Paths
    report: VerifyReport
    snapshot: Snapshot
    engine: duckdb.DuckDBPyConnection
    threads: int
    begin_stage: Callable[[str, int], None]
    progress: Callable[[int], None]
    entries: list[LogEntry] = field(default_factory=list)
    manifest: Manifest = field(default_factory=Manifest)
    staged: dict[Collection, list[StagedRow]] = field(default_factory=lambda: {c: [] for c in COLLECTIONS})
    """The folded ones too."""
    readable: set[Path] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)

    def has_bytes(self, file: StoredFile) -> bool:
        """Compare a file with what was recorded of its bytes; returns whether they can be read."""
        try:
            with naming(file.path):
                size, sha256 = file.path.stat().st_size, file.sha256 and sha256_of(file.path)
        except UnreadableWarehouse as error:
            self.add_unreadable(file, error)
            return False
        if file.size not in (None, size):
            self.report.add(file.what, file.path, f"{size} bytes, and {file.record} says {file.size}")
        if sha256 != file.sha256:
            self.report.add(
                "sha256" if file.what == "file" else file.what, file.path, "not the bytes that were written"
            )
        return True

    def metadata_of(self, file: StoredFile) -> pq.FileMetaData | None:
        """A file's footer, once the file is compared with what was recorded; None if it cannot be read as ours."""
        if not self.has_bytes(file):
            return None
        try:
            with naming(file.path):
                metadata, schema = pq.read_metadata(file.path), pq.read_schema(file.path)
        except UnreadableWarehouse as error:
            self.add_unreadable(file, error)
            return None
        rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
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

    def create_table(self, columns: Mapping[str, pa.DataType], name: str, rows: Iterable[Sequence[Any]]) -> None:
        """A table of values, for ``select``."""
        listed = [dict(zip(columns, row, strict=True)) for row in rows]
        self.engine.register(name, pa.Table.from_pylist(listed, pa.schema(list(columns.items()))))

    def create_view(self, name: str, files: Iterable[DataFile | EvidenceFile], schema: pa.Schema) -> None:
        """A view of the rows of Parquet files, for ``select``, with ``collection``, ``filename``, ``file_row_number``."""
        there = [file for file in files if file.path.exists()]
        parts = [
            f"SELECT '{collection}' AS collection, * FROM read_parquet([{', '.join(names)}], filename = true,"
            " file_row_number = true, hive_partitioning = false)"
            for collection in COLLECTIONS
            if (names := [quoted(str(file.path)) for file in there if file.collection == collection])
        ]
        if not parts:
            fields = [("collection", pa.string()), *schema, ("filename", pa.string()), ("file_row_number", pa.int64())]
            self.engine.register(f"no_{name}", pa.schema(fields).empty_table())
        self.engine.execute(f"CREATE VIEW {name} AS {' UNION ALL '.join(parts) or f'FROM no_{name}'}")

    def select(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query; raises UnreadableWarehouse. Beside damage an error of the engine is one more finding."""
        try:
            with waiting(self.engine.interrupt):
                rows: list[dict[str, Any]] = self.engine.sql(query).to_arrow_table().to_pylist()
            return rows
        except duckdb.Error as error:
            reason = f"the rows cannot be searched: {first_line(error)}"
            if not self.report.findings:
                raise UnreadableWarehouse(f"{self.paths.table}: {reason}") from error
            self.report.add("file", self.paths.table, reason)
            return []
