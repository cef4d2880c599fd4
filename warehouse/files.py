"""The few file operations that durability rests on: sync, locks, run folders."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from sigdir.warehouse.errors import Busy

# These keep the interpreter, for they take a microsecond; Python's own let go of it, and on a busy server to get it
# back takes a tenth of a millisecond: of each commit of staged rows four of these calls were a third.
_libc = ctypes.PyDLL(None)


def is_there(path: bytes) -> bool:
    """Whether a path leads to something."""
    return bool(_libc.access(path, os.F_OK) == 0)


def lock(handle: int) -> None:
    """Wait for the exclusive lock of an open file."""
    if _libc.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB) != 0:
        fcntl.flock(handle, fcntl.LOCK_EX)


def unlock(handle: int) -> None:
    _libc.flock(handle, fcntl.LOCK_UN)


def sync(path: Path) -> None:
    """Force a file, or a folder's list of names, to stable storage."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and the ones above it, each name synced into its parent."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write beside ``path`` that takes its place, synced, where the block ends well.

    An OSError names ``path``, for nobody has heard of the file beside it.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename = str(path)
        raise
    sync(path.parent)


def write_file(path: Path, data: bytes) -> None:
    """Put a small file in place: whole and on stable storage, or as it was before."""
    with replacing(path) as file:
        file.write(data)


class FileLock:
    """An exclusive lock that the kernel drops when its holder dies, however it dies.

    The file holds who has it, for the message of the one who must wait.
    """

    def __init__(self, path: Path, wait: bool = True) -> None:
        """``wait`` is what entering the lock as a context does where it is taken."""
        self._path = path
        self._wait = wait
        self._handle = -1

    def acquire(self, wait: bool = True, on_wait: Callable[[str], None] = lambda _: None) -> None:
        """Take the lock; raises Busy, naming the holder, where it is held and ``wait`` is off.

        ``on_wait`` is called with a message naming the holder before waiting.
        """
        try:
            self._take(wait=False)
        except Busy as busy:
            if not wait:
                raise
            on_wait(f"waiting: {busy}")
            self._take(wait=True)

    def _take(self, wait: bool) -> None:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy(f"{self._path} is held by {self.holder()}") from None
            raise
        self._handle = handle
        with suppress(OSError):  # on a full disk the lock is taken all the same
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": int(time.time())}).encode(), 0)

    def release(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def holder(self) -> str:
        """Who holds the lock, in words."""
        try:
            told = json.loads(self._path.read_bytes())
            since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(told["since"]))
            return f"process {told['pid']} since {since}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def __enter__(self) -> Self:
        self.acquire(self._wait)
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def run_name() -> str:
    """A name for a run that no other has. Names sort by time, as the files named after them do."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex[:8]}"


class RunFolder:
    """A running import's folder below ``tmp``, removed at its end, or by others once it is dead."""

    def __init__(self, tmp: Path) -> None:
        self.name = run_name()
        self.path = tmp / self.name
        self._lock = FileLock(self.path / "lock")

    def __enter__(self) -> Self:
        while True:
            make_folder(self.path)
            try:
                self._lock.acquire(wait=False)
                return self
            except (Busy, FileNotFoundError):  # taken for dead before it was locked; make it again
                continue

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def dead_runs(tmp: Path) -> Iterator[Path]:
    """The folders of runs whose process is gone, each locked until the next is asked for.

    Safe to remove: a live run holds its lock from before its folder has anything in it, except in
    the instant between making the folder and taking the lock, and that one is empty.
    """
    for folder in sorted(tmp.iterdir()) if tmp.is_dir() else ():
        try:
            with FileLock(folder / "lock", wait=False):
                yield folder
        except (Busy, OSError):
            continue


def remove_dead_runs(tmp: Path) -> int:
    """Remove the folders of runs whose process is gone; returns how many."""
    removed = 0
    for folder in dead_runs(tmp):
        shutil.rmtree(folder, ignore_errors=True)
        removed += 1
    return removed


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; what goes meanwhile counts nothing."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it, that may be gone already."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Pass over SIGINT and SIGTERM until the end of the block.

    For the last step of a publish: a stop is asked for either before it, and then nothing was
    published, or too late, and then the run ends by itself some milliseconds later.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    stops = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(stop, signal.SIG_IGN) for stop in stops]
    try:
        yield
    finally:
        for stop, handler in zip(stops, before, strict=True):
            signal.signal(stop, handler)
