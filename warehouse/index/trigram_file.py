"""The trigrams of a data file's names at rest: a folder inside of the file's index, built once, mapped by every process.

Publishers build it with the index. Where it is missing, the first search starts to build it, in
a thread that holds no lock of Python's: 0.5 s for a million rows. Until then every byte is scanned.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.columns import as_readonly
from sigdir.warehouse.errors import Busy
from sigdir.warehouse.files import FileLock
from sigdir.warehouse.index.derived import allocate, building, map_column, require_written, write_checksums
from sigdir.warehouse.index.trigrams import Trigrams, build
from sigdir.warehouse.paths import index_lock, trigrams_folder, trigrams_part

Array = npt.NDArray[Any]

_FEW_ROWS = 1 << 14  # are scanned in 0.1 ms
_FILES = ("starts.npy", "lists")
_LOOK_SECONDS = 2.0


class TrigramFile:
    """The trigrams of one data file, opened when they are first searched. Safe for threads."""

    def __init__(self, index: Path, rows: int, builds: bool = True) -> None:
        """``index`` is the folder of the data file's index; with ``builds`` a search builds what is missing."""
        self._index, self._rows, self._builds = index, rows, builds
        self._trigrams: Trigrams | None = None
        self._next_look = 0.0
        self._lock = threading.Lock()

    def opened(self, text: Array, offsets: Array) -> Trigrams | None:
        """The trigrams; None while they are missing, which may start to build them from these columns."""
        if self._trigrams is None and self._rows >= _FEW_ROWS and time.monotonic() >= self._next_look:
            with self._lock:
                if self._trigrams is None and time.monotonic() >= self._next_look:
                    self._look(text, offsets)
                    self._next_look = time.monotonic() + _LOOK_SECONDS
        return self._trigrams

    def _look(self, text: Array, offsets: Array) -> None:
        try:
            self._trigrams = _open(self._index, self._rows)
        except (OSError, ValueError, EOFError):
            if self._builds:
                builder = threading.Thread(target=self._build_if_possible, args=(text, offsets), daemon=True)
                builder.start()

    def _build_if_possible(self, text: Array, offsets: Array) -> None:
        # Another process may be building; a read-only folder or a full disk leaves the search as slow as it is.
        with suppress(Busy, OSError):
            write_trigrams(self._index, text, offsets, self._rows, wait=False)


def write_trigrams(index: Path, text: Array, offsets: Array, rows: int, wait: bool = True) -> None:
    """Build the folder for the data file whose index is given, unless it is there and whole; raises Busy, OSError."""
    if rows < _FEW_ROWS:
        return
    folder, part = trigrams_folder(index), trigrams_part(index)
    with FileLock(index_lock(index), wait, is_needed=False):
        with suppress(OSError, ValueError, EOFError):
            _open(index, rows)
            return
        with building(folder, part):
            trigrams = build(text, offsets, rows, partial(_room, part / _FILES[1]))
            np.save(part / _FILES[0], trigrams.starts)
            write_checksums(part, _FILES)


def _room(path: Path, size: int) -> Array:
    """A new file for lists of so many bytes, mapped: 400 MB for a file of 20 M rows. A mapping is never empty."""
    size = max(1, size)
    allocate(path, size)
    return np.asarray(np.memmap(path, np.uint8, "r+", shape=(size,)))


def _open(index: Path, rows: int) -> Trigrams:
    """Map the folder; raises OSError, ValueError or EOFError where it is missing or not as it was written."""
    folder = trigrams_folder(index)
    require_written(folder, _FILES)
    starts = map_column(folder / _FILES[0])
    lists = np.memmap(folder / _FILES[1], np.uint8, "r")
    return Trigrams(as_readonly(np.asarray(starts)), as_readonly(np.asarray(lists)), rows)
