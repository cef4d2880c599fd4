"""The few file operations that durability rests on: sync, locks, run folders."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import BinaryIO, Self

from sigdir.signatures.interruption import check, waiting
from sigdir.warehouse.table.errors import Busy
from sigdir.warehouse.table.paths import folder_lock

# PyDLL holds the GIL during a call of 1 us. Python's own functions release it, and reacquiring it on a busy server
# costs 100 us: four such calls were a third of each commit of staged rows.
_libc = ctypes.PyDLL(None)
# struct stat of Linux with 64 bits begins with device and inode, and has the times of the last read and write at these bytes.
_HAS_STAT = sys.platform == "linux" and sys.maxsize > 1 << 32 and hasattr(_libc, "stat")
_STAT_BYTES, _LAST_READ, _LAST_WRITTEN = 144, 72, 88
_Stat = ctypes.c_char * _STAT_BYTES

_FREE_BYTES = 1 << 20
"""With less free a POST may fail: SQLite's log grows with it."""

_PART = ".part"
_PART_SECONDS = 3600.0
"""A file that ``replacing`` has not written to for so long was left by a killed process."""


def is_there(path: bytes) -> bool:
    """Whether there is a file or folder at a path, which is given in bytes. Holds the GIL: 1 us."""
    return bool(_libc.access(path, os.F_OK) == 0)


def file_identity(path: bytes) -> bytes:
    """What tells the file at a path from any other: its device and inode, empty for no file. Holds the GIL: 1 us."""
    return file_state(path)[:16]


def file_state(path: bytes) -> bytes:
    """What differs once the file at a path was replaced or written to, empty for no file. Holds the GIL: 1 us.

    It begins with the file's device and inode.
    """
    if not _HAS_STAT:
        try:
            found = os.stat(path)
        except OSError:
            return b""
        identity = found.st_dev.to_bytes(8, sys.byteorder) + found.st_ino.to_bytes(8, sys.byteorder)
        return identity + f"{found.st_size} {found.st_mtime_ns}".encode()
    about = _Stat()
    return about.raw[:_LAST_READ] + about.raw[_LAST_WRITTEN:] if _libc.stat(path, about) == 0 else b""


def is_read_only(folder: Path) -> bool:
    """Whether a folder is there and cannot be written, because of its medium or its permissions."""
    return folder.exists() and not os.access(folder, os.W_OK)


def lock(handle: int) -> None:
    """Take the exclusive lock of an open file, waiting for it if needed; holds the GIL where it is free."""
    if _libc.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB) != 0:
        with waiting():
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
    """A file to write beside ``path``; it is synced and replaces ``path`` where the block ends without an error.

    An OSError names ``path``, or its folder if that is missing: users do not know the file beside it.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{_PART}")
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
            error.filename = str(path if path.parent.is_dir() else path.parent)
        raise
    sync(path.parent)


def may_be_replacing(beside: Path) -> bool:
    """Whether ``replacing`` may be writing this file: it has such a name and was written to in the last hour."""
    if not (beside.name.startswith(".") and beside.name.endswith(_PART)):
        return False
    with suppress(FileNotFoundError):
        return beside.stat().st_mtime > time.time() - _PART_SECONDS
    return False


def write_file(path: Path, data: bytes) -> None:
    """Replace a small file: afterwards it is whole and on stable storage, or as it was."""
    with replacing(path) as file:
        file.write(data)


_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def has_locks(file: Path) -> bool:
    """Whether the file system of a file, of which nobody holds a lock, has locks of files and of ranges, as SQLite's are."""
    with suppress(FileNotFoundError), file.open("rb") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno not in _NO_LOCKS
    return True


class FileLock:
    """An exclusive lock that the kernel drops when its holder dies, however it dies.

    The file names the holder, for the message to whoever waits.
    """

    def __init__(
        self, path: Path, wait: bool = True, is_needed: bool = True, on_wait: Callable[[str], None] = lambda _: None
    ) -> None:
        """``wait`` says whether it is waited for where it is held; ``on_wait`` is called before, with the holder's name.

        One that is not ``is_needed`` saves work, or keeps a folder from being removed: where the file system has no
        locks its holder goes on without it.
        """
        self._path = path
        self._wait, self._is_needed, self._on_wait = wait, is_needed, on_wait
        self._handle = self._pid = -1

    def acquire(self) -> None:
        """Take the lock; raises Busy, naming the holder, where it is held and not waited for."""
        try:
            self._take(wait=False)
        except Busy as busy:
            if not self._wait:
                raise
            self._on_wait(f"waiting: {busy}")
            self._take(wait=True)

    def _take(self, wait: bool) -> None:
        handle = self._locked(wait)
        # Whoever held the lock may have removed the file before we locked it: others lock a new one. Where its folder
        # is gone too, opening it again raises FileNotFoundError.
        while os.fstat(handle).st_nlink == 0:
            os.close(handle)
            handle = self._locked(wait)
        self._handle, self._pid = handle, os.getpid()
        with suppress(OSError):  # on a full disk we still hold the lock
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": int(time.time())}).encode(), 0)

    def _locked(self, wait: bool) -> int:
        """A handle of the file that has the lock."""
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with waiting():
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno in _NO_LOCKS and not self._is_needed:
                return handle
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy(f"{self._path} is held by {self.holder()}") from None
            raise
        except BaseException:
            os.close(handle)
            raise
        return handle

    def release(self) -> None:
        if self._handle >= 0:
            if self._pid == os.getpid():  # a child that was forked meanwhile has the handle, and would keep the lock
                unlock(self._handle)
            os.close(self._handle)
            self._handle = -1

    def holder(self) -> str:
        """The holder's process id and since when it holds the lock, as text."""
        try:
            holder = json.loads(self._path.read_bytes())
            since = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(holder["since"]))
            return f"process {holder['pid']} since {since}"
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def run_name() -> str:
    """A unique name for a run. Names sort by time, and so do the files named after them."""
    return f"{time.time_ns() // 1000:016d}-{uuid.uuid4().hex[:8]}"


class RunFolder:
    """A running import's folder below ``tmp``, removed at its end, or by another process once the run is dead."""

    def __init__(self, tmp: Path) -> None:
        self.name = run_name()
        self.path = tmp / self.name
        self._lock = FileLock(folder_lock(self.path), wait=False, is_needed=False)

    def __enter__(self) -> Self:
        while True:
            make_folder(self.path)
            try:
                self._lock.acquire()
                return self
            except (Busy, FileNotFoundError):  # another process took it for dead before it was locked
                continue
            except BaseException:  # interrupted
                shutil.rmtree(self.path, ignore_errors=True)
                raise

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.release()


def dead_runs(tmp: Path) -> Iterator[Path]:
    """The folders of runs whose process is gone, each locked until the next one is yielded.

    Removing one is safe: a live run locks its folder before it writes anything into it. In the instant
    between making the folder and locking it the folder is empty, and the run makes it again.
    """
    for folder in sorted(tmp.iterdir()) if tmp.is_dir() else ():
        try:
            with FileLock(folder_lock(folder), wait=False):
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


def own_temporary_folder(name: str, parent: str | None = None) -> Path:
    """A folder of this user's in ``parent``, by default the system's temporary one; nobody else may enter it.

    ``name`` is followed by the user. What dead processes left in it, by a RunFolder, is removed. Another user may have
    made it, to read what is written there: then it is a new one.
    """
    shared = Path(parent or gettempdir()) / f"{name}-{os.getuid()}"
    with suppress(FileExistsError):
        shared.mkdir(mode=0o700)
    about = shared.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        shared = Path(mkdtemp(prefix=f"{name}-", dir=parent))
    remove_dead_runs(shared)
    return shared


def mark(path: Path) -> None:
    """Note that something succeeded now, for any process to read. Nothing is synced: a lost mark is made again later."""
    with suppress(FileNotFoundError):  # there is no warehouse yet
        path.touch()


def marked_at(path: Path) -> float | None:
    """Seconds since 1970 of the last mark; None if there was none."""
    with suppress(FileNotFoundError):
        return path.stat().st_mtime
    return None


def is_disk_full(folder: Path) -> bool:
    """Whether the disk of a folder has less than 1 MiB free."""
    with suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < _FREE_BYTES
    return False


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; files deleted meanwhile count nothing."""
    total = 0
    for file in path.rglob("*") if path.is_dir() else [path]:
        with suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def remove(path: Path) -> None:
    """Delete a file or a folder with its contents, if it is still there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM until the end of the block.

    For the last step of a publish: a signal before it stops the run with nothing published; a signal
    during it is ignored, and the run ends by itself some milliseconds later.
    """
    check()
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
