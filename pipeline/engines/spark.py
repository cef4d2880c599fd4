"""The reading of an import on Spark's API: PySpark, Spark Connect, or Sail. This file is the flow.

::

    tasks:  files, splits of files ─ canonicalise ─► texts, sightings and rejects in the run's folder
    driver: all of them in the order of the inputs ─► the import goes on as any other: select, write, commit

The engine schedules tasks (``tasks.py``): it moves numbers and names, never texts. Only what Spark Connect offers too is
used: ``mapInArrow`` over the numbers of the tasks. The driver, which is this process, selects the new rows and writes
the table: to compare keys of 16 bytes takes it a tenth of what an engine takes to shuffle them.

This package has to be installed where the executors are. They read inputs in a store themselves, and the store carries
the run's files if the warehouse is in one. If the warehouse or the inputs are in a folder, all executors must see that
folder under the same path.

::

    from sigdir.pipeline.engines import spark
    spark.run(session, Options(["lists/"], Path("data")))
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from secrets import token_bytes
from threading import Thread
from typing import Any

import pyarrow as pa

from sigdir.pipeline.engines import inputs, tasks
from sigdir.pipeline.engines.tasks import TASKS, RunFiles, Task, task_file
from sigdir.pipeline.errors import PipelineError, one_line
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import ImportRun, Options, run_import
from sigdir.pipeline.source import Source
from sigdir.signatures.interruption import waiting
from sigdir.warehouse.table.files import run_name
from sigdir.warehouse.table.parallel import result_of
from sigdir.warehouse.table.places import store_of
from sigdir.warehouse.table.stores import open_store
from sigdir.warehouse.transfer.working_copy import IN_STORE, remove_run

_POLL_SECONDS, _STORE_POLL_SECONDS = 0.2, 2.0
_Batches = Iterator[pa.RecordBatch]


def run(
    session: Any, options: Options, progress: Reporter | None = None, shares_disk: bool | None = None
) -> ImportReport:
    """Carry out one import on a Spark session, classic or Connect. Raises as ``run_import``, and EngineFailed.

    ``shares_disk`` says whether the executors see the folder of the warehouse's working copy, if it is in a store; by
    default those of a classic session with a local master do.
    """
    shares_disk = _has_local_master(session) if shares_disk is None else shares_disk
    return run_import(options, progress or Reporter(), partial(read_inputs, session, shares_disk))


def _has_local_master(session: Any) -> bool:
    try:
        return is_local(session.sparkContext.master)
    except Exception:  # noqa: BLE001 - a session of Spark Connect has no context; each engine has errors of its own
        return False


def read_inputs(session: Any, shares_disk: bool, run: ImportRun, sources: list[Source]) -> None:
    """Read all inputs into ``run.state``, and remove what the run has in a store."""
    name = run.paths.name(run.paths.tmp / (run.name or run_name()))  # a dry run has no name
    store = None if shares_disk else store_of(run.paths)
    if store is not None:
        (run.state.folder / IN_STORE).touch()
    files = RunFiles(run.state.folder, run.paths.root, name, token_bytes(), store.url if store is not None else "")
    try:
        inputs.read(run, sources, partial(_run_tasks, session, files, run.progress), files)
    finally:
        if store is not None:
            remove_run(open_store(store.url), name)


def _run_tasks(session: Any, files: RunFiles, progress: Reporter, work: Sequence[Task]) -> list[Any]:
    """Do the tasks; their results, in their order."""
    (files.folder / TASKS).mkdir()
    for number, task in enumerate(work):
        files.save(task_file(number), task)
    if not work:
        return []
    numbers = session.range(0, len(work), 1, len(work))  # one in each partition
    rows = collected(numbers.mapInArrow(_runner(files), "number long, result string"))
    reported: set[int] = set()
    while len(reported) < len(work) and not rows.done():
        with waiting():
            wait([rows], _STORE_POLL_SECONDS if files.url else _POLL_SECONDS)
        for number in tasks.done(files) - reported:
            reported.add(number)
            progress.advance(work[number].units)
    found = result_of(rows)
    results = dict(zip(found["number"].to_pylist(), found["result"].to_pylist(), strict=True))
    return [files.load(results[number]) for number in range(len(work))]


def _runner(files: RunFiles) -> Callable[[_Batches], _Batches]:
    """What the engine calls: a function in a function, because Spark takes nothing else."""

    def do(batches: _Batches) -> _Batches:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch([[number], [tasks.run_task(files, number)]], names=["number", "result"])

    return do


# Frames of an engine with Spark's API. Each engine has errors of its own.


class EngineFailed(PipelineError):
    """The engine cannot be reached, or a task of it failed."""


def is_local(master: str | None) -> bool:
    """Whether all processes of a master are on this machine: Sail in this process, ``local[N]`` and ``local-cluster[...]``."""
    return master is None or master.startswith("local")


def collected(frame: Any) -> Future[pa.Table]:
    """The rows of a frame, collected in a thread, which does not keep an interrupted import from ending.

    Their result raises EngineFailed with the sentence that says most.
    """
    rows: Future[pa.Table] = Future()

    def collect() -> None:
        try:
            with quietly():
                rows.set_result(frame.toArrow())
        except Exception as error:  # noqa: BLE001 - each engine has errors of its own
            failure = EngineFailed(f"the engine failed: {reason_of(error)}")
            failure.__cause__ = error
            rows.set_exception(failure)

    Thread(target=collect, daemon=True).start()
    return rows


_GRPC_DETAILS = "details = "
"""In front of what an error of gRPC says, in a dump of its fields."""


def reason_of(error: Exception) -> str:
    """The last line of an error that names an exception: engines put stack traces of Java around those of Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.", "java."))]
    named = named or [line.removeprefix(_GRPC_DETAILS).strip('"') for line in lines if line.startswith(_GRPC_DETAILS)]
    return one_line((named or lines or [type(error).__name__])[-1 if named else 0])[:500]


@contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of pyspark that it does not know pandas 3, which is not used here, and that it gives a server
    up, which the error says too.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
        warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
        yield
