"""Looking at everything that is stored, changing nothing: checksums, hashes, invariants, indexes.

One pass over the table, a row group at a time, by as many threads as are given: memory does not grow
with the rows. The keys of the texts go from there straight into the engine, which tells under its memory
limit which of them come twice.

Servers and importers may work meanwhile. Staging is read first and the log behind it, so rows that were
folded in between are in both; they count as folded and must be in the table as they were. Files are
listed before the log is read for the last time: what a version names by then was no orphan.

A finding breaks an invariant or says that bytes are damaged. A note is what a killed process left, and
what the next publish or server clears up.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sigdir.signatures.canonicalise import check_canonical
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.columns import bytes_of, keys_of
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import dead_runs
from sigdir.warehouse.identity import FORMAT, usable_identity
from sigdir.warehouse.index.build import open_index
from sigdir.warehouse.index.hash_order import is_sorted_by_hash
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log import DataFile, LogEntry, read_entries
from sigdir.warehouse.parallel import ordered_map
from sigdir.warehouse.parquet import naming, sha256_of
from sigdir.warehouse.paths import Paths, existing, index_name
from sigdir.warehouse.rejects import rows_and_digest
from sigdir.warehouse.schema import FILE_SCHEMA
from sigdir.warehouse.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.staging import HighWaterMark, StagedRow, looking

Array = npt.NDArray[Any]

_SHOWN = 1000
_MICROSECOND = pa.timestamp("us", tz="UTC")
_KEY = pa.schema([("high", pa.uint64())])


@dataclass(slots=True)
class Finding:
    """One line of the report. ``more`` counts further rows of the same file with the same fault."""

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
class Report:
    """What was looked at and what was found; ``rows`` of the table and ``staged`` ones, by collection."""

    version: int = -1
    rows: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    staged: dict[Collection, int] = field(default_factory=lambda: dict.fromkeys(COLLECTIONS, 0))
    files: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            "clean": not self.findings,
            "version": self.version,
            "rows": self.rows,
            "staged": self.staged,
            "files": self.files,
            "findings": [_told(finding) for finding in self.findings],
            "notes": [_told(note) for note in self.notes],
            "seconds": round(self.seconds, 3),
        }


def _told(finding: Finding) -> dict[str, Any]:
    return {
        "what": finding.what, "where": finding.where, "row": finding.row, "why": finding.why, "more": finding.more,
    }  # fmt: skip


def verify(
    paths: Paths,
    threads: int,
    memory_limit: str,
    stage: Callable[[str, int], None],
    tick: Callable[[int], None],
) -> Report:
    """Look at everything; raises UnreadableWarehouse where nothing can be looked at.

    ``stage`` is told what is looked at next and how many rows that has, ``tick`` of rows done.
    """
    existing(paths.root)
    began = time.monotonic()
    work = _Verification(paths, threads, memory_limit, tick)
    work.look(stage)
    work.report.seconds = time.monotonic() - began
    return work.report


@dataclass(frozen=True, slots=True)
class _Group:
    """A row group to look at, and what its file's rows are compared with."""

    collection: Collection
    file: DataFile
    metadata: pq.FileMetaData
    number: int
    first_row: int
    sha256: str | None
    index: Segment | None

    @property
    def rows(self) -> int:
        return int(self.metadata.row_group(self.number).num_rows)

    @property
    def is_last(self) -> bool:
        return bool(self.number == self.metadata.num_row_groups - 1)


@dataclass(slots=True)
class _Looked:
    """A row group that was looked at. The places and keys are missing where it cannot be read."""

    group: _Group
    findings: list[Finding] = field(default_factory=list)
    imports: dict[int, int] = field(default_factory=dict)
    folded: set[int] = field(default_factory=set)
    """Ids of staged rows that are here as they were staged."""
    first: HighWaterMark | None = None
    last: HighWaterMark | None = None
    high: Array = field(default_factory=lambda: np.empty(0, np.uint64))
    stale: list[str] = field(default_factory=list)
    """Columns of the index that differ from the data file's."""


class _Verification:
    """One run's state."""

    def __init__(self, paths: Paths, threads: int, memory_limit: str, tick: Callable[[int], None]) -> None:
        self.paths = paths
        self.threads, self.memory_limit, self.tick = threads, memory_limit, tick
        self.report = Report()
        self.published = -1
        self.groups: dict[tuple[str, str], Finding] = {}
        self.entries: list[LogEntry] = []
        self.sha256: dict[str, str] = {}
        self.whole = dict.fromkeys(COLLECTIONS, True)
        self.imports: dict[Collection, Counter[int]] = {c: Counter() for c in COLLECTIONS}

    def add(self, finding: Finding) -> None:
        """Add a finding, counting it onto one of the same kind in the same place."""
        known = self.groups.setdefault((finding.what, finding.where), finding)
        if known is not finding and finding.row:
            known.more += 1 + finding.more
        elif len(self.report.findings) < _SHOWN:
            self.report.findings.append(finding)

    def found(self, what: str, where: Path, why: str, row: str = "") -> None:
        self.add(Finding(what, self.named(where), row, why))

    def note(self, what: str, where: Path, why: str) -> None:
        self.report.notes.append(Finding(what, self.named(where), "", why))

    def named(self, path: Path) -> str:
        return path.relative_to(self.paths.root).as_posix()

    def look(self, stage: Callable[[str, int], None]) -> None:
        identity = usable_identity(self.paths)
        staged = self.staged_rows(identity.id)
        self.snapshot = read_snapshot(self.paths)
        self.report.version = self.snapshot.version
        if self.published > self.snapshot.version:
            why = f"ends at version {self.snapshot.version}, and version {self.published} was published"
            self.found("log", self.paths.log, why)
        self.compare_sequences()
        stage("log", 0)
        self.look_at_log()
        with connect(self.paths, self.memory_limit, self.threads) as engine:
            for collection in COLLECTIONS:
                floor = self.snapshot.high_water[collection]
                waiting = [row for row in staged[collection] if row.id > floor.id]
                folded = [row for row in staged[collection] if row.id <= floor.id]
                stage(collection, self.snapshot.count(collection) + len(waiting))
                self.look_at_rows(engine, collection, waiting, folded)
                self.report.rows[collection] = self.snapshot.count(collection)
                self.report.staged[collection] = len(waiting)
                self.report.files += len(self.snapshot.files[collection])
        self.compare_imports()
        stage("rejects", 0)
        self.look_at_rejects()
        self.look_for_left_overs()

    # Staging.

    def staged_rows(self, id: str) -> dict[Collection, list[StagedRow]]:
        """All staged rows, the folded ones too; what is wrong with their file is found here."""
        rows: dict[Collection, list[StagedRow]] = {collection: [] for collection in COLLECTIONS}
        if not self.paths.staging.exists():
            return rows
        try:
            with looking(self.paths.staging) as staging:
                for complaint in staging.complaints():
                    self.found("staging", self.paths.staging, complaint)
                self.published = staging.version()
                if staging.format() != FORMAT:
                    self.found("staging", self.paths.staging, f"format {staging.format()}, not {FORMAT}")
                if id and staging.warehouse() != id:
                    self.found("staging", self.paths.staging, f"belongs to another warehouse, not to {id}")
                for collection in COLLECTIONS:
                    rows[collection] = staging.rows(collection, 0)
                    self.look_at_staged(rows[collection], staging.sequence(collection))
        except (UnreadableWarehouse, TypeError, LookupError) as error:  # a row or column that must be there is missing
            self.found("staging", self.paths.staging, str(error).removeprefix(f"{self.paths.staging}: "))
        return rows

    def look_at_staged(self, rows: Sequence[StagedRow], last: HighWaterMark) -> None:
        before = 0
        for row in rows:
            if row.id > last.id or row.created_at > last.created_at:
                why = f"above what was handed out: id {last.id}, time {last.created_at}"
                self.found("sequence", self.paths.staging, why, f"id {row.id}")
            if row.created_at <= before:
                self.found("order", self.paths.staging, "created_at does not rise with id", f"id {row.id}")
            before = row.created_at

    def compare_sequences(self) -> None:
        """Look at the sequences again, now that the snapshot is known: they never fall behind it."""
        if self.snapshot.version < 0:
            return
        lost = "lost or replaced; rows that were POSTed and not folded may be gone with it"
        if not self.paths.staging.exists():
            self.found("staging", self.paths.staging, f"missing: {lost}")
            return
        with suppress(UnreadableWarehouse), looking(self.paths.staging) as staging:
            for collection, floor in self.snapshot.high_water.items():
                sequence = staging.sequence(collection)
                if sequence.id < floor.id or sequence.created_at < floor.created_at:
                    why = f"older than the table, or {lost}: {collection} at id {sequence.id}, the table at {floor.id}"
                    self.found("sequence", self.paths.staging, why)

    # The log.

    def look_at_log(self) -> None:
        try:
            self.entries = list(read_entries(self.paths, self.snapshot.version))
        except (UnreadableWarehouse, KeyError, TypeError) as error:
            self.found("log", self.paths.log, f"{type(error).__name__}: {error}")
            return
        self.last_import = 0
        for entry in self.entries:
            try:
                self.look_at_entry(entry)
            except (KeyError, TypeError) as error:
                self.found(
                    "log", self.paths.log_entry(entry.version), f"{type(error).__name__} in its summary: {error}"
                )
        for collection, files in self.snapshot.files.items():
            floor = self.snapshot.high_water[collection]
            if files and files[-1].last_id > floor.id:
                why = f"{collection} has id {files[-1].last_id}, above its watermark {floor.id}"
                self.found("watermark", self.paths.log_entry(self.snapshot.version), why)

    def look_at_entry(self, entry: LogEntry) -> None:
        summary = entry.summary
        if summary is None:
            return
        self.sha256.update(summary.get("sha256", {}))
        path = self.paths.log_entry(entry.version)
        said = sum(summary.get("rows", {}).values()) + sum(summary.get("folded", {}).values())
        if "rows" in summary and not entry.removed and said != sum(file.rows for file in entry.added):
            self.found(
                "log", path, f"its files have {sum(file.rows for file in entry.added)} rows, its summary says {said}"
            )
        if "import" in summary:
            if summary["import"] <= self.last_import:
                self.found("log", path, f"import {summary['import']} comes behind import {self.last_import}")
            self.last_import = summary["import"]
            self.look_at_summary(path, summary)

    def look_at_summary(self, path: Path, summary: Mapping[str, Any]) -> None:
        """Everything that an import read is accounted for."""
        names = ("read", "imported", "duplicate", "rejected")
        totals = {name: summary["totals"][name] for name in names}
        for of, counts in [("in total", totals), *((source["path"], source) for source in summary["sources"])]:
            read, imported, duplicate, rejected = (counts[name] for name in names)
            if read != imported + duplicate + rejected:
                why = f"{of}: {read} read are not {imported} imported, {duplicate} duplicate, {rejected} rejected"
                self.found("import", path, why)
        for name in names:
            if totals[name] != sum(source[name] for source in summary["sources"]):
                self.found("import", path, f"the {name} of its sources are not {totals[name]}, which is the total")
        if totals["imported"] != sum(summary["rows"].values()):
            self.found("import", path, f"{totals['imported']} imported, and {sum(summary['rows'].values())} rows")

    def compare_imports(self) -> None:
        """Rows that say which import brought them are as many as the import said, whatever file they are in."""
        for collection in COLLECTIONS:
            if not self.whole[collection] or not self.entries:
                continue
            said: Counter[int] = Counter()
            for entry in self.entries:
                summary = entry.summary or {}
                said[0] += summary.get("folded", {}).get(collection, 0)
                if "import" in summary:
                    said[summary["import"]] += summary["rows"][collection]
            for number in sorted(said.keys() | self.imports[collection].keys()):
                if said[number] != self.imports[collection][number]:
                    of = f"import {number}" if number else "POSTs"
                    why = f"{self.imports[collection][number]} rows of {of}; the log says {said[number]}"
                    self.found("import", self.paths.partition(collection), why)

    # The table.

    def look_at_rows(
        self,
        engine: duckdb.DuckDBPyConnection,
        collection: Collection,
        waiting: list[StagedRow],
        folded: list[StagedRow],
    ) -> None:
        """Every row of a collection, staged ones too, and that no text is there twice."""
        wanted = {row.id: row for row in folded}
        ids = np.array(sorted(wanted), np.int64)
        missing = set(wanted)

        def highs() -> Iterator[pa.RecordBatch]:
            if waiting:
                yield pa.record_batch([self.look_at_texts(collection, waiting)], schema=_KEY)
            with ThreadPoolExecutor(self.threads) as pool:
                last: HighWaterMark | None = None
                for looked in ordered_map(
                    pool, lambda group: self.look_at_group(group, ids, wanted), self.row_groups(collection),
                    ahead=2 * self.threads,
                ):  # fmt: skip
                    last = self.follow(looked, last)
                    missing.difference_update(looked.folded)
                    self.tick(looked.group.rows)
                    yield pa.record_batch([looked.high], schema=_KEY)

        engine.register("highs", pa.RecordBatchReader.from_batches(_KEY, highs()))
        try:
            found = engine.sql(f"SELECT high FROM highs GROUP BY high HAVING count(*) > 1 LIMIT {_SHOWN}")
            shared = found.to_arrow_table()["high"].to_numpy()
        except duckdb.Error as error:
            raise UnreadableWarehouse(
                f"looking for texts that come twice: {str(error).partition(chr(10))[0]}"
            ) from error
        if len(shared):
            self.name_twins(collection, waiting, shared)
        if self.whole[collection]:
            for id in sorted(missing):
                self.found("fold", self.paths.staging, "counts as folded and is not in the table so", f"id {id}")

    def look_at_texts(self, collection: Collection, waiting: list[StagedRow]) -> Array:
        """The texts and digests of staged rows; returns their keys' first halves."""
        digests, canonical = check_canonical(collection, pa.array([row.text for row in waiting], pa.string()))
        floor = self.snapshot.high_water[collection]
        for row, digest, good in zip(waiting, digests, canonical.tolist(), strict=True):
            if row.digest != digest.tobytes():
                self.found("hash", self.paths.staging, f"not the hash of {_shown(row.text)}", f"id {row.id}")
            if row.created_at <= floor.created_at:
                self.found("order", self.paths.staging, "its created_at is not above the table's", f"id {row.id}")
            if not good:
                self.found("text", self.paths.staging, f"not canonical: {_shown(row.text)}", f"id {row.id}")
        self.tick(len(waiting))
        return keys_of(digests).high

    def row_groups(self, collection: Collection) -> Iterator[_Group]:
        """The row groups that can be looked at; what is wrong with their files as a whole is found here."""
        for file in self.snapshot.files[collection]:
            try:
                size = file.path.stat().st_size
                with naming(file.path):
                    metadata = pq.read_metadata(file.path)
                    schema = pq.read_schema(file.path)
            except (UnreadableWarehouse, OSError) as error:
                self.whole[collection] = False
                if not self.is_current(collection, file):
                    continue
                why = "missing" if not file.path.exists() else str(error).removeprefix(f"{file.path}: ")
                self.found("file", file.path, why)
                continue
            if size != file.size:
                self.found("file", file.path, f"{size} bytes, and the log says {file.size}")
            rows = sum(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
            if not metadata.num_rows == rows == file.rows:
                self.found("file", file.path, f"{metadata.num_rows} rows, and the log says {file.rows}")
            if not schema.equals(FILE_SCHEMA):
                self.whole[collection] = False
                self.found("file", file.path, f"other columns than {', '.join(FILE_SCHEMA.names)}")
                continue
            index = self.index_of(collection, file)
            sha256 = self.sha256.get(self.paths.in_table(file.path))
            first = 0
            for number in range(metadata.num_row_groups):
                yield _Group(collection, file, metadata, number, first, sha256, index)
                first += metadata.row_group(number).num_rows

    def index_of(self, collection: Collection, file: DataFile) -> Segment | None:
        folder = self.paths.cache / index_name(collection, file.path)
        try:
            index = open_index(folder, file.rows)
            if index.hash.shape[1:] == (collection.hash_bytes,):
                return index
        except FileNotFoundError:
            if not folder.exists():  # built at will
                return None
        except (OSError, ValueError):
            pass
        if self.is_current(collection, file):
            self.found_index(folder, "does not fit its data file")
        return None

    def is_current(self, collection: Collection, file: DataFile) -> bool:
        """Whether the newest version has the file: otherwise it and its index may go while we look."""
        return file.path in {other.path for other in read_snapshot(self.paths).files[collection]}

    def found_index(self, folder: Path, why: str) -> None:
        """Once a folder: its cure is the same whatever is wrong with it."""
        if ("index", self.named(folder)) not in self.groups:
            cure = f"`rm -r {folder}` and restart the server, which builds it again"
            self.found("index", folder, f"{why}: {cure}")

    def look_at_group(self, group: _Group, folded: Array, wanted: Mapping[int, StagedRow]) -> _Looked:
        """Everything that a row group tells by itself. Runs in a thread: it changes nothing of ours."""
        looked = _Looked(group)
        where = self.named(group.file.path)
        path = group.file.path
        try:
            with naming(path):
                if group.number == 0 and group.sha256 is not None and sha256_of(path) != group.sha256:
                    looked.findings.append(Finding("sha256", where, "", "not the bytes that were written"))
                with pq.ParquetFile(path, metadata=group.metadata, page_checksum_verification=True) as file:
                    columns = [_column(file, group, name) for name in FILE_SCHEMA.names]
                rows = pa.record_batch(columns, schema=FILE_SCHEMA)
                _Rows(group, rows, where, looked).look(folded, wanted)
        except (UnreadableWarehouse, _Damaged) as error:
            why = str(error).removeprefix(f"{path}: ")
            looked.findings.append(Finding("file", where, f"row group {group.number}", why))
            looked.first = None
        return looked

    def follow(self, looked: _Looked, last: HighWaterMark | None) -> HighWaterMark | None:
        """Take up what was found in a row group, and see that it lies behind the one before."""
        for finding in looked.findings:
            self.add(finding)
        group = looked.group
        if looked.first is None or looked.last is None:
            self.whole[group.collection] = False
            return last
        self.imports[group.collection].update(looked.imports)
        file = group.file
        if last is not None and (looked.first.id <= last.id or looked.first.created_at <= last.created_at):
            why = f"id or time does not rise above what comes before: id {last.id}, time {last.created_at}"
            self.found("order", file.path, why, f"row {group.first_row}, id {looked.first.id}")
        if group.number == 0 and looked.first.id != file.first_id:
            self.found("log", file.path, f"begins with id {looked.first.id}, and the log says {file.first_id}")
        if group.is_last and looked.last != HighWaterMark(file.last_id, file.last_created_at):
            why = f"ends with id {looked.last.id}, time {looked.last.created_at}; the log says {file.last_id},"
            self.found("log", file.path, f"{why} {file.last_created_at}")
        if group.is_last and group.index is not None and not _is_ordered(group.index):
            looked.stale.append("hashes")
        if looked.stale:
            folder = self.paths.cache / index_name(group.collection, file.path)
            self.found_index(folder, f"{', '.join(looked.stale)} not as in its data file")
        return looked.last

    def name_twins(self, collection: Collection, waiting: list[StagedRow], shared: Array) -> None:
        """Look at the texts once more and name those that are there twice."""
        places: dict[str, str] = {}

        def meet(text: str, where: Path, row: str) -> None:
            if text in places:
                self.found("twice", where, f"{_shown(text)} is also {places[text]}", row)
            elif len(places) < 100 * _SHOWN:
                places[text] = f"in {self.named(where)}, {row}"

        for group in self.row_groups(collection):
            try:
                with pq.ParquetFile(group.file.path, metadata=group.metadata) as file:
                    ids, text = (_column(file, group, name) for name in ("id", "text_signature"))
            except _Damaged:
                continue
            digests, _ = check_canonical(collection, text)
            for row in np.flatnonzero(np.isin(keys_of(digests).high, shared)).tolist():
                meet(text[row].as_py(), group.file.path, f"row {group.first_row + row}, id {ids[row]}")
        for staged in waiting:
            meet(staged.text, self.paths.staging, f"id {staged.id}")

    # What is beside the table.

    def look_at_rejects(self) -> None:
        for entry in self.entries:
            summary = entry.summary or {}
            rejected = summary.get("totals", {}).get("rejected", 0)
            if not rejected:
                continue
            path = self.paths.rejects_file(summary["run"])
            try:
                rows, digest = rows_and_digest(path)
            except UnreadableWarehouse as error:
                why = str(error).removeprefix(f"{path}: ") if path.exists() else "missing"
                self.found("rejects", path, f"{why}; import {summary['import']} refused {rejected}")
                continue
            if rows != rejected:
                self.found("rejects", path, f"{rows} rows; import {summary['import']} refused {rejected}")
            elif summary.get("rejects_sha256", digest) != digest:
                self.found("rejects", path, f"not the rows that import {summary['import']} refused")

    def look_for_left_overs(self) -> None:
        """Name the files that belong to nothing: listed first, then compared with what has come since."""
        listed = [*self.paths.table.glob("collection=*/*"), *self.paths.rejects.glob("*")]
        indexes = [path for path in self.paths.cache.glob("*") if path.is_dir()]
        unfinished: list[str] = []
        with suppress(UnreadableWarehouse), looking(self.paths.staging) as staging:
            unfinished = staging.unfinished()
        newest = read_snapshot(self.paths)
        try:
            entries = list(read_entries(self.paths, newest.version))
        except (UnreadableWarehouse, KeyError, TypeError):
            return  # told already
        named = {file.path for entry in entries for file in entry.added}
        runs = {(entry.summary or {}).get("run") for entry in entries}
        named |= {self.paths.rejects_file(run) for run in runs if run}
        for path in sorted(listed):
            if path not in named and not path.name.startswith(tuple(unfinished)) and path.exists():
                self.note("orphan", path, "no version names it")
        used = {index_name(collection, file.path) for collection, files in newest.files.items() for file in files}
        for path in sorted(indexes):
            if path.name.removeprefix(".") not in used and path.exists():
                self.note("orphan", path, "an index of no data file of the newest version")
        for path in dead_runs(self.paths.tmp):
            self.note("orphan", path, "left by an import that was killed")


class _Damaged(Exception):
    """A column that cannot be read."""


def _column(file: pq.ParquetFile, group: _Group, name: str) -> pa.Array:
    """A column of a row group as one array of all its rows; raises _Damaged."""
    try:
        column = file.read_row_group(group.number, columns=[name]).column(0).combine_chunks()
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        raise _Damaged(f"{name} cannot be read: {str(error).partition(chr(10))[0]}") from error
    if len(column) != group.rows:
        raise _Damaged(f"{name} has {len(column)} rows, and the footer says {group.rows}")
    return column


class _Rows:
    """One row group's columns, looked at."""

    def __init__(self, group: _Group, rows: pa.RecordBatch, where: str, looked: _Looked) -> None:
        self.group, self.rows, self.where, self.looked = group, rows, where, looked
        self.ids = rows["id"].to_numpy()
        self.created_at = rows["created_at"].view(pa.int64()).to_numpy()

    def look(self, folded: Array, wanted: Mapping[int, StagedRow]) -> None:
        looked = self.looked
        looked.first = HighWaterMark(int(self.ids[0]), int(self.created_at[0]))
        looked.last = HighWaterMark(int(self.ids[-1]), int(self.created_at[-1]))
        numbers, counts = np.unique(self.rows["import_id"].to_numpy(), return_counts=True)
        looked.imports = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        self.tell(np.diff(self.ids, prepend=self.ids[0] - 1) <= 0, "order", "its id is not above the one before")
        times = np.diff(self.created_at, prepend=self.created_at[0] - 1)
        self.tell(times <= 0, "order", "its created_at is not above the one before")
        digests, canonical = check_canonical(self.group.collection, self.rows["text_signature"])
        self.tell(~canonical, "text", "not canonical")
        width = self.group.collection.hash_bytes
        bounds, raw = bytes_of(self.rows["hash"])
        if (np.diff(bounds) != width).any():
            self.tell(np.diff(bounds) != width, "hash", f"not of {width} bytes")
        else:
            stored = raw[bounds[0] : bounds[-1]].reshape(-1, width)
            self.tell((stored != digests[:, :width]).any(axis=1), "hash", "not the hash of its text")
            self.compare_index(stored)
        self.compare_statistics()
        self.meet_folded(folded, wanted)
        looked.high = keys_of(digests).high

    def tell(self, wrong: Array, what: str, why: str) -> None:
        rows = np.flatnonzero(wrong)
        if len(rows):
            first = int(rows[0])
            row = f"row {self.group.first_row + first}, id {self.ids[first]}"
            text = _shown(self.rows["text_signature"][first].as_py())
            self.looked.findings.append(Finding(what, self.where, row, f"{why}: {text}", len(rows) - 1))

    def compare_statistics(self) -> None:
        """Readers skip row groups by these."""
        metadata = self.group.metadata.row_group(self.group.number)
        for number in range(metadata.num_columns):
            chunk = metadata.column(number)
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                continue
            bounds = pc.min_max(self.rows[chunk.path_in_schema]).as_py()
            if (statistics.min, statistics.max) != (bounds["min"], bounds["max"]):
                why = f"the smallest and largest {chunk.path_in_schema} are not those in the footer"
                self.looked.findings.append(Finding("file", self.where, f"row group {self.group.number}", why))

    def compare_index(self, stored: Array) -> None:
        index = self.group.index
        if index is None:
            return
        first, last = self.group.first_row, self.group.first_row + len(self.ids)
        bounds, data = bytes_of(self.rows["text_signature"])
        offsets = index.offsets[first : last + 1]
        same = {
            "ids": np.array_equal(index.ids[first:last], self.ids),
            "created_at": np.array_equal(index.created_at[first:last], self.created_at),
            "offsets": (first > 0 or int(offsets[0]) == 0) and np.array_equal(np.diff(offsets), np.diff(bounds)),
            "text": np.array_equal(index.text[offsets[0] : offsets[-1]], data[bounds[0] : bounds[-1]]),
            "hash": np.array_equal(index.hash[first:last], stored),
        }
        self.looked.stale += [name for name, is_same in same.items() if not is_same]

    def meet_folded(self, folded: Array, wanted: Mapping[int, StagedRow]) -> None:
        """Look for the staged rows that count as folded, if any are of this group's ids."""
        here = folded[np.searchsorted(folded, self.ids[0]) : np.searchsorted(folded, self.ids[-1], side="right")]
        if not len(here):
            return
        at = np.searchsorted(self.ids, here).clip(max=len(self.ids) - 1)
        for row in at[self.ids[at] == here].tolist():
            staged = wanted[int(self.ids[row])]
            if (staged.created_at, staged.text) == (self.created_at[row], self.rows["text_signature"][row].as_py()):
                self.looked.folded.add(staged.id)


def _is_ordered(index: Segment) -> bool:
    return isinstance(index.hashes, np.ndarray) and is_sorted_by_hash(index.hashes, index.hash)


def _shown(text: str) -> str:
    return json.dumps(text if len(text) <= 80 else text[:80] + "...")
