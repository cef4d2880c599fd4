"""What an engine's tasks do, and how they are done. Nothing of an engine is imported here: a task is a function of files.

A task is a pickle in the run's folder (``RunFiles``), so that an engine moves numbers and names only. Each attempt
works in a folder of its own and its result counts only if the engine reports it, so a task may fail, be repeated or run
twice at once. An attempt creates only its own folder. If the import died and its run's folder was removed, attempts
that still run fail and leave no files.
"""

from __future__ import annotations

import hmac
import io
import os
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from threading import BoundedSemaphore
from typing import Any

from sigdir.pipeline.run import make_garbage_collection_rare
from sigdir.warehouse.table import failpoints
from sigdir.warehouse.table.files import RunFolder, own_temporary_folder
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.places import REQUESTS
from sigdir.warehouse.table.stores import StoreError, open_store

# The files of one run, as its driver and its tasks see them.
#
# By default all processes see the run's folder under one path. Where the warehouse is in a store and the tasks are on other
# machines, the store carries the files, by the names that they have below the warehouse's folder. A task then works in a
# folder of its own machine, fetches what it reads, shares what it has made, and removes the folder.
#
# Pickles hold these names in place of paths. Each carries an HMAC that only the driver and the tasks can compute:
# unpickling runs code, and others may write into the bucket.


_CODE_BYTES = 32


@dataclass(frozen=True)
class RunFiles:
    """``folder`` is the run's in this process, ``root`` the warehouse's. It can be pickled."""

    folder: Path
    root: Path
    name: str
    """The name of the run's folder below the warehouse's."""
    secret: bytes = field(repr=False)
    url: str = ""
    """The store that carries the files; empty where all processes see them."""

    @contextmanager
    def here(self) -> Iterator[RunFiles]:
        """The files as a task sees them."""
        if not self.url:
            yield self
            return
        with RunFolder(own_temporary_folder("sigdir-tasks")) as own:
            (own.path / self.name).mkdir(parents=True)
            yield replace(self, folder=own.path / self.name, root=own.path)

    def save(self, name: str, value: Any) -> None:
        """Put a value that other processes of the run load; ``name`` is a file's below the run's folder."""
        content = io.BytesIO()
        _Pickler(content, self).dump(value)
        path = self.folder / name
        path.write_bytes(self._code(name, content.getvalue()) + content.getvalue())
        self.share([path])

    def load(self, name: str) -> Any:
        """What was put under this name. Raises StoreError for what another run has written."""
        path = self.folder / name
        self.fetch([path])
        raw = path.read_bytes()
        code, content = raw[:_CODE_BYTES], raw[_CODE_BYTES:]
        if not hmac.compare_digest(code, self._code(name, content)):
            raise StoreError(f"{path}: not what this import has written")
        return _Unpickler(io.BytesIO(content), self).load()

    def fetch(self, files: Iterable[Path]) -> None:
        """Have files at hand that other processes of the run made."""
        missing = [file for file in dict.fromkeys(files) if not file.exists()] if self.url else []
        for folder in {file.parent for file in missing}:
            folder.mkdir(parents=True, exist_ok=True)
        for_each(lambda file: open_store(self.url).download(self.name_of(file) or "", file), missing, REQUESTS)

    def share(self, files: Iterable[Path]) -> None:
        """Let other processes of the run have these files."""
        shared = list(files) if self.url else []
        for_each(lambda file: open_store(self.url).put(self.name_of(file) or "", file), shared, REQUESTS)

    def saved(self, folder: str, name: str) -> list[str]:
        """What has this name in a folder of the folder ``folder``."""
        if self.url:
            found = [PurePath(each.name) for each in open_store(self.url).list(f"{self.name}/{folder}")]
            return [str(path.relative_to(self.name)) for path in found if path.name == name]
        return [str(path.relative_to(self.folder)) for path in (self.folder / folder).glob(f"*/{name}")]

    def name_of(self, path: PurePath) -> str | None:
        """The name of a file of the run or the warehouse; None for any other."""
        for name, folder in ((self.name, self.folder), ("", self.root)):
            if path.is_relative_to(folder):
                return PurePath(name, path.relative_to(folder)).as_posix()
        return None

    def path_of(self, name: str) -> Path:
        """The file with this name, in this process."""
        path = PurePath(name)
        return self.folder / path.relative_to(self.name) if path.is_relative_to(self.name) else self.root / path

    def _code(self, name: str, content: bytes) -> bytes:
        return hmac.digest(self.secret, name.encode() + b"\0" + content, "sha256")


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, files: RunFiles) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._files = files

    def persistent_id(self, value: object) -> str | None:
        return self._files.name_of(value) if isinstance(value, PurePath) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, files: RunFiles) -> None:
        super().__init__(file)
        self._files = files

    def persistent_load(self, name: str) -> Path:
        return self._files.path_of(name)


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
