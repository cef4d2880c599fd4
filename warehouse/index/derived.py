"""Folders that are derived from data files: built under another name, checked by their bytes, mapped by every process.

Invariants
    A folder has its final name only when it is complete and synced, and it never changes.
    ``checksums.json`` has the checksum of each of its files. A folder is used only if its files are as they were
    written; otherwise whoever needs it builds it again.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.python_parser import PARSER_LOCK
from sigdir.warehouse.index.checksums import checksum_of
from sigdir.warehouse.table.files import sync

CHECKSUMS = "checksums.json"


@contextmanager
def building(folder: Path, part: Path) -> Iterator[Path]:
    """The empty folder ``part`` to fill, which becomes ``folder`` at the end of the block. The caller holds its lock."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(part, ignore_errors=True)  # left by a process that was killed
    part.mkdir()
    try:
        yield part
        # Without this a power loss could leave files of the right size without their bytes, unnoticed.
        for file in (*part.iterdir(), part):
            sync(file)
        part.rename(folder)
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


def write_checksums(folder: Path, names: Iterable[str]) -> None:
    """Note the checksums of these files of a folder."""
    checksums = {name: checksum_of(folder / name) for name in names}
    (folder / CHECKSUMS).write_text(json.dumps(checksums))


def require_written(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError or OSError where a file is not as it was written."""
    checksums = json.loads((folder / CHECKSUMS).read_bytes())
    for name in names:
        if not isinstance(checksums, dict) or checksums.get(name) != checksum_of(folder / name):
            raise ValueError(f"{folder / name} is not as it was written")
