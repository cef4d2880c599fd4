"""An import on Spark's API: PySpark, Spark Connect, or Sail. This file is the flow.

::

    map:         piece of an input ─ canonicalise, hash ─► texts, keys and rejects in the run's folder
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

import os
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from secrets import token_bytes
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

from sigdir.pipeline.engines import plan, tasks
from sigdir.pipeline.engines.stage import Places, Stage, StageFiles, StoreStage
from sigdir.pipeline.errors import PipelineError, one_line
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Flags, ImportRun, Options, Staged, run_import
from sigdir.pipeline.source import Source
from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import keys_of
from sigdir.signatures.errors import missing_package
from sigdir.warehouse.batch import FileTask, Progress
from sigdir.warehouse.dedupe import MAP_ROWS, hash_map, row_groups
from sigdir.warehouse.files import run_name
from sigdir.warehouse.home import store_of
from sigdir.warehouse.parquet import WrittenFile
from sigdir.warehouse.snapshot import Snapshot
from sigdir.warehouse.stores import Store, open_store
from sigdir.warehouse.working_copy import IN_STORE, remove_run

_KEYS_A_TASK = 1 << 21
_KEYS_A_BUCKET = 1 << 20
"""A bucket is a table in the memory of one Python worker: 28 MB, and as much again to sort it."""
_CONNECT_PORT = 15002
"""Of Spark Connect, where the URL has none."""
_CONNECT_SECONDS = 10
_CLASSIC = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
_TRIES, _BACKOFF_MS = 8, 5000
"""A request to a Connect server that does not answer is repeated for 25 s. By default it is for ten minutes, and an import
whose server has died would wait that long."""


class EngineFailed(PipelineError):
    """The engine cannot be reached, or a task of it failed."""


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


def is_local(master: str | None) -> bool:
    """Whether all processes of a master are on this machine: Sail in this process, ``local[N]`` and ``local-cluster[...]``."""
    return master is None or master.startswith("local")


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
        self._folder = Path()
        self._stages = 0
        self._in_store: StoreStage | None = None
        """The run's folder, where the store carries its files."""

    # Map.

    def read(self, run: ImportRun, sources: list[Source]) -> None:
        self._folder = run.state.folder
        store = store_of(run.paths)
        if store is not None and not self._shares_disk:
            self._in_store = self._run_in_store(run, store)
        plan.read(run, sources, lambda stage, work: self._run(stage, work, run.progress.advance))

    def _run_in_store(self, run: ImportRun, store: Store) -> StoreStage:
        (self._folder / IN_STORE).touch()
        name = run.paths.name(run.paths.tmp / (run.name or run_name()))  # a dry run has no name
        places = Places([(name, self._folder), ("", run.paths.root)])
        return StoreStage(self._folder, url=store.url, places=places, secret=token_bytes())

    def clean_up(self) -> None:
        """Remove what the run has in the store."""
        if self._in_store is not None:
            remove_run(open_store(self._in_store.url), self._in_store.places.folders[0][0])

    # Deduplicate.

    def new_rows(self, run: ImportRun, snapshot: Snapshot, staged: Staged) -> dict[Collection, Flags]:
        keep = {collection: self._flags(collection, spill.rows) for collection, spill in run.state.spills.items()}
        stage = self._stage("keys")
        stage_files = stage.make()
        sources = list(self._key_sources(run, snapshot, staged, stage_files))
        if not sources:
            return keep
        groups = list(_in_groups(sources))
        buckets = 1 + sum(rows for _, rows in sources) // _KEYS_A_BUCKET
        for number, group in enumerate(groups):
            tasks.put_keys(stage_files, number, group)
        rows = self._numbers(len(groups)).mapInArrow(_key_reader(stage, buckets), tasks.KEYS_SCHEMA)
        dropped = _collected(rows.groupBy("bucket").applyInArrow(_deduplicator(stage), tasks.DROPPED_SCHEMA))
        for name, file in zip(dropped["collection"].to_pylist(), dropped["file"].to_pylist(), strict=True):
            numbers, ids = tasks.dropped(stage_files, file)
            collection = Collection.of_name(name)
            keep[collection][numbers] = False
            run.state.text_ids(collection).set(numbers, ids)
        return keep

    def _flags(self, collection: Collection, rows: int) -> Flags:
        """All flags set, in a file, because a billion of them are a gigabyte."""
        if not rows:
            return np.ones(0, np.bool_)
        flags = np.memmap(self._folder / f"{collection}.flags", np.bool_, "w+", shape=(rows,))
        flags[:] = True
        return flags

    def _key_sources(
        self, run: ImportRun, snapshot: Snapshot, staged: Staged, stage_files: StageFiles
    ) -> Iterator[tuple[tasks.KeySource, int]]:
        """All keys to compare, in tasks' shares, each with its rows."""
        for collection, spill in run.state.spills.items():
            if not spill.rows:
                continue
            bounds = spill.first_rows()
            cuts = np.unique(np.searchsorted(bounds, np.arange(0, spill.rows, _KEYS_A_TASK)))
            for first, last in zip(cuts.tolist(), [*cuts[1:].tolist(), spill.batches()], strict=True):
                yield tasks.SpilledKeys(spill.part(first, last), int(bounds[first])), int(bounds[last] - bounds[first])
            seen = None
            if snapshot.files[collection] and spill.rows < MAP_ROWS:
                stage_files.fetch(spill.key_files())
                seen = self._saved(stage_files, f"{collection}.seen.npy", hash_map(spill))
            for group in row_groups(snapshot, collection):
                rows = group.metadata.row_group(group.number).num_rows if group.metadata is not None else 0
                yield tasks.StoredKeys(collection, group._replace(metadata=None), seen), rows
            if held := staged.get(collection):
                digests = np.frombuffer(b"".join(row.digest for row in held), np.uint8).reshape(-1, 32)
                ids = np.array([row.id for row in held], np.int64)
                yield tasks.StagedKeys(collection, keys_of(digests), ids), len(held)

    def _saved(self, stage_files: StageFiles, name: str, flags: Flags | None) -> Path | None:
        if flags is None:
            return None
        path = stage_files.folder / name
        np.save(path, flags)
        stage_files.share([path])
        return path

    # Write.

    def writer(self, work: Sequence[FileTask], progress: Progress) -> list[WrittenFile]:
        """Have the data files written into the run's folder, and move them into the table."""
        written = self._run("write", [tasks.WriteFile(task) for task in work], progress)
        for task, file in zip(work, written, strict=True):
            file.path.replace(task.path)
        return [replace(file, path=task.path) for task, file in zip(work, written, strict=True)]

    # Tasks.

    def _run(self, name: str, work: Sequence[tasks.Task], progress: Progress) -> list[Any]:
        """Do the tasks of a stage; their results, in their order."""
        if not work:
            return []
        stage = self._stage(name)
        stage_files = stage.make()
        tasks.put(stage_files, work)
        frame = self._numbers(len(work)).mapInArrow(_task_runner(stage), "number long, result string")
        units = [task.units for task in work]
        waiting = _Waiting(frame)
        reported: set[int] = set()
        while True:
            finished = waiting.is_done(stage.poll_seconds)
            for number in stage_files.done() - reported:
                reported.add(number)
                progress(units[number])
            if finished:
                break
        found = waiting.result()
        results = dict(zip(found["number"].to_pylist(), found["result"].to_pylist(), strict=True))
        return [tasks.result_of(stage_files, task, results[number]) for number, task in enumerate(work)]

    def _stage(self, name: str) -> Stage:
        """A new stage. A commit that another process overtook has its stages again."""
        self._stages += 1
        folder = self._folder / f"{self._stages}-{name}"
        return Stage(folder) if self._in_store is None else replace(self._in_store, folder=folder)

    def _numbers(self, count: int) -> Any:
        """A frame of the numbers of so many tasks, one in each partition."""
        return self._session.range(0, count, 1, count)


def _in_groups(sources: Iterable[tuple[tasks.KeySource, int]]) -> Iterator[list[tasks.KeySource]]:
    """Sources of about ``_KEYS_A_TASK`` rows together."""
    group: list[tasks.KeySource] = []
    rows = 0
    for source, count in sources:
        if group and rows + count > _KEYS_A_TASK:
            yield group
            group, rows = [], 0
        group.append(source)
        rows += count
    if group:
        yield group


# What the engine calls. These are functions in functions because Spark takes nothing else.


def _task_runner(stage: Stage) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([[number], [tasks.run_task(stage, number)]], names=["number", "result"])

    return do


def _key_reader(stage: Stage, buckets: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from tasks.key_batches(stage, number, buckets)

    return read


def _deduplicator(stage: Stage) -> Callable[[pa.Table], pa.Table]:
    def deduplicate(bucket: pa.Table) -> pa.Table:
        return tasks.deduplicate(stage, bucket)

    return deduplicate


class _Waiting:
    """Collects a frame in a thread, which does not keep an interrupted import from ending."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._found: pa.Table | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            self._found = _collected(self._frame)
        except BaseException as error:  # noqa: BLE001 - raised by result
            self._error = error

    def is_done(self, seconds: float) -> bool:
        """Whether the frame is there, after waiting so long at most."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def result(self) -> pa.Table:
        """The rows; raises EngineFailed."""
        if self._error is not None:
            raise self._error
        return self._found


def _collected(frame: Any) -> pa.Table:
    """The rows of a frame. Raises EngineFailed with the sentence that says most."""
    try:
        with _quietly():
            return frame.toArrow()
    except Exception as error:  # each engine has errors of its own
        raise EngineFailed(f"the engine failed: {_reason(error)}") from error


_GRPC_DETAILS = "details = "
"""In front of what an error of gRPC says, in a dump of its fields."""


def _reason(error: Exception) -> str:
    """The last line of an error that names an exception: engines put stack traces of Java around those of Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.", "java."))]
    named = named or [line.removeprefix(_GRPC_DETAILS).strip('"') for line in lines if line.startswith(_GRPC_DETAILS)]
    return one_line((named or lines or [type(error).__name__])[-1 if named else 0])[:500]


# Sessions.


@contextmanager
def open_session(master: str | None) -> Iterator[Any]:
    """A session of a master: ``local[N]``, ``local-cluster[N,cores,MiB]``, ``spark://...``, ``sc://...``, or Sail in
    this process. Raises EngineFailed, which says what is missing.
    """
    opened = _sail() if master is None else _remote(master) if master.startswith("sc://") else _classic(master)
    with _quietly(), _spark_home(), opened as session:
        yield session


@contextmanager
def _sail() -> Iterator[Any]:
    if find_spec("pysail") is None:
        raise EngineFailed(missing_package("Sail", "pysail", "sail"))
    os.environ.setdefault("RUST_LOG", "error")  # Sail's log goes to standard error
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer()
    server.start(background=True)
    try:
        _, port = server.listening_address
        with _remote(f"sc://127.0.0.1:{port}") as session:
            yield session
    finally:
        server.stop()


@contextmanager
def _remote(url: str) -> Iterator[Any]:
    if find_spec("pyspark") is None or find_spec("grpc") is None:
        raise EngineFailed(missing_package("Spark Connect", "pysail", "sail"))
    server = _listening(url)
    from pyspark.sql import SparkSession

    try:
        session = SparkSession.builder.remote(url).create()
    except Exception as error:
        raise EngineFailed(f"{server} does not answer: {_reason(error)}") from error
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=_TRIES, max_backoff=_BACKOFF_MS)])
    try:
        yield session
    finally:
        session.client.set_retry_policies([])  # the server may be gone
        session.stop()


@contextmanager
def _spark_home() -> Iterator[None]:
    """Set SPARK_HOME where pyspark-client, which has no Spark to find, would look for it.

    pyspark takes a process whose main module has no file (``python -c``, a worker of xdist) for its own doctests. For
    these it looks for Spark, and ends the process where there is none.
    """
    found = find_spec("pyspark")
    folders = found.submodule_search_locations if found is not None else None
    has_main_file = hasattr(sys.modules["__main__"], "__file__")
    if has_main_file or find_spec("py4j") is not None or "SPARK_HOME" in os.environ or not folders:
        yield
        return
    os.environ["SPARK_HOME"] = folders[0]
    try:
        yield
    finally:
        del os.environ["SPARK_HOME"]


def _listening(url: str) -> str:
    """The host and port of a Connect URL, whose parameters may hold a token. Raises EngineFailed if nobody listens."""
    try:
        address = urlsplit(url)
        host, port = address.hostname or "", address.port or _CONNECT_PORT
        with socket.create_connection((host, port), _CONNECT_SECONDS):
            return f"sc://{host}:{port}"
    except (OSError, ValueError) as error:
        raise EngineFailed(f"the Spark Connect server does not answer: {one_line(str(error))}") from None


@contextmanager
def _classic(master: str) -> Iterator[Any]:
    if find_spec("py4j") is None or find_spec("pyspark") is None:
        raise EngineFailed(missing_package(f"the master {master}", "pyspark", "spark"))
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        raise EngineFailed(
            f"the master {master} needs Java 17 or newer, which is not there: install it, set JAVA_HOME, or leave"
            " --master out for Sail, which needs none"
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("sigdir import")
    for name, value in _CLASSIC.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise EngineFailed(f"{master} cannot be used: {_reason(error)}") from error
    try:
        yield session
    finally:
        with suppress(Exception):  # Ctrl-C has ended Java too
            session.stop()


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings of pyspark that it does not know pandas 3, which is not used here, and that it gives a server
    up, which the error says too.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
        yield
