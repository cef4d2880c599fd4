"""An import on Spark's API: PySpark, Spark Connect, or Sail. This file is the flow.

::

    map:         files, splits of files ─ canonicalise, hash ─► texts, keys and rejects in the run's folder
    deduplicate: keys and numbers ─ grouped by key, the least number wins ─► numbers of the rows that are not new
    write:       flags, ids ─► data files in the run's folder ─ publisher ─► table

The engine schedules tasks (``tasks.py``) and shuffles keys of 16 bytes with the rows' numbers, never texts. It knows
neither the table nor its log: the driver, which is this process, numbers the rows in the order of the inputs, so that ids
are dense, and publishes as every import does. Only what Spark Connect offers too is used: ``mapInArrow`` over numbers of
tasks, and ``applyInArrow`` over groups of keys.

This package has to be installed where the executors are. They read inputs in a store themselves, and the store carries
the run's files if the warehouse is in one. If the warehouse or the inputs are in a folder, all executors must see that
folder under the same path.

::

    from sigdir.pipeline.engines import spark
    spark.run(session, Options(["lists/"], Path("data")))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
import pyarrow as pa

from sigdir.pipeline.engines import inputs, tasks
from sigdir.pipeline.engines.files import RunFiles
from sigdir.pipeline.engines.frames import collected, collected_later, is_local
from sigdir.pipeline.engines.rows import JoinedRows
from sigdir.pipeline.engines.tasks import KeySource, Task, task_file
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Flags, ImportRun, Options, Staged, run_import
from sigdir.pipeline.source import Source
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import keys_of
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.publish.batch import FileTask, Progress
from sigdir.warehouse.publish.dedupe import MAP_ROWS, hash_map
from sigdir.warehouse.table.files import run_name
from sigdir.warehouse.table.parallel import result_of
from sigdir.warehouse.table.parquet import WrittenFile
from sigdir.warehouse.table.places import store_of
from sigdir.warehouse.table.stores import open_store
from sigdir.warehouse.transfer.working_copy import IN_STORE, remove_run

_KEYS_A_TASK = 1 << 21
_KEYS_A_BUCKET = 1 << 20
"""A bucket is a table in the memory of one Python worker: 28 MB, and as much again to sort it."""
_POLL_SECONDS, _STORE_POLL_SECONDS = 0.2, 2.0


def run(
    session: Any, options: Options, progress: Reporter | None = None, shares_disk: bool | None = None
) -> ImportReport:
    """Carry out one import on a Spark session, classic or Connect. Raises as ``run_import``, and EngineFailed.

    ``shares_disk`` says whether the executors see the folder of the warehouse's working copy, if it is in a store; by
    default those of a classic session with a local master do.
    """
    shares_disk = _has_local_master(session) if shares_disk is None else shares_disk
    engine = SparkEngine(session, shares_disk)
    try:
        return run_import(options, progress or Reporter(), engine)
    finally:
        engine.clean_up()


def _has_local_master(session: Any) -> bool:
    try:
        return is_local(session.sparkContext.master)
    except Exception:  # noqa: BLE001 - a session of Spark Connect has no context; each engine has errors of its own
        return False


class SparkEngine:
    """The work of one import as tasks of a session."""

    def __init__(self, session: Any, shares_disk: bool = True) -> None:
        self._session = session
        self._shares_disk = shares_disk
        self._files = RunFiles(Path(), Path(), "", b"")
        self._rows: Mapping[Collection, JoinedRows] = {}
        self._stages = 0

    # Map.

    def read(self, run: ImportRun, sources: list[Source]) -> Mapping[Collection, JoinedRows]:
        name = run.paths.name(run.paths.tmp / (run.name or run_name()))  # a dry run has no name
        self._files = RunFiles(run.state.folder, run.paths.root, name, token_bytes())
        store = store_of(run.paths)
        if store is not None and not self._shares_disk:
            (run.state.folder / IN_STORE).touch()
            self._files = replace(self._files, url=store.url)
        run_tasks = partial(self._run, progress=run.progress.advance)
        self._rows = inputs.read(run, sources, run_tasks, self._files)
        return self._rows

    def clean_up(self) -> None:
        """Remove what the run has in the store."""
        if self._files.url:
            remove_run(open_store(self._files.url), self._files.name)

    # Deduplicate.

    def new_rows(self, run: ImportRun, snapshot: Snapshot, staged: Staged) -> dict[Collection, Flags]:
        own = run.state.own_rows.values()  # what this process has read
        self._files.share(file for spill in own if spill.rows for file in (spill.texts_path, spill.keys_path))
        keep = {collection: self._flags(collection, rows.rows) for collection, rows in self._rows.items()}
        stage = self._stage("keys")
        sources = [
            source
            for c, rows in self._rows.items()
            if rows.rows
            for source in self._sources(c, rows, stage, snapshot, staged)
        ]
        if not sources:
            return keep
        for number, source in enumerate(sources):
            self._files.save(task_file(stage, number), source)
        buckets = 1 + sum(source.rows for source in sources) // _KEYS_A_BUCKET
        keys = partial(tasks.key_batches, self._files, stage, buckets=buckets)
        shuffled = self._numbers(len(sources)).mapInArrow(_each_number(keys), tasks.KEYS_SCHEMA).groupBy("bucket")
        repeated = collected(shuffled.applyInArrow(_deduplicator(self._files, stage), tasks.REPEATED_SCHEMA))
        for collection_name, file in zip(*(column.to_pylist() for column in repeated.columns), strict=True):
            numbers, ids = tasks.repeated_rows(self._files, file)
            collection = Collection.of_name(collection_name)
            keep[collection][numbers] = False
            run.state.text_ids(collection).set(numbers, ids)
        return keep

    def _flags(self, collection: Collection, rows: int) -> Flags:
        """All flags set, in a file, because a billion of them are a gigabyte."""
        if not rows:
            return np.ones(0, np.bool_)
        flags = np.memmap(self._files.folder / f"{collection}.flags", np.bool_, "w+", shape=(rows,))
        flags[:] = True
        return flags

    def _sources(
        self, collection: Collection, rows: JoinedRows, stage: str, snapshot: Snapshot, staged: Staged
    ) -> Iterator[KeySource]:
        """All keys of a collection, to be compared."""
        bounds = rows.first_rows()
        cuts = np.unique(np.searchsorted(bounds, np.arange(0, rows.rows, _KEYS_A_TASK))).tolist()
        for first, last in zip(cuts, [*cuts[1:], rows.batches()], strict=True):
            part = rows.part(first, last)
            yield KeySource(
                collection, part.rows, partial(tasks.spilled_keys, part, int(bounds[first])), part.key_files()
            )
        seen = self._hash_map(rows, f"{stage}/{collection}.npy") if snapshot.files[collection] else None
        for file in snapshot.files[collection]:
            keys = partial(tasks.stored_keys, collection, file.path, seen)
            yield KeySource(collection, file.rows, keys, [file.path, *([seen] if seen is not None else [])])
        if held := staged.get(collection):
            digests = np.frombuffer(b"".join(row.digest for row in held), np.uint8).reshape(-1, 32)
            ids = np.array([row.id for row in held], np.int64)
            yield KeySource(collection, len(held), partial(tasks.staged_keys, keys_of(digests), ids))

    def _hash_map(self, rows: JoinedRows, name: str) -> Path | None:
        """The file of ``dedupe.hash_map``; None for a batch that is too large for one."""
        self._files.fetch(rows.key_files() if rows.rows < MAP_ROWS else ())
        seen = hash_map(rows)
        if seen is None:
            return None
        path = self._files.folder / name
        np.save(path, seen)
        self._files.share([path])
        return path

    # Write.

    def writer(self, work: Sequence[FileTask], progress: Progress) -> list[WrittenFile]:
        """Have the data files written into the run's folder, and move them into the table."""
        written: list[WrittenFile] = self._run("write", [self._write(task) for task in work], progress)
        self._files.fetch(file.path for file in written)
        for task, file in zip(work, written, strict=True):
            file.path.replace(task.path)
        return [replace(file, path=task.path) for task, file in zip(work, written, strict=True)]

    def _write(self, task: FileTask) -> Task:
        rows = self._rows[task.rows.collection].part(task.first, task.last)
        part = replace(task, rows=rows, first=0, last=rows.batches())
        return Task(partial(tasks.write_file, part), int(np.count_nonzero(task.numbered)), rows.text_files())

    # Tasks.

    def _run(self, name: str, work: Sequence[Task], progress: Progress) -> list[Any]:
        """Do the tasks of a stage; their results, in their order."""
        if not work:
            return []
        stage = self._stage(name)
        for number, task in enumerate(work):
            self._files.save(task_file(stage, number), task)
        rows = collected_later(self._numbers(len(work)).mapInArrow(_task_runner(self._files, stage), _RESULTS_SCHEMA))
        reported: set[int] = set()
        while len(reported) < len(work) and not rows.done():
            with waiting():
                wait([rows], _STORE_POLL_SECONDS if self._files.url else _POLL_SECONDS)
            for number in tasks.done(self._files, stage) - reported:
                reported.add(number)
                progress(work[number].units)
        found = result_of(rows)
        results = dict(zip(found["number"].to_pylist(), found["result"].to_pylist(), strict=True))
        return [self._files.load(results[number]) for number in range(len(work))]

    def _stage(self, name: str) -> str:
        """The folder of a new stage. A commit that another process overtook has its stages again."""
        self._stages += 1
        stage = f"{self._stages}-{name}"
        (self._files.folder / stage).mkdir()
        return stage

    def _numbers(self, count: int) -> Any:
        """A frame of the numbers of so many tasks, one in each partition."""
        return self._session.range(0, count, 1, count)


# What the engine calls. These are functions in functions because Spark takes nothing else.

_RESULTS_SCHEMA = "number long, result string"
_Batches = Iterator[pa.RecordBatch]


def _each_number(work: Callable[[int], _Batches]) -> Callable[[_Batches], _Batches]:
    def do(batches: _Batches) -> _Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from work(number)

    return do


def _task_runner(files: RunFiles, stage: str) -> Callable[[_Batches], _Batches]:
    def do(number: int) -> _Batches:
        yield pa.record_batch([[number], [tasks.run_task(files, stage, number)]], names=["number", "result"])

    return _each_number(do)


def _deduplicator(files: RunFiles, stage: str) -> Callable[[pa.Table], pa.Table]:
    def deduplicate(bucket: pa.Table) -> pa.Table:
        return tasks.deduplicate(files, stage, bucket)

    return deduplicate
