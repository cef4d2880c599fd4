"""Folders of the cache that are checked before they are used; in such folders the summaries of a data file's texts.

Summaries: columns beside the index of a data file, mapped by servers and read by SQL.

Invariants of summaries
    They are derived from a data file and from the sightings of its ids, and named by both. A version whose evidence says
    nothing new about a file's ids has the same ones: a fold builds those of its own rows alone.

Folders: derived from data files, built under another name, checked by their bytes, mapped by every process.

Invariants of folders
    A folder has its final name only when it is complete and synced, and it never changes.
    ``checksums.json`` has the CRC-32 of each of its files. It finds damage, and is no defence against someone who can write
    there. Reading and comparing takes 0.3 ms a megabyte, with sha256 0.9.
    A folder is used only if its files are as they were written; otherwise whoever needs it builds it again. A flipped bit in
    a column would let a known text be POSTed again, give a wrong answer, or point outside of the columns, which kills the
    process. So each worker reads all columns once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from sigdir.signatures.candidates import as_readonly, bytes_of
from sigdir.warehouse.evidence.contracts import uses_of_hashes
from sigdir.warehouse.evidence.mapped import create_columns, map_bytes, mapped_columns, write_columns
from sigdir.warehouse.evidence.summaries import COUNTS, Summaries, summed
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.manifest import USAGE, EvidenceFile, Manifest
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import FileLock, make_folder, sync
from sigdir.warehouse.table.paths import Paths, index_lock, index_name, index_part, summaries_name

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


_FILES = ("counts", "declared", "declarations")
_FORMAT = b"6"  # changes where the same sightings give other summaries
_BLOCK_ROWS = 1 << 21
"""So many texts are summed at once: 60 bytes each."""


def summaries_of(paths: Paths, file: DataFile, segment: Segment, manifest: Manifest) -> Summaries:
    """Map the summaries of a data file, whose segment is given; missing or broken ones are built first.

    Raises UnreadableWarehouse where an evidence file is damaged or gone.
    """
    found = summaries_at_rest(paths, file, manifest)
    if found is not None:
        return found
    cache, index = paths.index_cache(file.path), index_name(file.collection, file.path)

    def write(part: Path) -> Iterable[str]:
        names = _write(part, file, segment, manifest)
        # Those of other evidence are deleted, which is safe: a process that has them mapped keeps its pages, and one that
        # needs them again builds them.
        for other in {*cache.glob(summaries_name(index, "*")), *cache.glob(f".{summaries_name(index, '*')}")} - {part}:
            shutil.rmtree(other, ignore_errors=True)
        return names

    return build(cache / folder_name(file, manifest), cache / index, lambda folder: _open(folder, file), write)


def summaries_at_rest(paths: Paths, file: DataFile, manifest: Manifest) -> Summaries | None:
    """Map the summaries of a data file; None where they are missing or broken."""
    name = folder_name(file, manifest)
    return opened([cache / name for cache in paths.index_caches(file.path)], lambda folder: _open(folder, file))


def folder_name(file: DataFile, manifest: Manifest) -> str:
    """The name of a data file's summaries in the cache, for this evidence and what is used."""
    digest = hashlib.blake2b(_FORMAT, digest_size=8)
    digest.update("".join(usage.path.name for usage in manifest.mapped_of(USAGE)).encode())
    for evidence in _overlapping(file, manifest):
        replaced = [pair for pair in evidence.source_imports or () if not manifest.counts(*pair)]
        # A file of more source imports than it lists changes with any source.
        since = (
            sorted((s.number, s.import_id) for s in manifest.sources.values())
            if evidence.source_imports is None
            else []
        )
        digest.update(repr((evidence.path.name, replaced, since)).encode())
    return summaries_name(index_name(file.collection, file.path), digest.hexdigest())


def _overlapping(file: DataFile, manifest: Manifest) -> list[EvidenceFile]:
    """The evidence files that may have sightings of a data file's texts."""
    evidence = manifest.files[file.collection]
    return [each for each in evidence if each.first_id <= file.last_id and each.last_id >= file.first_id]


def _open(folder: Path, file: DataFile) -> Summaries:
    require_written(folder, _FILES)
    of_rows, of_declared, data = (
        mapped_columns(folder / "counts"),
        mapped_columns(folder / "declared"),
        map_bytes(folder / "declarations"),
    )
    counts, declared = of_rows["counts"].view(COUNTS), of_declared["declared"]
    if len(counts) != file.rows:
        raise ValueError(f"{folder} does not fit its data file")
    texts = pa.LargeStringArray.from_buffers(len(declared), pa.py_buffer(of_declared["offsets"]), pa.py_buffer(data))
    return Summaries(as_readonly(counts), as_readonly(declared), texts, as_readonly(of_rows["weights"]))


def _write(folder: Path, file: DataFile, segment: Segment, manifest: Manifest) -> Iterable[str]:
    ids = segment.ids
    columns = create_columns(
        folder / "counts", {"counts": (f"V{COUNTS.itemsize}", len(ids), None), "weights": ("<u4", len(ids), None)}
    )
    counts, weights = columns["counts"].view(COUNTS), columns["weights"]
    declared, ends, size = [np.empty(0, np.int64)], [np.zeros(1, np.int64)], 0
    with (folder / _FILES[-1]).open("wb") as texts:
        for first in range(0, len(ids), _BLOCK_ROWS):
            here = slice(first, first + _BLOCK_ROWS)
            block = summed(manifest, file.collection, ids[here], uses_of_hashes(manifest, segment.hash[here]))
            counts[here], weights[here] = block.counts, block.weights
            if len(block.declared):
                bounds, data = bytes_of(block.texts)
                declared.append(block.declared + first)
                ends.append(bounds[1:].astype(np.int64) + (size - int(bounds[0])))
                texts.write(data[bounds[0] : bounds[-1]].data)
                size = int(ends[-1][-1])
        texts.write(b"\n")  # a mapping is never empty
    write_columns(folder / "declared", {"declared": np.concatenate(declared), "offsets": np.concatenate(ends)})
    return _FILES
