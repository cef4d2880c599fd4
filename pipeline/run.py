"""An import from end to end. This file is the flow.

::

    find -> open -> detect -> read -> canonicalise -> spill    (no lock is held: others may publish)
                                                        |
                               publish <- select new <--+      (the publish lock is held)

1. ``find`` the inputs that the paths name. A member of an archive is an input like a file in a folder.
2. ``open_each`` opens one input after the other, decompressed, in a background thread.
3. ``detect`` its format. The format's reader yields the input's candidates in batches.
4. ``canonicalise`` each batch: encoding, grammar, declared hash. There is one thread per core, a bounded number of
   batches is in flight, and results come in order.
5. Accepted rows go to spill files and rejects to a rejects file in the run's folder, so memory does not
   grow with the input.
6. Under the publish lock, select the rows that the warehouse lacks, hash them and publish them as one version, together
   with the sightings of all accepted rows: which source says what about which text.

The reader of a format whose inputs refer to each other (Solidity) gets them one by one, and yields their
candidates after all other inputs.

Steps 2 to 5 are threads of this process, or what the caller passes, such as an engine's tasks (``engine.py``).
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sigdir.pipeline.contract_rows import ContractRows
from sigdir.pipeline.errors import BadInput, printable
from sigdir.pipeline.formats.registry import (
    FORMATS,
    Format,
    Import,
    MultiSourceReader,
    by_name,
    detect,
    named,
    skip_reason,
)
from sigdir.pipeline.inputs import find, open_each
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import SKIP_REASONS, ImportReport, UnreadInputs
from sigdir.pipeline.source import Source
from sigdir.pipeline.state import ImportState
from sigdir.signatures.candidates import Candidates, ReadTask, Sightings
from sigdir.signatures.canonicalise import BatchResult, canonicalise
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import SOLVED_SOURCE, Deployed, Sighting, Witness
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.publish.batch import Staged
from sigdir.warehouse.publish.dedupe import new_rows
from sigdir.warehouse.publish.publish import Publisher
from sigdir.warehouse.publish.renewal import mapped_evidence
from sigdir.warehouse.publish.sightings import EvidenceFiles
from sigdir.warehouse.staging.writer import make_warehouse, refuse_other_files
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.errors import CommitConflict
from sigdir.warehouse.table.files import RunFolder, run_name
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import store_of

if TYPE_CHECKING:
    from sigdir.warehouse.sql.contracts import ContractTables
    from sigdir.warehouse.sql.scratch import ScratchTables

DEFAULT_MEMORY_LIMIT = "512MB"

COMMIT_TRIES = 20
"""Attempts to commit to a store. Each one lost is a commit of another process."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to import and how: the command's options."""

    paths: list[str]
    warehouse: Path
    collection: Collection = SIGNATURES
    """For candidates whose kind the input does not state."""
    format: str | None = None
    source: str | None = None
    """The label of the source; without one each file on disk is a source."""
    dry_run: bool = False
    wait: bool = True
    strict: bool = False
    """Stop at the first file of a folder or an archive that cannot be read."""
    follow_links: bool = False
    """Read what links in folders lead to."""
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    memory_limit: str = DEFAULT_MEMORY_LIMIT
    """DuckDB's limit. Above it DuckDB spills to the run's folder."""
    replace_source: bool = False
    """The inputs are all that their sources say: earlier sightings of these sources do not count any more."""
    columns: tuple[tuple[str, str], ...] = ()
    """The columns of tables that the user names: what each is, and its name."""
    chain: int = 1
    """That of contracts whose input names none."""
    contract: Deployed | None = None
    """The contract whose ABI the inputs are."""
    usage: bool = False
    """The inputs are counts of selectors and topics, and no texts."""


@dataclass
class ImportRun:
    """What the steps of one import share."""

    options: Options
    paths: Paths
    progress: Reporter
    report: ImportReport
    state: ImportState
    unread: UnreadInputs
    name: str
    """The run's name, empty for a dry run."""
    began: float = field(default_factory=time.monotonic)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[None]:
        """Time a stage and report its progress."""
        began = time.monotonic()
        self.progress.stage(name, total)
        yield
        self.report.stages[name] = time.monotonic() - began


ReadInputs = Callable[[ImportRun, list[Source]], None]
"""Reads all inputs into ``run.state``, in their order."""


def run_import(
    options: Options, progress: Reporter, read: ReadInputs | None = None, sources: list[Source] | None = None
) -> ImportReport:
    """Carry out one import. Raises BadInput or a WarehouseError; then nothing was published.

    Without ``read`` threads of this process read the inputs. ``sources`` are the inputs where the paths of the options
    are only their names.
    """
    _check_format(options.format)
    make_garbage_collection_rare()
    report = ImportReport(dry_run=options.dry_run)
    unread = UnreadInputs(report, options.strict)
    if sources is None:
        sources = find(options.paths, unread, options.follow_links)
    paths = Paths(options.warehouse.absolute())
    _check_warehouse(paths, options)
    if not options.dry_run:
        make_warehouse_and_say(paths, progress)
    with ExitStack() as stack:
        name, folder = _make_folder(paths, options, stack)
        contracts = ContractRows(
            lambda: _contract_tables(options, folder), options.chain, options.contract
        )  # fmt: skip
        state = stack.enter_context(ImportState(folder, report, contracts))
        run = ImportRun(options, paths, progress, report, state, unread, name)
        _read(run, read or _read_here, sources)
        if options.dry_run:
            _select_new(run, read_snapshot(paths), staged={})
        else:
            _publish(run)
    return report


# Before reading.


def _check_format(name: str | None) -> None:
    if name is not None and by_name(name) is None:
        known = ", ".join(dict.fromkeys(format.name for format in FORMATS))
        raise BadInput(name, f"no such format; the formats are {known}")


def make_garbage_collection_rare() -> None:
    """Row-wise readers create millions of tuples and no cycles. With the default threshold the search for
    cycles takes a third of their time.
    """
    gc.set_threshold(200_000, 20, 100)


def _check_warehouse(paths: Paths, options: Options) -> None:
    """Fail before hours of reading if the warehouse cannot be used or the memory limit is invalid."""
    refuse_other_files(paths)
    read_snapshot(paths)
    if options.memory_limit != DEFAULT_MEMORY_LIMIT:
        _check_engine(options.memory_limit, options.threads)


@cache
def _check_engine(memory_limit: str, threads: int) -> None:
    """Once in a process: an engine takes 20 ms, and 0.1 s to load. Few imports need it."""
    from sigdir.warehouse.sql.engine import connect

    connect(memory_limit, threads).close()


def _scratch_tables(options: Options, folder: Path) -> ScratchTables:
    from sigdir.warehouse.sql.engine import connect
    from sigdir.warehouse.sql.scratch import ScratchTables

    return ScratchTables(connect(options.memory_limit, options.threads, folder))


def _contract_tables(options: Options, folder: Path) -> ContractTables:
    from sigdir.warehouse.sql.contracts import ContractTables
    from sigdir.warehouse.sql.engine import connect

    return ContractTables(connect(options.memory_limit, options.threads, folder))


def make_warehouse_and_say(paths: Paths, progress: Reporter) -> None:
    """Make the warehouse where the folder holds none. The note shows a mistyped folder."""
    if make_warehouse(paths):
        progress.note(f"new warehouse at {paths.root}")


def _make_folder(paths: Paths, options: Options, stack: ExitStack) -> tuple[str, Path]:
    """The run's name and its folder, which is removed at the end. A dry run writes outside the warehouse."""
    if options.dry_run:
        return "", Path(stack.enter_context(TemporaryDirectory(prefix="sigdir-")))
    run_folder = stack.enter_context(RunFolder(paths.tmp))
    return run_folder.name, run_folder.path


# Without the lock: read, canonicalise, spill.


def _read(run: ImportRun, read: ReadInputs, sources: list[Source]) -> None:
    """Read all inputs into ``run.state``."""
    with run.stage("read", sum(source.size for source in sources)):
        read(run, sources)
        run.state.finish_reading()
    if not run.report.files:
        raise BadInput(", ".join(run.options.paths), _why_nothing_was_read(run.report))
    failpoints.reach("read")


def _why_nothing_was_read(report: ImportReport) -> str:
    if report.faults:
        first = report.faults[0]
        return f"no file can be read ({len(report.faults):,} tried); the first: {first.path}: {first.reason}"
    skipped = ", ".join(f"{count:,} {SKIP_REASONS[reason]}" for reason, count in report.skip_reasons().items())
    return f"no file of a known format (skipped: {skipped or 'none'})"


def _read_here(run: ImportRun, sources: list[Source]) -> None:
    with InputReader(run) as reader:
        reader.read(sources)
        reader.read_kept()


class InputReader(AbstractContextManager["InputReader"]):
    """Reads inputs into the state of an import, with threads of this process."""

    def __init__(self, run: ImportRun) -> None:
        self._run = run
        self._readers: dict[str, MultiSourceReader] = {}
        self._open = ExitStack()
        self._pool = self._open.enter_context(ThreadPoolExecutor(run.options.threads))

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def read(self, sources: list[Source]) -> None:
        """Read the next inputs. What refers to other inputs is kept for ``read_kept``."""
        self._canonicalise(self._tasks(sources))

    def read_kept(self) -> None:
        """Read the inputs that refer to each other, format by format."""
        for name, reader in self._readers.items():
            self._run.progress.stage(f"read {name}", 0)
            self._canonicalise(reader.read())

    def multi_source(self, format: Format, make: Callable[[Import], MultiSourceReader]) -> MultiSourceReader:
        """The reader of a format whose inputs refer to each other."""
        if format.name not in self._readers:
            job = Import(self._run.options.paths, self._make_tables, partial(_refuse, self._run))
            self._readers[format.name] = make(job)
        return self._readers[format.name]

    def _make_tables(self) -> ScratchTables:
        return self._open.enter_context(_scratch_tables(self._run.options, self._run.state.folder))

    def _tasks(self, sources: list[Source]) -> Iterator[ReadTask]:
        """Detect the format of each input and yield what its reader yields."""
        run = self._run
        for source in open_each(sources, run.progress.advance, run.options.format, run.unread):
            source.columns = run.options.columns
            with run.unread.faults_of(source):
                if run.options.usage:
                    yield from _read_input(run, source, "usage", run.state.add_usage)
                    continue
                format = _chosen_format(source, run.options.format)
                if format is None:
                    run.unread.skip(source.name, skip_reason(source))
                elif format.multi_source is not None:
                    reader = self.multi_source(format, format.multi_source)
                    yield from _read_input(run, source, format.name, reader.add)
                elif format.read is not None:
                    yield from _read_input(run, source, format.name, format.read)

    def _canonicalise(self, tasks: Iterator[ReadTask]) -> None:
        run = self._run
        work = partial(_canonicalise_task, default=run.options.collection.code)
        for results in ordered_map(self._pool, work, tasks, ahead=2 * run.options.threads):
            for result in results:
                run.state.add_result(_as_solved(result) if run.options.source == SOLVED_SOURCE else result)
                run.progress.rows(result.read)


def _refuse(run: ImportRun, number: int, error: BadInput) -> None:
    """Note the fault of an input that is read together with others."""
    run.state.input(number).fault = error.reason
    run.unread.add_fault(error)


def _as_solved(result: BatchResult) -> BatchResult:
    """What a search found, each text as solved: whatever the input says of it, nobody is known to use it."""
    found = Sighting(witness=Witness.SOLVED)
    accepted = {
        collection: replace(rows, sightings=Sightings.alike(found, len(rows.text)))
        for collection, rows in result.accepted.items()
    }
    return replace(result, accepted=accepted)


def _read_input(
    run: ImportRun, source: Source, format: str, read: Callable[[Source], Iterator[ReadTask] | None]
) -> Iterator[ReadTask]:
    """What ``read`` yields, with the input's size and hash, or its fault, in the report."""
    file = run.state.add_input(source, format, printable(run.options.source) if run.options.source else None)
    try:
        yield from read(source) or ()
        file.bytes, file.sha256 = source.finish()
    except BadInput as error:
        file.fault = error.reason
        raise


def _chosen_format(source: Source, name: str | None) -> Format | None:
    """The format that the user named, or the detected one; None for a file that is skipped."""
    if name is not None:
        return named(name, source)
    format = detect(source)
    if format is None and source.explicit:
        raise BadInput(source.name, "unknown format; name it with --format")
    return format


def _canonicalise_task(task: ReadTask, default: int) -> list[BatchResult]:
    """Run in a worker thread: parse the task if it is not parsed yet, then canonicalise its batches."""
    batches = [task] if isinstance(task, Candidates) else task()
    return [canonicalise(batch, default) for batch in batches]


# Holding the lock: select new rows, publish.


def _publish(run: ImportRun) -> None:
    """Publish the new rows and the rejects as one version, unless there is nothing new.

    A warehouse in a store has no lock: where another import commits first, ours is compared with its rows and
    committed again, as a run of its own.
    """
    for attempt in range(1, COMMIT_TRIES + 1):
        try:
            _publish_once(run)
            return
        except CommitConflict:
            if attempt == COMMIT_TRIES or store_of(run.paths) is None:
                raise
            run.progress.note("another process has committed first: comparing with what it brought, and trying again")
            run.name = run_name()
            run.state.forget_ids()


def _publish_once(run: ImportRun) -> None:
    """One attempt; raises CommitConflict, and then nothing is published."""
    options, state, report = run.options, run.state, run.report
    with Publisher(run.paths, options.threads, options.wait, run.progress.note) as publisher:
        failpoints.reach("locked")
        staged = {collection: publisher.staged(collection) for collection in COLLECTIONS}
        _select_new(run, publisher.snapshot, staged)
        failpoints.reach("deduped")
        replaces = options.replace_source and not report.faults
        if options.replace_source and not replaces:
            run.progress.note("a file cannot be read to its end: what the sources said before is not withdrawn")
        batches = state.batches(replaces)
        rows = sum(batch.rows for batch in batches.values())
        evidence = EvidenceFiles(run.paths, run.name, publisher.snapshot.evidence, batches, options.threads)
        unchanged = evidence.unchanged()
        brings_evidence = not evidence.labels() <= unchanged
        mapped = mapped_evidence(publisher.snapshot.evidence, state.mapped(), replaces)
        same_rejects = _import_with_rejects(run.paths, state.rejects_digest)
        brings_rejects = state.rejects_digest is not None and same_rejects is None
        if not (rows or brings_evidence or mapped or brings_rejects):
            report.rejects_in = same_rejects
            return
        with run.stage("write", rows):
            done = publisher.publish(
                run.name, batches, _checked_ids(publisher.snapshot, staged), lambda: _log_entry(run),
                rejects=state.rejects_path, progress=run.progress.advance, unchanged=unchanged,
                mapped=mapped,
            )  # fmt: skip
        state.count_imported()
        report.sightings, report.withdrawn = done.sightings, done.withdrawn
        report.published = True
        report.version = done.snapshot.version
        report.rejects_in = done.import_id if state.rejects_path else None


def _select_new(run: ImportRun, snapshot: Snapshot, staged: Staged) -> None:
    """Find the accepted rows that are not in the snapshot, not staged and not earlier in this import."""
    with run.stage("dedupe", 0):
        run.state.set_new_rows(
            {
                collection: new_rows(
                    spill, snapshot, staged.get(collection, []), run.options.threads, run.state.text_ids(collection)
                )
                for collection, spill in run.state.spills.items()
            }
        )
    run.report.version = snapshot.version


def _checked_ids(snapshot: Snapshot, staged: Staged) -> dict[Collection, int]:
    """The highest id of each collection that the new rows were compared with."""
    return {c: staged[c][-1].id if staged[c] else snapshot.high_water[c].id for c in COLLECTIONS}


def _import_with_rejects(paths: Paths, digest: str | None) -> int | None:
    """The number of an earlier import with the same rejects, or None."""
    entries = history(paths) if digest is not None else ()
    return next((int(entry["import"]) for entry in entries if entry.get("rejects_sha256") == digest), None)


def _log_entry(run: ImportRun) -> dict[str, object]:
    """This import's entry in the log. The publisher calls this last, when the counts are final."""
    run.state.count_imported()
    return {
        "kind": "import",
        "source": printable(run.options.source) if run.options.source else None,
        "sources": [file.to_dict() for file in run.report.files],
        "totals": run.report.totals(),
        "collections": run.report.collections(),
        "reasons": run.report.reasons(),
        "faults": [asdict(fault) for fault in run.report.faults],
        "seconds": round(time.monotonic() - run.began, 3),
        "rejects_sha256": run.state.rejects_digest,
    }
