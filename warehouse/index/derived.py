"""Folders that are derived from data files: built under another name, checked by their bytes, mapped by every process.

Invariants
    A folder has its final name only when it is complete and synced, and it never changes.
    ``checksums.json`` has the checksum of each of its files. A folder is used only if its files are as they were
    written; otherwise whoever needs it builds it again. A flipped bit in a column would let a known text be POSTed again,
    give a wrong answer, or point outside of the columns, which kills the process. So each worker reads all columns once.

Theory. Each of 32,768 lanes takes every 32,768th word of 8 bytes: exclusive or, multiply by an odd number, exclusive or with
its own high half. Each step is a bijection of the lane, so a change inside one word always changes the checksum, and other
changes are missed once in 2^64. That finds damage and is no defence against someone who can write to the folder. numpy
takes 0.3 ms a megabyte with reading, sha256 1.3 ms.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sigdir.signatures.arrow import Array
from sigdir.warehouse.table.files import FileLock, make_folder, sync
from sigdir.warehouse.table.parallel import PARSER_LOCK
from sigdir.warehouse.table.paths import index_lock, index_part

_LANES = 1 << 15
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_HALF = np.uint64(32)


def checksum_of(path: Path) -> str:
    """The checksum of a file's bytes and its size, as text; raises OSError."""
    lanes, shifted = np.arange(1, _LANES + 1, dtype=np.uint64), np.empty(_LANES, np.uint64)
    size, data = 0, bytearray(8 * _LANES)
    piece = np.frombuffer(data, np.uint64)
    with path.open("rb") as file:
        while read := file.readinto(data):
            words = -(-read // 8)
            data[read : 8 * words] = bytes(8 * words - read)
            _mix(lanes[:words], piece[:words], shifted[:words])
            size += read
    used = lanes[: -(-size // 8)]
    return f"{size}-{hashlib.blake2b(used.tobytes(), digest_size=16).hexdigest()}"


def _mix(lanes: Array, words: Array, shifted: Array) -> None:
    lanes ^= words
    lanes *= _FACTOR
    np.right_shift(lanes, _HALF, shifted)
    lanes ^= shifted


CHECKSUMS = "checksums.json"


BROKEN = (OSError, ValueError, EOFError)
"""What opening a folder raises that is missing, or not as it was written."""

Opened = TypeVar("Opened")


def opened(folders: Iterable[Path], open: Callable[[Path], Opened]) -> Opened | None:
    """What ``open`` gives of the first of these folders that is there and whole; None for none."""
    for folder in folders:
        with suppress(*BROKEN):
            return open(folder)
    return None


def build(folder: Path, index: Path, open: Callable[[Path], Opened], write: Callable[[Path], Iterable[str]]) -> Opened:
    """Make a folder unless another process was faster, and give what ``open`` gives of it.

    ``write`` fills a folder and gives the names of its files. Folders of one ``index`` are built, opened and removed one
    after the other.
    """
    make_folder(folder.parent)
    with FileLock(index_lock(index), is_needed=False):
        found = opened([folder], open)
        if found is not None:
            return found
        part = index_part(folder)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
        part.mkdir()
        try:
            checksums = {name: checksum_of(part / name) for name in write(part)}
            (part / CHECKSUMS).write_text(json.dumps(checksums))
            # Without this a power loss could leave files of the right size without their bytes, unnoticed.
            for file in (*part.iterdir(), part):
                sync(file)
            part.rename(folder)
            return open(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def allocate(path: Path, size: int) -> None:
    """Give a file the blocks of so many bytes: a full disk is an error here, and a SIGBUS when a hole is written to."""
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, size)


def new_column(folder: Path, name: str, kind: Any, *shape: int) -> npt.NDArray[Any]:
    """An array to fill, as a new file that ``map_column`` reads."""
    path = folder / f"{name}.npy"
    array = np.lib.format.open_memmap(path, "w+", kind, shape)
    allocate(path, path.stat().st_size)
    return array


def map_column(path: Path) -> npt.NDArray[Any]:
    """Map an array that ``new_column`` or ``np.save`` has written; raises OSError, ValueError or EOFError. Safe for threads."""
    with PARSER_LOCK:
        column: npt.NDArray[Any] = np.load(path, mmap_mode="r")
    return column


def require_written(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError or OSError where a file is not as it was written."""
    checksums = json.loads((folder / CHECKSUMS).read_bytes())
    for name in names:
        if not isinstance(checksums, dict) or checksums.get(name) != checksum_of(folder / name):
            raise ValueError(f"{folder / name} is not as it was written")
