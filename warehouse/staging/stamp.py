"""The stamp: a file beside the database, in shared memory, that shows each commit and the highest ids given out.

It holds a number that changes with every commit, the highest ids, and a checksum of these. The number is ``OPEN`` while
a process may commit: what it commits can be read before the new number is there. The ids are written after the commit
and not synced, so they may be behind the database, never ahead.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths

_BYTES = 32
_GIVEN = struct.Struct(f"<{len(COLLECTIONS)}qI")
_CHECKSUM_BYTES = 4

OPEN = b"\xff" * 8
"""The number while a process may commit. It stays where that process dies, until the next commit."""


def given_out(paths: Paths) -> dict[Collection, int]:
    """The highest ids that were given out, as far as the stamp has them."""
    try:
        return _given_in(paths.staging_stamp.read_bytes()[:_BYTES])
    except OSError:
        return dict.fromkeys(COLLECTIONS, 0)


@contextmanager
def open_stamp(stamp: mmap.mmap, given: Mapping[Collection, int]) -> Iterator[None]:
    """Mark the stamp as open, and show at the end that there was a commit, and ``given``, the highest ids it gave out.

    The caller excludes all other writers.
    """
    (previous,) = struct.unpack("<q", stamp[:8])
    stamp[:8] = OPEN
    try:
        yield
        _note_given(stamp, given)
    finally:
        stamp[:8] = struct.pack("<q", max(previous + 1, time.time_ns()))


def _note_given(stamp: mmap.mmap, given: Mapping[Collection, int]) -> None:
    if given:
        known = _given_in(stamp[:_BYTES])
        ids = struct.pack(f"<{len(COLLECTIONS)}q", *(max(known[c], given.get(c, 0)) for c in COLLECTIONS))
        stamp[8 : 8 + _GIVEN.size] = ids + zlib.crc32(ids).to_bytes(_CHECKSUM_BYTES, "little")


def writable_stamp(path: Path) -> mmap.mmap:
    """The stamp, made where it is missing; raises UnreadableWarehouse."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    try:
        # Allocate the block now: on a full disk this is an error, writing to a hole is a SIGBUS.
        os.posix_fallocate(handle, 0, _BYTES)
        return mmap.mmap(handle, _BYTES)
    except OSError as error:
        raise UnreadableWarehouse(f"{path}: {error.strerror}") from error
    finally:
        os.close(handle)


def readable_stamp(path: Path) -> mmap.mmap:
    """The stamp as writers change it; zeros where there is none."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return mmap.mmap(-1, 8)


def _given_in(stamp: bytes) -> dict[Collection, int]:
    """The highest ids by a stamp; zeros where it has none, or was not written as a whole."""
    found = stamp[8 : 8 + _GIVEN.size].ljust(_GIVEN.size, b"\0")
    *ids, checksum = _GIVEN.unpack(found)
    is_whole = checksum == zlib.crc32(found[:-_CHECKSUM_BYTES])
    return dict(zip(COLLECTIONS, ids if is_whole else [0] * len(COLLECTIONS), strict=True))
