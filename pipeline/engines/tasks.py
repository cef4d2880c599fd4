"""What an engine's tasks do, and how they are done. Nothing of an engine is imported here: a task is a function of files.

A task is a pickle in the run's folder (``files.py``), so that an engine moves numbers and names only. Each attempt
works in a folder of its own and its result counts only if the engine reports it, so a task may fail, be repeated or run
twice at once. An attempt creates only its own folder. If the import died and its run's folder was removed, attempts
that still run fail and leave no files.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from sigdir.pipeline.engines.files import RunFiles
from sigdir.pipeline.run import make_garbage_collection_rare
from sigdir.warehouse.table import failpoints

TASKS = "read"
"""The folder of the tasks in the run's folder."""

# An engine inside of this process (Sail) starts all tasks at once. Each holds blocks of an input in memory.
_PERMITS = BoundedSemaphore(os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of work. It may be done again, and elsewhere."""

    work: Callable[[Path], Any]
    """Does the work, with files in the given folder. It and its result can be pickled."""
    units: int
    """How much work it is, in the units of the progress."""


def task_file(number: int) -> str:
    return f"{TASKS}/{number:06d}.task"


def run_task(run_files: RunFiles, number: int) -> str:
    """Do a task; returns the name of the file with its result."""
    with _PERMITS, run_files.here() as files:
        make_garbage_collection_rare()
        task: Task = files.load(task_file(number))
        attempt = f"{TASKS}/{number:06d}-{uuid.uuid4().hex[:8]}"
        folder = files.folder / attempt
        folder.mkdir()
        failpoints.reach("task_begun")
        result = task.work(folder)
        files.share(file for file in folder.iterdir() if file.is_file())
        files.save(f"{attempt}/result", result)
        failpoints.reach("task_written")
        return f"{attempt}/result"


def done(run_files: RunFiles) -> set[int]:
    """The numbers of the tasks that are done."""
    return {int(Path(name).parent.name.partition("-")[0]) for name in run_files.saved(TASKS, "result")}
