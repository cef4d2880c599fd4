"""Shared by the tests of the warehouse: imports step by step, the rows that readers see, checks of whole folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import click.testing
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sigdir.cli.main import main
from sigdir.signatures.candidates import Rows
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import keccak256_column
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.entry import FIELD
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.publish import batch, dedupe
from sigdir.warehouse.publish.batch import Batch, Progress
from sigdir.warehouse.publish.dedupe import new_rows
from sigdir.warehouse.publish.publish import Published, Publisher
from sigdir.warehouse.publish.spill import ImportSightings, SightedInput, Spill, text_ids_in
from sigdir.warehouse.staging.transaction import HighWaterMark, NewText, StagedRow, Transaction
from sigdir.warehouse.staging.writer import Staging
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.files import RunFolder, make_folder
from sigdir.warehouse.table.parquet import (
    FILE_SCHEMA,
    REJECT_SCHEMA,
    SIGHTING_SCHEMA,
    NewRows,
    RejectsWriter,
    rows_and_digest,
    rows_table,
)
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.verify import VerifyReport, verify
from tests.conftest import SAFETY_SECONDS
from tests.processes import FORKED, run_forked

REPOSITORY = Path(__file__).parents[2]

BACKUP_POINTS = ("copied", "logged", "replaced", "mirrored")
"""The failpoints of a backup, in the order in which it reaches them."""

Batches = Sequence[Sequence[str]]
Content = dict[Collection, list[dict[str, Any]]]
"""The rows of a version, in the snapshot's order."""

Digest = Callable[[pa.StringArray], npt.NDArray[np.uint8]]
"""A text column to digests, uint8 of shape (rows, 32)."""


def digest_of(text: str) -> bytes:
    return keccak256(text.encode())


def names(prefix: str, rows: int) -> list[str]:
    """Distinct texts, not in alphabetical order."""
    return [f"{prefix}{number}(uint256)" for number in range(rows)]


def cut(texts: Sequence[str], rows: int) -> list[Sequence[str]]:
    """Split texts into batches of this many rows."""
    return [texts[first : first + rows] for first in range(0, len(texts), rows)]


def make_spill(folder: Path, collection: Collection, batches: Batches) -> Spill:
    spill = Spill(folder, collection)
    for texts in batches:
        spill.append(Rows(pa.array(texts, pa.string())))
    spill.finish()
    return spill


def write_rejects(path: Path, texts: Sequence[str]) -> None:
    """Write a rejects file: a bad_name for each text, from consecutive lines of in.txt."""
    said = {"collection": SIGNATURES, "reason": "bad_name", "position": 1, "file": "in.txt"}
    rows = [said | {"text": text, "line": line} for line, text in enumerate(texts, 1)]
    writer = RejectsWriter(path)
    writer.append(pa.Table.from_pylist(rows, schema=REJECT_SCHEMA))
    writer.finish()


class Run:
    """An import step by step. Entering it spills the batch, takes the lock and dedupes the batch."""

    def __init__(
        self,
        paths: Paths,
        signatures: Batches = (),
        events: Batches = (),
        *,
        threads: int = 2,
        digest: Digest = keccak256_column,
    ) -> None:
        self.paths = paths
        self.texts: Mapping[Collection, Batches] = {SIGNATURES: signatures, EVENT_SIGNATURES: events}
        self.threads = threads
        self.digest = digest
        self.checked: dict[Collection, int] = {}
        self.batches: dict[Collection, Batch] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for module in (dedupe, batch):
                stack.enter_context(patch.object(module, "keccak256_column", self.digest))
            self.run = stack.enter_context(RunFolder(self.paths.tmp))
            spills = [make_spill(self.run.path, c, self.texts[c]) for c in COLLECTIONS]
            self.publisher = stack.enter_context(Publisher(self.paths, self.threads, wait=False))
            for spill in spills:
                self._dedupe(spill)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _dedupe(self, spill: Spill) -> None:
        collection, snapshot = spill.collection, self.publisher.snapshot
        staged = self.publisher.staged(collection)
        self.checked[collection] = staged[-1].id if staged else snapshot.high_water[collection].id
        ids = text_ids_in(self.run.path / f"{collection}.ids", spill.rows)
        keep = new_rows(spill, snapshot, staged, self.threads, ids)
        said = ImportSightings([SightedInput("by hand", None)], [0] * spill.batches(), ids)
        self.batches[collection] = Batch(spill, keep, said)

    def publish(self, progress: Progress = lambda _: None, rejects: Sequence[str] = ()) -> Published:
        file = self.run.path / "rejects.parquet" if rejects else None
        if file is not None:
            write_rejects(file, rejects)

        def summary() -> dict[str, Any]:
            rows = sum(batch.spill.rows for batch in self.batches.values())
            imported = sum(batch.rows for batch in self.batches.values())
            totals = {"read": rows + len(rejects), "imported": imported, "duplicate": rows - imported}
            totals["rejected"] = len(rejects)
            source = {"path": "in.txt", "format": "text", "bytes": 7, "sha256": "00" * 32, **totals}
            said = {"source": "by hand", "sources": [source], "totals": totals, "faults": [], "seconds": 0.5}
            digest = rows_and_digest(file)[1] if file is not None else None
            return {"kind": "import", "rejects_sha256": digest, **said}

        return self.publisher.publish(self.run.name, self.batches, self.checked, summary, file, progress)


def publish(
    paths: Paths, signatures: Sequence[str] = (), events: Sequence[str] = (), rejects: Sequence[str] = ()
) -> Published:
    """Import texts in one step."""
    with Run(paths, cut(signatures, 100), cut(events, 100)) as run:
        return run.publish(rejects=rejects)


def copied(warehouse: Paths, folder: Path) -> Paths:
    """A copy of a warehouse that others keep, in ``folder``."""
    shutil.copytree(warehouse.root, folder / "warehouse")
    return Paths(folder / "warehouse")


def flip(file: Path, at: int | None = None, bit: int = 0) -> None:
    """Flip a bit of a byte, by default the middle one, in a new file: the old one may be linked or mapped elsewhere."""
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2 if at is None else at] ^= 1 << bit
    file.unlink()
    file.write_bytes(raw)


def log_actions(paths: Paths, version: int) -> list[dict[str, Any]]:
    """The actions of a log entry as JSON."""
    return [json.loads(line) for line in paths.log_entry(version).read_bytes().splitlines()]


def remove_digests(paths: Paths) -> None:
    """Make all log entries those of another program, which have no digest; they may then be edited."""
    for version, entry in enumerate(sorted(paths.log.glob("*.json"))):
        actions = log_actions(paths, version)
        for action in actions:
            for field in (FIELD, "engineInfo"):
                action.get("commitInfo", {}).pop(field, None)
        entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with closing(sqlite3.connect(paths.staging)) as connection, connection:
        connection.execute("UPDATE about SET version = -1")


def seal_staged(connection: sqlite3.Connection) -> None:
    """Give each staged row the checksum that fits it."""

    def sealed(collection: str, id: int, created_at: int, text: str, digest: bytes) -> bytes:
        row = f"{collection} {id} {created_at} {text}".encode()
        return digest + zlib.crc32(row, zlib.crc32(digest)).to_bytes(4, "big")

    connection.create_function("sealed", 5, sealed)
    connection.execute(
        "UPDATE staged SET digest = sealed(collection, id, created_at, text_signature, substr(digest, 1, 32))"
    )


def fold(paths: Paths) -> Published:
    """Publish the staged rows alone."""
    with RunFolder(paths.tmp) as run, Publisher(paths, wait=False) as publisher:
        checked = {c: publisher.snapshot.high_water[c].id for c in COLLECTIONS}
        return publisher.publish(run.name, {}, checked, lambda: {"kind": "fold"})


def add_row(transaction: Transaction, collection: Collection, text: str, high_water: HighWaterMark) -> StagedRow | None:
    """Add a row as one POST does; None if the text is staged already."""
    [row] = transaction.stage_all([NewText(collection, text, digest_of(text))], {collection: high_water})
    return row


def stage(paths: Paths, collection: Collection, *texts: str) -> list[StagedRow]:
    """Stage texts as POSTs would. None of them may be in the table or in staging."""
    make_folder(paths.root)
    staging = Staging(paths.staging)
    high_water = read_snapshot(paths).high_water[collection]
    rows = []
    for text in texts:
        with staging.exclusive() as transaction:
            row = add_row(transaction, collection, text, high_water)
        assert row is not None
        rows.append(row)
    staging.close()
    return rows


# The content of a warehouse.


def table_of(snapshot: Snapshot, collection: Collection) -> pa.Table:
    """All rows of a collection, read from its files in the snapshot's order."""
    tables = []
    for file in snapshot.files[collection]:
        with pq.ParquetFile(file.path) as parquet:
            tables.append(parquet.read())
    return pa.concat_tables([FILE_SCHEMA.empty_table(), *tables])


def content_of(paths: Paths, version: int | None = None) -> Content:
    """The rows of a version, read from its files."""
    snapshot = read_snapshot(paths, version)
    return {collection: table_of(snapshot, collection).to_pylist() for collection in COLLECTIONS}


def served_texts(view: View, collection: Collection) -> list[str]:
    """All texts that a server has of a collection, in its order."""
    return [segment.text_at(row) for segment in view.segments[collection] for row in range(segment.rows)]


def staged_table(collection: Collection, rows: Sequence[StagedRow]) -> pa.Table:
    hashes = pa.array([row.digest[: collection.hash_bytes] for row in rows], pa.binary())
    ids, times = (np.array(column, np.int64) for column in ([row.id for row in rows], [row.created_at for row in rows]))
    return rows_table(NewRows(pa.array([row.text for row in rows], pa.string()), hashes), ids, times, import_id=0)


def visible(paths: Paths, staging: Staging | None = None) -> dict[Collection, pa.Table]:
    """The rows that a reader sees: a snapshot and the staged rows above its high water.

    Staging is read first. In the other order a commit between the two could remove rows from staging
    that the older snapshot does not have.
    """
    own = staging or Staging(paths.staging)
    with own.reading() as transaction:
        staged = {c: transaction.rows(c, 0) for c in COLLECTIONS}
    if staging is None:
        own.close()
    snapshot = read_snapshot(paths)
    found = {}
    for c in COLLECTIONS:
        above = [row for row in staged[c] if row.id > snapshot.high_water[c].id]
        found[c] = pa.concat_tables([table_of(snapshot, c), staged_table(c, above)])
    return found


def texts(table: pa.Table) -> list[str]:
    found: list[str] = table["text_signature"].to_pylist()
    return found


def places(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Text to id and created_at (microseconds)."""
    moments = table["created_at"].cast(pa.int64()).to_pylist()
    return dict(zip(texts(table), zip(table["id"].to_pylist(), moments, strict=True), strict=True))


def staged_rows(paths: Paths, collection: Collection) -> list[StagedRow]:
    """All rows in staging, folded or not."""
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        rows = transaction.rows(collection, 0)
    staging.close()
    return rows


def assert_sound(table: pa.Table) -> None:
    """Assert that ids and times rise from row to row and each text occurs once."""
    assert (np.diff(table["id"].to_numpy()) > 0).all()
    assert (np.diff(table["created_at"].cast(pa.int64()).to_numpy()) > 0).all()
    assert pc.count_distinct(table["text_signature"]).as_py() == table.num_rows


def assert_sequences_ahead(paths: Paths) -> None:
    """Assert that the next ids and times lie above all that a reader sees."""
    tables = visible(paths)
    staging = Staging(paths.staging)
    for collection, table in tables.items():
        if table.num_rows:
            with staging.exclusive() as transaction:
                place = transaction.reserve(collection, 1, read_snapshot(paths).high_water[collection])
            assert place.first_id > table["id"][-1].as_py()
            assert place.first_created_at > table["created_at"][-1].value
    staging.close()


def assert_clean(paths: Paths) -> None:
    """Assert that the newest version names every file, and that no run or folded row is left over."""
    snapshot = read_snapshot(paths)
    named = {file.path for file in snapshot.all_files()}
    assert set(paths.table.glob("collection=*/*")) == named
    entries = [entry for entry in history(paths) if "import" in entry and entry["totals"]["rejected"]]
    rejects = {paths.rejects_file(entry["run"]) for entry in entries}
    assert set(paths.rejects.glob("*")) == rejects
    assert list(paths.tmp.glob("*")) == []
    assert_evidence_is_whole(paths)
    staging = Staging(paths.staging)
    with staging.reading() as transaction:
        assert transaction.unfinished() == []
        for collection in COLLECTIONS:
            high_water = snapshot.high_water[collection].id
            assert transaction.rows(collection, 0) == transaction.rows(collection, high_water)
    staging.close()


def sightings(snapshot: Snapshot, collection: Collection = SIGNATURES) -> list[dict[str, Any]]:
    """The sightings of a version that count, in the order of the files."""
    manifest = snapshot.evidence
    tables = [pq.read_table(file.path).cast(SIGHTING_SCHEMA) for file in manifest.files[collection]]
    rows = pa.concat_tables([SIGHTING_SCHEMA.empty_table(), *tables])
    return [row for row in rows.to_pylist() if manifest.counts(row["source"], row["import_id"])]


def verified(paths: Paths) -> VerifyReport:
    """What verify finds, by one thread and in little memory."""
    return verify(paths, 1, "128MB", lambda *_: None, lambda _: None)


def assert_evidence_is_whole(paths: Paths, with_strays: bool = False) -> None:
    """Assert that each row has a sighting and verify is content; ``with_strays`` allows files that no version names."""
    snapshot = read_snapshot(paths)
    report = verified(paths)
    assert report.findings == [], report.findings
    assert with_strays or [note for note in report.notes if note.where.startswith("evidence")] == []
    for collection in COLLECTIONS:
        seen = {row["id"] for row in sightings(snapshot, collection)}
        assert set(table_of(snapshot, collection)["id"].to_pylist()) <= seen


# Processes.


@contextmanager
def other_process(workers: int = 1) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes that share nothing with this one."""
    with ProcessPoolExecutor(workers, mp_context=FORKED) as pool:
        yield pool


def stage_all(path: Path, collection: Collection, wanted: list[str]) -> list[tuple[int, int, str]]:
    """Stage each text by itself and return the new rows. Runs in another process."""
    staging = Staging(path)
    high_water = Snapshot().high_water[collection]
    done = []
    for text in wanted:
        with staging.exclusive() as transaction:
            row = add_row(transaction, collection, text, high_water)
        if row is not None:
            done.append((row.id, row.created_at, row.text))
    staging.close()
    return done


def enter_publisher(root: Path, wait: bool, message_file: Path) -> str:
    """Become the publisher and return the version then, or the error. Runs in another process."""

    def on_wait(text: str) -> None:
        message_file.write_text(text)

    try:
        with Publisher(Paths(root), wait=wait, on_wait=on_wait) as publisher:
            return str(publisher.snapshot.version)
    except WarehouseError as error:
        return f"{type(error).__name__}: {error}"


def environment(**more: str) -> dict[str, str]:
    """This process's environment without the project's settings."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SIGDIR_")}
    return plain | {"PYTHONPATH": str(REPOSITORY)} | more


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "sigdir", *map(str, arguments)]


def run_command(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return run_forked([str(argument) for argument in arguments], REPOSITORY, environment(**variables), SAFETY_SECONDS)


def call_command(*arguments: str | Path) -> click.testing.Result:
    """Run the command in this process, which takes a fifth of the time."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        return click.testing.CliRunner().invoke(main, [str(argument) for argument in arguments])
    finally:
        signal.signal(signal.SIGTERM, handler)


def assert_fails_in_one_line(result: click.testing.Result, *named: str) -> None:
    """Assert that the command ended with status 2 and one line on standard error, which has these parts."""
    assert isinstance(result.exception, SystemExit), repr(result.exception)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.stderr
    assert result.stderr.startswith("Error: ")
    for part in named:
        assert part in result.stderr


# A disk that can be full.


class Disk:
    """A file system in memory whose size can be changed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def resize(self, kibibytes: int) -> None:
        self.mount(f"remount,size={kibibytes}k")

    def make_read_only(self) -> None:
        self.mount("remount,ro")

    def used(self) -> int:
        """In KiB."""
        return shutil.disk_usage(self.path).used // 1024

    def mount(self, options: str) -> None:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.path)],
            check=True, capture_output=True, timeout=SAFETY_SECONDS,
        )  # fmt: skip


def failures(disk: Disk, *arguments: str | Path) -> Iterator[str]:
    """Run a command with more and more room until it succeeds; gives the line of each failure, of one or more."""
    for kibibytes in count(4, 12):
        disk.resize(disk.used() + kibibytes)
        result = call_command(*arguments)
        if result.exit_code == 0:
            break
        assert_fails_in_one_line(result)
        yield result.stderr
    assert kibibytes > 4
    disk.resize(64 * 1024)


@contextmanager
def small_disk(path: Path) -> Iterator[Disk]:
    """A disk that is mounted within the block. Skips the test where mounting is not allowed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: a full disk is a tmpfs that the test mounts")
    path.mkdir()
    disk = Disk(path)
    try:
        disk.mount("size=64m")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a full disk is a tmpfs, which cannot be mounted here: {error}")
    try:
        yield disk
    finally:  # lazily, because a failed command may hold files open until its frames are collected
        subprocess.run(["umount", "--lazy", str(path)], check=True, timeout=SAFETY_SECONDS)
