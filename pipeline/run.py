"""An import from end to end: this file is the flow.

::

    find -> open -> detect -> read -> judge -> spill      (no lock: others publish meanwhile)
                                                 |
                            dedupe -> publish <--+        (holding the publish lock)

Reading runs in this thread and one behind it that unpacks; judging (grammar and hash) in as many
threads as there are cores, in order, a bounded number of batches ahead. What was accepted goes to
the run's spill files, what was refused to its rejects file, so memory does not grow with the input.

An archive's members and a folder's files are inputs alike. Formats whose inputs need each other
(Solidity) take what they need as theirs come by, and are read when all others are.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.registry import (
    FORMATS,
    Format,
    MultiSourceReader,
    by_name,
    detect,
)
from sigdir.pipeline.inputs import find, open_each
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import Example, FileReport, ImportReport
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, ReadTask
from sigdir.signatures.canonicalise import BatchResult, canonicalise
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.grammar import REASONS
from sigdir.warehouse import failpoints
from sigdir.warehouse.batch import Batch
from sigdir.warehouse.dedupe import new_rows
from sigdir.warehouse.files import RunFolder
from sigdir.warehouse.log import history
from sigdir.warehouse.parallel import ordered_map
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.publish import Publisher
from sigdir.warehouse.rejects import RejectsWriter
from sigdir.warehouse.schema import REJECT_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.spill import Spill
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.staging import StagedRow

_EXAMPLES_A_REASON = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What to import and how; the command's flags."""

    paths: list[str]
    warehouse: Path
    collection: Collection = SIGNATURES
    format: str | None = None
    source: str | None = None
    dry_run: bool = False
    wait: bool = True
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    memory_limit: str = "512MB"
    """DuckDB's share; it spills to the run's folder above it."""


def run_import(options: Options, progress: Reporter) -> ImportReport:
    """Carry out one import. Raises BadInput, or a WarehouseError; then nothing was published."""
    if options.format is not None and by_name(options.format) is None:
        known = ", ".join(format.name for format in FORMATS)
        raise BadInput(options.format, f"no such format; there are {known}")
    # Row-wise readers make tuples by the million and no cycles: with the default threshold a third
    # of their time goes into looking for some.
    gc.set_threshold(200_000, 20, 100)
    sources = find(options.paths)
    run = _Run(options, progress)
    with ExitStack() as stack:
        paths = Paths(options.warehouse.absolute())
        read_snapshot(paths)  # what cannot be published into is told before hours of reading
        connect(paths, options.memory_limit, options.threads).close()  # and a limit that is none
        if options.dry_run:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="sigdir-")))
        else:
            run_folder = stack.enter_context(RunFolder(paths.tmp))
            run.name, folder = run_folder.name, run_folder.path
        stack.callback(run.close)
        run.open(folder)
        run.read(sources)
        if options.dry_run:
            run.compare(paths, folder, read_snapshot(paths), staged={})
        else:
            run.publish(paths, folder)
    return run.report


class _Run:
    """One import's state: its spills, its rejects, its report."""

    def __init__(self, options: Options, progress: Reporter) -> None:
        self.options = options
        self.progress = progress
        self.name = ""
        self.report = ImportReport(dry_run=options.dry_run)
        self.files: dict[int, FileReport] = {}
        self.segments: dict[Collection, list[tuple[int, int]]] = {c: [] for c in COLLECTIONS}
        self.keep: dict[Collection, npt.NDArray[np.bool_]] = {}

    def open(self, folder: Path) -> None:
        self.rejects = RejectsWriter(folder / "rejects.parquet")  # makes no file before it must
        self.spills: dict[Collection, Spill] = {}
        for collection in COLLECTIONS:
            self.spills[collection] = Spill(folder, collection)

    def close(self) -> None:
        with ExitStack() as stack:  # all of them, whichever fails
            for spill in self.spills.values():
                stack.callback(spill.close)
            stack.callback(self.rejects.close)

    # Without the lock: read, normalise, hash, spill.

    def read(self, sources: list[Source]) -> None:
        default = self.options.collection.code
        with self.stage("read", sum(source.size for source in sources)):
            with ThreadPoolExecutor(self.options.threads) as pool:
                work = self.work(sources)
                ahead = 2 * self.options.threads
                for judged in ordered_map(pool, lambda item: _judged(item, default), work, ahead):
                    for result in judged:
                        self.record(result)
            for spill in self.spills.values():
                spill.finish()
            self.rejects_digest = self.rejects.finish()
        self.report.files = list(self.files.values())
        if not self.report.files:
            looked = f"{len(self.report.skipped):,} files looked at"
            raise BadInput(", ".join(self.options.paths), f"nothing of a known format ({looked})")
        failpoints.reach("read")

    def work(self, sources: list[Source]) -> Iterator[ReadTask]:
        together: dict[str, MultiSourceReader] = {}
        with ExitStack() as stack:
            for source in open_each(sources, self.progress.advance, self.options.format):
                format = self.format_of(source)
                if format is None:
                    self.report.skipped.append(source.name)
                    continue
                source.number = len(self.files)
                file = self.files[source.number] = FileReport(source.name, format.name, leaves=source.file_names)
                if format.multi_source is None:
                    yield from format.read(source)
                else:
                    if format.name not in together:
                        together[format.name] = stack.enter_context(format.multi_source())
                    together[format.name].add(source)
                file.bytes, file.sha256 = source.finish()
            for gathered in together.values():
                yield from gathered.read()

    def format_of(self, source: Source) -> Format | None:
        if self.options.format is not None:
            return by_name(self.options.format)
        format = detect(source)
        if format is None and source.explicit:
            raise BadInput(source.name, "of no known format; name one with --format")
        return format

    def record(self, result: BatchResult) -> None:
        """Spill what was accepted, keep what was rejected, count both."""
        file = self.files[result.file]
        file.read += result.read
        for collection, accepted in result.accepted.items():
            rows = len(accepted.text)
            file.accepted[collection] += rows
            self.spills[collection].append(accepted)
            self.segments[collection].append((result.file, rows))
        self.record_rejects(file, result)
        self.progress.rows(result.read)

    def record_rejects(self, file: FileReport, result: BatchResult) -> None:
        rejected = result.rejected
        rows = len(rejected.text)
        if not rows:
            return
        counts = np.bincount(rejected.reasons, minlength=len(REASONS))
        for code in np.flatnonzero(counts).tolist():
            reason = REASONS[code]
            shown = sum(example.reason == reason for example in self.report.examples)
            for row in np.flatnonzero(rejected.reasons == code)[: _EXAMPLES_A_REASON - shown].tolist():
                text, position = rejected.text[row].as_py()[:200], int(rejected.columns[row])
                self.report.examples.append(Example(reason, text, position, *file.place(int(rejected.lines[row]))))
            file.reasons[reason] += int(counts[code])
        reasons = pa.DictionaryArray.from_arrays(rejected.reasons.astype(np.int8), list(REASONS))
        if file.leaves is None:
            names, lines = pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), [file.path]), rejected.lines
        else:
            places = [file.place(line) for line in rejected.lines.tolist()]
            names = pa.array([name for name, _ in places]).dictionary_encode()
            lines = np.array([line for _, line in places], np.int64)
        columns = [rejected.collections, rejected.text, reasons, rejected.columns, names, lines]
        self.rejects.append(pa.table(columns, schema=REJECT_SCHEMA))

    # Holding the lock: dedupe, publish.

    def publish(self, paths: Paths, folder: Path) -> None:
        with Publisher(paths, self.options.threads, self.options.wait, self.progress.note) as publisher:
            failpoints.reach("locked")
            staged = {collection: publisher.staged(collection) for collection in COLLECTIONS}
            self.compare(paths, folder, publisher.snapshot, staged)
            failpoints.reach("deduped")
            self.report.version = publisher.snapshot.version
            batches = {c: Batch(self.spills[c], self.keep[c]) for c in COLLECTIONS}
            rows = sum(batch.rows for batch in batches.values())
            same = self.import_with_same_rejects(paths)
            if not rows and (self.rejects_digest is None or same is not None):
                self.report.rejects_in = same
                return
            with self.stage("write", rows):
                checked = {
                    c: staged[c][-1].id if staged[c] else publisher.snapshot.high_water[c].id for c in COLLECTIONS
                }
                done = publisher.publish(
                    self.name, batches, checked, self.summary,
                    rejects=self.rejects.path if self.rejects.rows else None,
                    progress=self.progress.advance,
                )  # fmt: skip
            self.count_imported()
            self.report.published = True
            self.report.version = done.snapshot.version
            self.report.rejects_in = done.import_id if self.rejects.rows else None

    def compare(
        self, paths: Paths, folder: Path, snapshot: Snapshot, staged: dict[Collection, list[StagedRow]]
    ) -> None:
        """Decide which accepted rows are new: ``keep``, a flag a row."""
        with self.stage("dedupe", 0):
            engine = connect(paths, self.options.memory_limit, self.options.threads, folder)
            with engine:
                for collection, spill in self.spills.items():
                    self.keep[collection] = new_rows(
                        spill, snapshot, staged.get(collection, []), engine, self.options.threads
                    )  # fmt: skip
        self.report.version = snapshot.version
        self.count_imported()

    def count_imported(self) -> None:
        """Share the kept rows out to the files they came from."""
        for file in self.files.values():
            file.imported.clear()
        for collection, segments in self.segments.items():
            at = 0
            for number, rows in segments:
                kept = np.count_nonzero(self.keep[collection][at : at + rows])
                self.files[number].imported[collection] += int(kept)
                at += rows

    def import_with_same_rejects(self, paths: Paths) -> int | None:
        if self.rejects_digest is None:
            return None
        for entry in history(paths):
            if entry.get("rejects_sha256") == self.rejects_digest:
                return int(entry["import"])
        return None

    def summary(self) -> dict[str, Any]:
        """What the commit tells of this import; asked for at the very end, when counts are final."""
        self.count_imported()
        return {
            "kind": "import",
            "source": printable(self.options.source) if self.options.source else None,
            "sources": [file.as_dict() for file in self.report.files],
            "totals": self.report.totals(),
            "collections": self.report.collections(),
            "reasons": self.report.reasons(),
            "seconds": round(time.monotonic() - self.began, 3),
            "rejects_sha256": self.rejects_digest,
        }

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[None]:
        began = time.monotonic()
        if name == "read":
            self.began = began
        self.progress.stage(name, total)
        yield
        self.report.stages[name] = time.monotonic() - began


def _judged(work: ReadTask, default: int) -> list[BatchResult]:
    batches = [work] if isinstance(work, Candidates) else work()
    return [canonicalise(batch, default) for batch in batches]
