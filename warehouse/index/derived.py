"""Folders in the cache, derived from data files: built under another name, checked by their bytes, mapped by every process.

Invariants
    A folder has its final name only when it is complete and synced, and it never changes.
    ``checksums.json`` has the CRC-32 of each of its files. It finds damage, and is no defence against someone who can write
    there. Reading and comparing takes 0.3 ms a megabyte, with sha256 0.9.
    A folder is used only if its files are as they were written; otherwise whoever needs it builds it again. A flipped bit in
    a column would let a known text be POSTed again, give a wrong answer, or point outside of the columns, which kills the
    process. So each worker reads all columns once.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from sigdir.warehouse.table.files import FileLock, make_folder, sync
from sigdir.warehouse.table.paths import index_lock, index_part

_PIECE_BYTES = 1 << 18


def checksum_of(path: Path) -> int:
    """The CRC-32 of a file; raises OSError."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            found = zlib.crc32(piece, found)
    return found


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


def require_written(folder: Path, names: Iterable[str]) -> None:
    """Raise ValueError or OSError where a file is not as it was written."""
    checksums = json.loads((folder / CHECKSUMS).read_bytes())
    for name in names:
        if not isinstance(checksums, dict) or checksums.get(name) != checksum_of(folder / name):
            raise ValueError(f"{folder / name} is not as it was written")
