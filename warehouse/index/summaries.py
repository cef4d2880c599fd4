"""The summaries of a data file's texts at rest: columns beside its index, mapped by servers and read by SQL.

Invariants
    They are derived from a data file and from the sightings of its ids, and named by both. A version whose evidence says
    nothing new about a file's ids has the same ones: a fold builds those of its own rows alone.
    A folder has its final name when it is complete, and never changes. It is used only if its files are as they were
    written; otherwise it is built again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from sigdir.signatures.columns import as_readonly, bytes_of
from sigdir.warehouse.evidence.mapped import create_columns, map_bytes, mapped_columns, write_columns
from sigdir.warehouse.evidence.summaries import COUNTS, Summaries, summed
from sigdir.warehouse.evidence.usage import uses_of_hashes
from sigdir.warehouse.index.derived import build, opened, require_written
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.manifest import USAGE, EvidenceFile, Manifest
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.paths import Paths, index_name, summaries_name

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
