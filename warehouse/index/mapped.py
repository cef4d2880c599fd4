"""Columns of a data file mapped into memory, with the order of its hashes: what reads are served from.

For each Parquet file there is a folder of the same name below ``cache``, derived from it alone: one
file a column, uncompressed, and ``hashes``, the rows sorted by the first bytes of their hash. Whoever
needs it first builds it, under a lock; every process maps the same pages. It can be deleted at any time
and is built again.

Invariants
    A folder has its final name only once it is whole: it is built beside it and renamed.
    It is never changed. A data file's name is never used again, so neither is the folder's.

Theory of the lookups. An id and a time are found by binary search, for both rise with the row. A hash is
found by binary search in ``hashes``: one number a row, the first four bytes of the hash above and the
row below, sorted. A fragment of text is looked for by its two rarest bytes: one loop compares both with
a whole block of bytes, which LLVM turns into vector compares, and only where both stand at their
distance is the rest looked at (``benchmarks/bench_serve.py``).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from numba import njit

from sigdir.signatures.collections import Collection
from sigdir.signatures.columns import bytes_of
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.files import FileLock, make_folder, sync
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.schema import FILE_SCHEMA

Array = npt.NDArray[Any]

PREFIX_SHIFT = np.uint64(32)
ROW_MASK = np.uint64(0xFFFF_FFFF)
_BATCH_ROWS = 1 << 17
NO_ROWS = np.empty(0, np.int64)


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows of a collection, oldest first. Arrays may be mapped, and may be longer than ``rows``."""

    rows: int
    ids: Array  # int64
    created_at: Array  # int64, microseconds since 1970, UTC
    offsets: Array  # int64, rows + 1
    text: Array  # uint8
    hash: Array  # uint8, rows x width of the collection's hash
    hashes: Array | Mapping[bytes, list[int]]
    """The first four bytes of the hash << 32 | row, sorted (uint64), or rising rows by those bytes.

    Staged rows have the second, which can grow; it may know of rows that came after this segment.
    """

    @classmethod
    def of(
        cls, rows: int, ids: Array, created_at: Array, offsets: Array, text: Array, hash: Array,
        hashes: Array | Mapping[bytes, list[int]],
    ) -> Segment:  # fmt: skip
        """A segment over read-only views. All kernels then see one kind of array and are compiled once."""
        return cls(rows, _frozen(ids), _frozen(created_at), _frozen(offsets), _frozen(text), _frozen(hash), hashes)

    def text_at(self, row: int) -> str:
        return self.text[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    def row_of_id(self, id: int) -> int | None:
        row = int(np.searchsorted(self.ids[: self.rows], id))
        return row if row < self.rows and int(self.ids[row]) == id else None

    def time_range(self, first: int, last: int) -> tuple[int, int]:
        """The rows with ``first <= created_at <= last``, as a half-open range."""
        times = self.created_at[: self.rows]
        return int(np.searchsorted(times, first)), int(np.searchsorted(times, last, side="right"))

    def with_hash(self, digest: bytes) -> Array:
        """The rows with exactly this hash, rising."""
        if isinstance(self.hashes, np.ndarray):
            return self.of_order(*prefix_range(self.hashes, int.from_bytes(digest[:4], "big")), digest)
        known = self.hashes.get(digest[:4])
        if known is None:
            return NO_ROWS
        return self._exactly(np.array([row for row in known if row < self.rows], np.int64), digest)

    def of_order(self, first: int, last: int, digest: bytes) -> Array:
        """The rows with exactly this hash, whose beginning ``hashes[first:last]`` has."""
        order: Any = self.hashes
        return self._exactly((order[first:last] & ROW_MASK).astype(np.int64), digest)

    def _exactly(self, rows: Array, digest: bytes) -> Array:
        if len(digest) == 4:
            return rows
        same: Array = (self.hash[rows] == np.frombuffer(digest, np.uint8)).all(axis=1)
        return rows[same]

    def with_prefixes(self, prefixes: Array) -> tuple[Array, Array, Array]:
        """Where the rows stand whose hash begins with each of these four bytes (uint32), best in rising order.

        Gives ``order, first, last``: those of the n-th prefix are the low halves of
        ``order[first[n]:last[n]]``, rising.
        """
        if isinstance(self.hashes, np.ndarray):
            order = _frozen(self.hashes)
            return order, *_ranges(order, prefixes.astype(np.uint64) << PREFIX_SHIFT)
        raw = prefixes.astype(">u4").tobytes()
        found = [self.hashes.get(raw[at : at + 4], ()) for at in range(0, len(raw), 4)]
        rows = [[row for row in known if row < self.rows] for known in found]
        last = np.cumsum([len(known) for known in rows], dtype=np.int64)
        order = np.array([row for known in rows for row in known], np.uint64)
        return _frozen(order), np.concatenate([[0], last[:-1]]).astype(np.int64), last

    def with_hex(self, digits: str) -> Array:
        """The rows whose hash has these hex digits (lower-case) anywhere, rising."""
        nibbles = np.array([int(digit, 16) for digit in digits], np.uint8)
        found = np.empty(self.rows, np.int64)
        return found[: _scan_hex(self.hash, self.rows, nibbles, found)].copy()

    def with_text(self, fragment: str) -> Array:
        """The rows whose text has the fragment, upper and lower case being the same, rising."""
        return np.concatenate([NO_ROWS, *self._having(fragment)])

    def like(self, pattern: str, limit: int) -> Array:
        """The first ``limit`` rows whose whole text fits the pattern, rising; cases differ.

        In a pattern ``*`` is any run of characters, ``?`` is one.
        """
        wanted = np.frombuffer(re.sub(r"\*+", "*", pattern).encode(), np.uint8)
        found, count = np.empty(limit, np.int64), 0
        for rows in self._having(max(re.split(r"[*?]", pattern), key=len)):
            count = _keep_like(self.text, self.offsets, rows, wanted, found, count)
            if count == limit:
                break
        return found[:count]

    def _having(self, fragment: str) -> Iterator[Array]:
        """The rows that ``with_text`` finds, part by part."""
        needle = _Needle.of(fragment.encode())
        row, size = 0, 1 << 12
        while row < self.rows:
            if not len(needle.wanted):
                first, row = row, min(self.rows, row + size)
                yield np.arange(first, row, dtype=np.int64)
            else:
                found = np.empty(size, np.int64)
                count, row = _scan_text(
                    self.text, self.offsets, self.rows, row,
                    needle.wanted, needle.masks, needle.first, needle.second, found,
                )  # fmt: skip
                yield found[:count]
            size = min(2 * size, 1 << 20)


# How common a byte is in canonical texts, the rarest first; what is not listed is rarer still.
_COMMON = b"etnarsiodu2s56(),lcgbmpfhykAvTBPSwCFDRIOMEVN[]LUH13K_84GW0jxqQ79zJYXZ$"[::-1]


@dataclass(frozen=True, slots=True)
class _Needle:
    """A fragment to look for: ``text & masks == bytes`` is equality without regard to case."""

    wanted: Array
    masks: Array
    first: int
    second: int

    @classmethod
    def of(cls, fragment: bytes) -> _Needle:
        letters = np.array([65 <= byte & 0xDF <= 90 for byte in fragment], np.bool_)
        masks = np.where(letters, 0xDF, 0xFF).astype(np.uint8)
        wanted = np.frombuffer(fragment, np.uint8) & masks
        # The two places of the needle whose bytes are the rarest.
        rarity = [_COMMON.find(bytes([byte]).lower()) for byte in fragment]
        order = sorted(range(len(fragment)), key=rarity.__getitem__)
        first, second = (order[0], order[1]) if len(order) > 1 else (0, 0)
        return cls(wanted, masks, first, second)


# The interpreter is kept: to let go of it for a microsecond and wait to get it back, once a segment, is what
# a lookup on a busy server would spend half of its time with, and numpy's searchsorted does that.
@njit(cache=True)
def prefix_range(hashes: Array, prefix: int) -> tuple[int, int]:
    """The range of the sorted ``hashes`` that begin with these four bytes."""
    return range_between(hashes, len(hashes), np.uint64(prefix) << PREFIX_SHIFT, 0, len(hashes))


@njit(nogil=True, cache=True)
def range_between(hashes: Any, rows: int, key: Any, low: int, high: int) -> tuple[int, int]:
    """The range of the ``rows`` sorted ``hashes`` with the prefix of ``key``, which begins at ``low`` to ``high``."""
    while low < high:
        middle = (low + high) >> 1
        if hashes[middle] < key:
            low = middle + 1
        else:
            high = middle
    last = low
    while last < rows and hashes[last] ^ key <= ROW_MASK:
        last += 1
    return low, last


@njit(nogil=True, cache=True)
def _ranges(hashes: Array, keys: Array) -> tuple[Array, Array]:
    """For each key, a prefix in its upper half, the range of the sorted ``hashes`` that have it.

    A key is looked for from the place of the one before, by steps that double, then halve: where keys
    rise the steps are short and stay where the last ones were.
    """
    first, last = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    low = 0
    for n in range(len(keys)):
        key = keys[n]
        if n > 0 and key < keys[n - 1]:
            low = 0
        step = 1
        while low + step <= len(hashes) and hashes[low + step - 1] < key:
            low += step
            step *= 2
        low, last[n] = range_between(hashes, len(hashes), key, low, min(low + step - 1, len(hashes)))
        first[n] = low
    return first, last


@njit(nogil=True, cache=True)
def _scan_hex(hashes: Array, rows: int, nibbles: Array, found: Array) -> int:
    count = 0
    width = hashes.shape[1] * 2
    size = len(nibbles)
    for row in range(rows):
        for start in range(width - size + 1):
            k = 0
            while k < size:
                byte = hashes[row, (start + k) >> 1]
                nibble = byte & 15 if (start + k) & 1 else byte >> 4
                if nibble != nibbles[k]:
                    break
                k += 1
            if k == size:
                found[count] = row
                count += 1
                break
    return count


_BLOCK = 64


@njit(nogil=True, cache=True)
def _scan_text(
    text: Array, offsets: Array, rows: int, row: int, needle: Array, masks: Array, first: int, second: int, found: Array
) -> tuple[int, int]:
    """Find rows from ``row`` on until ``found`` is full: (how many, the row to go on with)."""
    size = len(needle)
    count = 0
    # Indices are unsigned: signed ones are tested for being negative, byte by byte.
    at = np.uint64(offsets[row])
    end = np.uint64(offsets[rows])
    if end - at < np.uint64(size):
        return 0, rows
    last = end - np.uint64(size)  # the last place where the needle fits
    one = np.uint64(1)
    a, b = np.uint64(first), np.uint64(second)
    byte_a, mask_a = needle[first], masks[first]
    byte_b, mask_b = needle[second], masks[second]
    while at <= last:
        if at + np.uint64(_BLOCK) <= last:
            hit = np.uint8(0)
            for k in range(np.uint64(_BLOCK)):
                same_a = (text[at + a + k] & mask_a) == byte_a
                same_b = (text[at + b + k] & mask_b) == byte_b
                hit |= np.uint8(same_a) & np.uint8(same_b)
            if hit == 0:
                at += np.uint64(_BLOCK)
                continue
            stop = at + np.uint64(_BLOCK)
        else:
            stop = last + one
        while at < stop:
            k = 0
            if (text[at + a] & mask_a) == byte_a:
                while k < size and (text[at + np.uint64(k)] & masks[k]) == needle[k]:
                    k += 1
            if k < size:
                at += one
                continue
            row = _row_at(offsets, rows, row, at)
            if at + np.uint64(size) > np.uint64(offsets[row + 1]):
                at += one  # it reaches into the next row
                continue
            found[count] = row
            count += 1
            row += 1
            at = np.uint64(offsets[row])
            if count == len(found) or row == rows:
                return count, row
            if at > last:
                return count, rows
            stop = min(stop, at) if at > stop else stop
    return count, rows


_STAR, _MARK = 0x2A, 0x3F


@njit(nogil=True, cache=True)
def _keep_like(text: Array, offsets: Array, rows: Array, pattern: Array, found: Array, count: int) -> int:
    """Append the rows that fit to ``found``, which has ``count``, until it is full: how many it has now."""
    for row in rows:
        if count == len(found):
            break
        if _is_like(text, offsets[row], offsets[row + 1], pattern):
            found[count] = row
            count += 1
    return count


@njit(nogil=True, cache=True)
def _is_like(text: Array, at: int, end: int, pattern: Array) -> bool:
    """Whether ``text[at:end]`` fits as a whole.

    Where it does not go on, the last star takes one character more: what an earlier one took is the
    shortest that fits, so it need not be tried again.
    """
    k, star, resume = 0, -1, at
    while at < end:
        if k < len(pattern) and pattern[k] == _STAR:
            star, resume = k, at
            k += 1
        elif k < len(pattern) and (pattern[k] == _MARK or pattern[k] == text[at]):
            k += 1
            at += 1
        elif star >= 0:
            resume += 1
            at = resume
            k = star + 1
        else:
            return False
    while k < len(pattern) and pattern[k] == _STAR:
        k += 1
    return k == len(pattern)


@njit(nogil=True, cache=True)
def _row_at(offsets: Array, rows: int, low: int, at: Any) -> int:
    """The row that byte ``at`` belongs to, not before row ``low``: by steps that double, then halve."""
    step = 1
    while low + step < rows and np.uint64(offsets[low + step]) <= at:
        low += step
        step *= 2
    high = min(low + step, rows)
    while high - low > 1:
        middle = (low + high) // 2
        if np.uint64(offsets[middle]) <= at:
            low = middle
        else:
            high = middle
    return low


def sorted_hashes(hash: Array) -> Array:
    """The rows by the first four bytes of their hash: uint64, prefix << 32 | row, sorted.

    One sort of plain numbers: 0.25 s for 10 M, where an argsort of the prefixes takes 1.2 s.
    """
    prefix = np.ascontiguousarray(hash[:, :4]).view(">u4").reshape(-1)
    keys = (prefix.astype(np.uint64) << PREFIX_SHIFT) | np.arange(len(hash), dtype=np.uint64)
    keys.sort()
    rows: Array = keys
    return rows


def is_sorted_by_hash(hashes: Array, hash: Array) -> bool:
    """Whether ``hashes`` is what ``sorted_hashes`` gives, told a piece at a time.

    Rising entries that each have their row's own prefix are all different rows, so they are all rows.
    """
    prefix = hash[:, :4]
    for at in range(0, len(hashes), _BATCH_ROWS):
        keys = hashes[max(at - 1, 0) : at + _BATCH_ROWS]
        rows = (keys & ROW_MASK).astype(np.int64)
        if (keys[1:] <= keys[:-1]).any() or (rows >= len(hash)).any():
            return False
        if (np.ascontiguousarray(prefix[rows]).view(">u4").reshape(-1) != keys >> PREFIX_SHIFT).any():
            return False
    return len(hashes) == len(hash)


def index_name(collection: Collection, file: Path) -> str:
    """The folder of a data file's index: files of one run have the same name in both collections."""
    return f"{collection}-{file.stem}"


def segment_of(
    cache: Path, collection: Collection, file: Path, rows: int, tick: Callable[[int], None] = lambda _: None,
    touch: bool = False,
) -> Segment:  # fmt: skip
    """Map a data file's columns, building them first where they are missing.

    ``tick`` is told of rows while they are built. A folder that is broken is built again. ``touch``
    has all pages read and entered at once: for columns that fit into memory. Raises UnreadableWarehouse, naming
    the data file, where that is damaged.
    """
    folder = cache / index_name(collection, file)
    try:
        return open_index(folder, rows, touch)
    except (OSError, ValueError, EOFError):
        build_index(cache, collection, file, rows, tick)
    return open_index(folder, rows, touch)


def build_index(
    cache: Path, collection: Collection, file: Path, rows: int, tick: Callable[[int], None] = lambda _: None
) -> None:
    """Make the folder of a data file's columns unless another process was quicker; raises UnreadableWarehouse."""
    folder = cache / index_name(collection, file)
    building = folder.with_name(f".{folder.name}")
    make_folder(cache)
    with FileLock(folder.with_name(f"{folder.name}.lock")):
        with suppress(OSError, ValueError, EOFError):
            open_index(folder, rows)
            return
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(building, ignore_errors=True)  # left by one that was killed: the lock is ours
        building.mkdir()
        try:
            _write_columns(building, collection, file, rows, tick)
            # A power loss could leave columns of the right size without their bytes, and nobody would see it.
            for column in building.iterdir():
                sync(column)
            sync(building)
            building.rename(folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)


def open_index(folder: Path, rows: int, touch: bool = False) -> Segment:
    """Map the folder of a data file of so many rows; raises OSError or ValueError where that does not go."""
    ids, created_at, offsets, hash, hashes = mapped = [
        np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "created_at", "offsets", "hash", "hashes")
    ]
    text = np.memmap(folder / "text", np.uint8, "r")
    if not (len(ids) == rows and len(offsets) == rows + 1 and int(offsets[-1]) == len(text)):
        raise ValueError(f"{folder} does not fit its data file")
    if touch:
        for array in (*mapped, text):
            _touch(array)
    # Plain arrays over the mapping: numpy's memmap class costs a microsecond a slice.
    return Segment.of(rows, *(np.asarray(a) for a in (ids, created_at, offsets, text, hash, hashes)))


_POPULATE_READ = 22  # Linux 5.14; the mmap module has no name for it


def _touch(array: Array) -> None:
    """Enter all pages of a mapping, where the kernel can.

    A page that a process meets for the first time costs it 2.5 microseconds, and a hundred rows
    are on six; entered together they cost 0.4.
    """
    mapping: Any = array.base
    with suppress(OSError, ValueError):  # an older kernel, an empty column
        mapping.madvise(_POPULATE_READ)


def _write_columns(folder: Path, collection: Collection, file: Path, rows: int, tick: Callable[[int], None]) -> None:
    width = collection.hash_bytes

    def column(name: str, kind: Any, *shape: int) -> Array:
        path = folder / f"{name}.npy"
        array = np.lib.format.open_memmap(path, "w+", kind, shape)
        with path.open("rb+") as made:  # its blocks now: on a full disk this is an error, writing to a hole is a SIGBUS
            os.posix_fallocate(made.fileno(), 0, path.stat().st_size)
        return array

    ids, created_at = column("ids", np.int64, rows), column("created_at", np.int64, rows)
    offsets = column("offsets", np.int64, rows + 1)
    hash = column("hash", np.uint8, rows, width)
    at = written = 0
    offsets[0] = 0
    with (folder / "text").open("wb") as text:
        for batch in _batches(file, rows):
            here = slice(at, at + batch.num_rows)
            ids[here] = batch.column(0).to_numpy()
            created_at[here] = batch.column(1).view(pa.int64()).to_numpy()
            bounds, data = bytes_of(batch.column(2))
            offsets[at + 1 : at + batch.num_rows + 1] = bounds[1:].astype(np.int64) + (written - int(bounds[0]))
            piece = data[bounds[0] : bounds[-1]]
            text.write(piece.data)
            written += len(piece)
            ends, raw = bytes_of(batch.column(3))
            if (np.diff(ends) != width).any():
                raise UnreadableWarehouse(f"{file}: a hash that is not of {width} bytes")
            hash[here] = raw[: batch.num_rows * width].reshape(-1, width)
            at += batch.num_rows
            tick(batch.num_rows)
    column("hashes", np.uint64, rows)[:] = sorted_hashes(hash)


def _batches(file: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """A data file's rows, all of them, their pages' checksums looked at; raises UnreadableWarehouse."""
    found = 0
    with naming(file), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        if not parquet.schema_arrow.equals(FILE_SCHEMA):
            raise UnreadableWarehouse(f"{file}: other columns than {', '.join(FILE_SCHEMA.names)}")
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=["id", "created_at", "text_signature", "hash"]):
            found += batch.num_rows
            if found <= rows:
                yield batch
    if found != rows:
        raise UnreadableWarehouse(f"{file} has {found} rows, and the log says {rows}")


def unused(cache: Path, used: set[str]) -> list[Path]:
    """The folders and locks of data files that are gone. Safe to delete: who has one mapped keeps its pages."""
    entries = cache.iterdir() if cache.is_dir() else ()
    # With a dot: being built.
    return [entry for entry in entries if entry.name.removeprefix(".").removesuffix(".lock") not in used]
