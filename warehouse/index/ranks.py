"""The rank column of a data file: one uint64 a row, mapped, by which a lookup orders the texts of a hash.

Invariants
    A column is derived from a data file and from the sightings of its ids, and is named by both. A version whose
    evidence says nothing new about a file's ids has the same column: a fold builds that of its own rows alone.
    A folder has its final name when it is complete, and never changes. It is mapped only if it has its checksum;
    otherwise it is built again.
    A key has what the sources say together about one text, and whether it is the standard's. Whether a text looks mined
    depends on the other texts of its selector, which other files may have: ``ranked.py`` decides that.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.rank import as_standard, keys_of
from sigdir.signatures.standards import canonical
from sigdir.warehouse.evidence import EvidenceFile, Manifest
from sigdir.warehouse.evidence.sums import SUMMED, Sums, sightings_between
from sigdir.warehouse.files import FileLock, make_folder
from sigdir.warehouse.index.checks import checksum_of
from sigdir.warehouse.index.derived import building, map_column
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.paths import index_lock, index_name, index_part, ranks_name

Array = npt.NDArray[Any]

_COLUMN = "ranks.npy"
_CHECKSUM = "checksum"
_FORMAT = b"2"  # changes where the same sightings give other keys


def ranks_of(cache: Path, file: DataFile, segment: Segment, manifest: Manifest) -> Array:
    """Map the rank column of a data file, whose columns are ``segment``; a missing or broken one is built first.

    Raises UnreadableWarehouse where an evidence file is damaged or gone.
    """
    with suppress(OSError, ValueError, EOFError):
        return open_ranks(cache, file, manifest)
    build_ranks(cache, file, segment, manifest)
    return open_ranks(cache, file, manifest)


def has_ranks(cache: Path, file: DataFile, manifest: Manifest) -> bool:
    """Whether a data file has its rank column for this evidence, be it damaged."""
    return (cache / column_name(file, manifest)).exists()


def column_name(file: DataFile, manifest: Manifest) -> str:
    """The name of a data file's rank column in the cache, for this evidence."""
    digest = hashlib.blake2b(_FORMAT, digest_size=8)
    for evidence in _overlapping(file, manifest):
        replaced = [pair for pair in evidence.source_imports or () if not manifest.counts(*pair)]
        # A file of more source imports than it lists changes with any source.
        since = (
            sorted((s.number, s.import_id) for s in manifest.sources.values())
            if evidence.source_imports is None
            else []
        )
        digest.update(repr((evidence.path.name, replaced, since)).encode())
    return ranks_name(index_name(file.collection, file.path), digest.hexdigest())


def _overlapping(file: DataFile, manifest: Manifest) -> list[EvidenceFile]:
    """The evidence files that may have sightings of a data file's texts."""
    evidence = manifest.files[file.collection]
    return [each for each in evidence if each.first_id <= file.last_id and each.last_id >= file.first_id]


def build_ranks(cache: Path, file: DataFile, segment: Segment, manifest: Manifest) -> None:
    """Write the rank column of a data file unless another process was faster; raises UnreadableWarehouse.

    Columns of other evidence are deleted then, which is safe: a process that has one mapped keeps its pages, and one
    that needs it again builds it.
    """
    folder, index = cache / column_name(file, manifest), cache / index_name(file.collection, file.path)
    part = index_part(cache / ranks_name(index.name, "new"))
    make_folder(cache)
    with FileLock(index_lock(index), is_needed=False):
        with suppress(OSError, ValueError, EOFError):
            open_ranks(cache, file, manifest)
            return
        with building(folder, part):
            np.save(part / _COLUMN, keys_of_segment(file, segment, manifest))
            (part / _CHECKSUM).write_text(checksum_of(part / _COLUMN))
            for old in cache.glob(ranks_name(index.name, "*")):
                shutil.rmtree(old, ignore_errors=True)


def open_ranks(cache: Path, file: DataFile, manifest: Manifest) -> Array:
    """Map the rank column of a data file; raises OSError, ValueError or EOFError."""
    folder = cache / column_name(file, manifest)
    if (folder / _CHECKSUM).read_text() != checksum_of(folder / _COLUMN):
        raise ValueError(f"{folder / _COLUMN} is not as it was written")
    column = np.asarray(map_column(folder / _COLUMN))
    if column.dtype != np.uint64 or column.shape != (file.rows,):
        raise ValueError(f"{folder} does not fit its data file")
    return as_readonly(column)


# Adding up.


def keys_of_segment(file: DataFile, segment: Segment, manifest: Manifest) -> Array:
    """The keys of a data file's rows, computed from the evidence; raises UnreadableWarehouse."""
    sums = Sums(segment.ids[: segment.rows])
    for sightings in sightings_between(manifest, file.collection, file.first_id, file.last_id, SUMMED):
        sums.add(sightings)
    contracts, _ = sums.contracts()
    keys = keys_of(sums.witness, contracts, sums.sources(), sums.kinds, sums.verified)
    for hash, text in canonical().items():
        if len(hash) == file.collection.hash_bytes:
            for row in segment.with_hash(hash).tolist():
                if segment.text_at(row) == text:
                    keys[row] = as_standard(int(keys[row]))
    return keys
