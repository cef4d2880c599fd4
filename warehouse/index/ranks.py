"""The rank column of a data file: one uint64 a row, mapped, by which a lookup orders the texts of a hash.

Invariants
    A column is derived from a data file and from the sightings of its ids, and is named by both. A version whose
    evidence says nothing new about a file's ids has the same column: a fold builds that of its own rows alone.
    A folder has its final name when it is complete, and never changes. It is mapped only if it has its checksum;
    otherwise it is built again.
    A key has what the sources say together about one text, and whether it is the standard's. Whether a text looks mined
    depends on the other texts of its selector, which other files may have: ``ranked.py`` decides that.

Theory. Distinct sources and contracts are counted by sorting numbers: a row and a source in one uint64.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.evidence import Witness
from sigdir.signatures.rank import as_standard, keys_of
from sigdir.signatures.standards import canonical
from sigdir.warehouse.evidence import EvidenceFile, Manifest
from sigdir.warehouse.files import FileLock, make_folder
from sigdir.warehouse.index.checks import checksum_of
from sigdir.warehouse.index.derived import building
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.parquet import naming
from sigdir.warehouse.paths import index_lock, index_name, index_part, ranks_name

Array = npt.NDArray[Any]

_COLUMN = "ranks.npy"
_CHECKSUM = "checksum"
_FORMAT = b"1"  # changes where the same sightings give other keys
_COLUMNS = ["id", "source", "import_id", "kind", "witness", "contracts", "verified", "contract_key"]
_SHIFT = 32
_NO_NUMBERS = np.empty(0, np.int64)


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
        replaced = [word for word in evidence.words or () if not manifest.counts(*word)]
        # A file of more words than it lists changes with any source.
        since = sorted((s.number, s.import_id) for s in manifest.sources.values()) if evidence.words is None else []
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
    with FileLock(index_lock(index)):
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
    column = np.asarray(np.load(folder / _COLUMN, mmap_mode="r"))
    if column.dtype != np.uint64 or column.shape != (file.rows,):
        raise ValueError(f"{folder} does not fit its data file")
    return as_readonly(column)


# Adding up.


def keys_of_segment(file: DataFile, segment: Segment, manifest: Manifest) -> Array:
    """The keys of a data file's rows, computed from the evidence; raises UnreadableWarehouse."""
    sums = _Sums(segment, manifest)
    for evidence in _overlapping(file, manifest):
        for sightings in _row_groups(evidence, file):
            sums.add(sightings)
    keys = sums.keys()
    for hash, text in canonical().items():
        if len(hash) == file.collection.hash_bytes:
            for row in segment.with_hash(hash).tolist():
                if segment.text_at(row) == text:
                    keys[row] = as_standard(int(keys[row]))
    return keys


def _row_groups(evidence: EvidenceFile, file: DataFile) -> Iterator[pa.Table]:
    """The row groups of an evidence file that may have sightings of a data file's texts."""
    with naming(evidence.path), pq.ParquetFile(evidence.path, page_checksum_verification=True) as parquet:
        for number in range(parquet.num_row_groups):
            ids = parquet.metadata.row_group(number).column(0).statistics
            if ids is None or (ids.min <= file.last_id and ids.max >= file.first_id):
                yield parquet.read_row_group(number, columns=_COLUMNS)


class _Sums:
    """What the sightings of a segment's rows add up to."""

    def __init__(self, segment: Segment, manifest: Manifest) -> None:
        self._ids, rows = segment.ids[: segment.rows], segment.rows
        self._witness = np.full(rows, Witness.LISTED, np.uint8)
        self._kinds, self._verified = np.zeros(rows, np.uint8), np.zeros(rows, np.bool_)
        self._sources, self._contracts = [_NO_NUMBERS], [(_NO_NUMBERS, _NO_NUMBERS)]
        self._own = np.zeros(rows, np.int32)
        # By the number of a source, the first import of which its sightings count.
        self._since = np.full(max(manifest.sources, default=0) + 2, np.iinfo(np.int64).max)
        for source in manifest.sources.values():
            self._since[source.number] = source.import_id

    def add(self, sightings: pa.Table) -> None:
        """Add those that count and are of the segment's rows."""
        column = {name: sightings[name].to_numpy() for name in _COLUMNS if name != _COLUMNS[-1]}
        rows = np.minimum(self._ids.searchsorted(column["id"]), len(self._ids) - 1)
        since = self._since[np.minimum(column["source"], len(self._since) - 1)]
        counts = (self._ids[rows] == column["id"]) & (column["import_id"] >= since)
        rows = rows[counts]
        witness, kind, own = (column[name][counts] for name in ("witness", "kind", "contracts"))
        pairs = rows << _SHIFT | column["source"][counts]
        self._sources.append(pairs)
        if (witness > Witness.LISTED).any():
            np.maximum.at(self._witness, rows, witness.astype(np.uint8))
        if kind.any():
            np.bitwise_or.at(self._kinds, rows[kind > 0], np.left_shift(1, kind[kind > 0]).astype(np.uint8))
        if own.any():
            np.maximum.at(self._own, rows, own)
        self._verified[rows[column["verified"][counts]]] = True
        contracts = sightings[_COLUMNS[-1]]
        if contracts.null_count < len(contracts):
            named = contracts.is_valid().to_numpy()[counts]
            self._contracts.append((rows[named], contracts.fill_null(0).to_numpy()[counts][named]))

    def keys(self) -> Array:
        """The keys of the rows, none of which is called a standard's."""
        sources = self._count(np.concatenate(self._sources))
        codes = np.unique(np.concatenate([keys for _, keys in self._contracts]), return_inverse=True)[1]
        contracts = self._count(np.concatenate([rows for rows, _ in self._contracts]) << _SHIFT | codes)
        contracts = np.maximum(contracts, self._own)
        return keys_of(self._witness, contracts, np.maximum(sources, 1), self._kinds, self._verified)

    def _count(self, pairs: Array) -> Array:
        """By row, the number of distinct pairs of the row and something else."""
        return np.bincount(np.unique(pairs) >> _SHIFT, minlength=len(self._ids))
