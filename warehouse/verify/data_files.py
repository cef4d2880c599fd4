"""The data files and their indexes, file by file in as many threads as are given; memory does not grow with the rows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS
from sigdir.signatures.columns import bytes_of
from sigdir.warehouse.index.build import open_index
from sigdir.warehouse.index.hash_order import is_sorted_by_hash
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.staging.rows import HighWaterMark
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parallel import ordered_map
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.schema import FILE_SCHEMA
from sigdir.warehouse.verify.files import StoredFile, Verification
from sigdir.warehouse.verify.rows import NOTHING, CheckedRows

Ends = tuple[HighWaterMark, HighWaterMark]
"""The first and the last row of a file."""


def check_data_files(work: Verification) -> None:
    """Check every row by itself, and that the files of a collection follow each other."""
    for collection in COLLECTIONS:
        files = work.snapshot.files[collection]
        work.begin_stage(collection, work.snapshot.count(collection))
        with ThreadPoolExecutor(work.threads) as pool:
            ends = ordered_map(pool, partial(_check_file, work), files, ahead=2 * work.threads)
            found = [(file, end) for file, end in zip(files, ends, strict=True) if end is not None]
        for (_, (_, last)), (file, (first, _)) in pairwise(found):
            if first.id <= last.id or first.created_at <= last.created_at:
                why = f"id or time does not rise above the previous one: id {last.id}, time {last.created_at}"
                work.report.add("order", file.path, why, f"row 0, id {first.id}")


def _check_file(work: Verification, file: DataFile) -> Ends | None:
    """Check a file's rows and its index; its first and last row, None where it has none that can be read."""
    stored = StoredFile("file", file.path, FILE_SCHEMA, file.rows, file.size, file.sha256)
    metadata = work.metadata_of(stored)
    if metadata is None:
        return None
    index, stale, ends, at, is_readable = _index_of(work, file), set[str](), list[HighWaterMark](), 0, True
    for number in range(metadata.num_row_groups):
        try:
            rows = CheckedRows(
                work.report.name(file.path), file.collection, _read(file, metadata, number),
                file.collection.hash_bytes, at, ends[-1] if ends else NOTHING,
            )  # fmt: skip
        except UnreadableWarehouse as error:
            work.add_unreadable(stored, error, f"row group {number}")
            is_readable = False
        else:
            work.report.extend(rows.findings())
            ends += [HighWaterMark(int(rows.ids[n]), int(rows.created_at[n])) for n in (0, -1)]
            if index is not None:
                stale |= _stale_columns(index, at, rows)
        at += metadata.row_group(number).num_rows
        work.progress(metadata.row_group(number).num_rows)
    if is_readable:
        work.readable.add(file.path)
        _compare_with_log(work, file, ends)
    if index is not None and not _is_ordered(index):
        stale.add("hashes")
    if stale:
        folder = work.paths.index(file.collection, file.path)
        _add_index(work, folder, f"{', '.join(sorted(stale))} not as in its data file")
    return (ends[0], ends[-1]) if ends else None


def _read(file: DataFile, metadata: pq.FileMetaData, number: int) -> pa.RecordBatch:
    """The rows of a row group; raises UnreadableWarehouse, naming the column."""
    rows, columns = metadata.row_group(number).num_rows, []
    with naming(file.path), pq.ParquetFile(file.path, metadata=metadata, page_checksum_verification=True) as parquet:
        for name in FILE_SCHEMA.names:
            try:
                column = parquet.read_row_group(number, columns=[name]).column(0).combine_chunks()
            except (pa.ArrowException, OSError, LookupError, ValueError) as error:
                raise ValueError(f"{name} cannot be read: {error}") from error
            if not 0 < len(column) == rows:
                raise ValueError(f"{name} has {len(column)} rows, and the footer says {rows}")
            columns.append(column)
    return pa.record_batch(columns, schema=FILE_SCHEMA)


def _compare_with_log(work: Verification, file: DataFile, ends: list[HighWaterMark]) -> None:
    first, last = ends[0], ends[-1]
    if first.id != file.first_id:
        work.report.add("log", file.path, f"begins with id {first.id}, and the log says {file.first_id}")
    if last != HighWaterMark(file.last_id, file.last_created_at):
        why = f"ends with id {last.id}, time {last.created_at}; the log says {file.last_id}, {file.last_created_at}"
        work.report.add("log", file.path, why)


# Indexes.


def _index_of(work: Verification, file: DataFile) -> Segment | None:
    """The index of a data file, where there is one that can be compared."""
    folder = work.paths.index(file.collection, file.path)
    try:
        index = open_index(folder, file.rows)
        if index.hash.shape[1:] == (file.collection.hash_bytes,):
            return index
    except (OSError, ValueError):
        if not folder.exists():  # a server builds it when it needs it
            return None
    if work.is_current(file.path):
        _add_index(work, folder, "does not fit its data file, or is not as it was written")
    return None


def _stale_columns(index: Segment, first_row: int, rows: CheckedRows) -> set[str]:
    """The columns of an index that are not as the rows of a row group."""
    last_row = first_row + len(rows.ids)
    offsets = index.offsets[first_row : last_row + 1]
    bounds, text = bytes_of(rows.rows["text_signature"])
    hash_bounds, hash = bytes_of(rows.rows["hash"])
    columns = {
        "ids": (index.ids[first_row:last_row], rows.ids),
        "created_at": (index.created_at[first_row:last_row], rows.created_at),
        "offsets": (np.diff(offsets), np.diff(bounds)),
        "text": (index.text[offsets[0] : offsets[-1]], text[bounds[0] : bounds[-1]]),
        "hash": (index.hash[first_row:last_row].ravel(), hash[hash_bounds[0] : hash_bounds[-1]]),
    }
    return {name for name, (found, expected) in columns.items() if not np.array_equal(found, expected)}


def _is_ordered(index: Segment) -> bool:
    return isinstance(index.hashes, np.ndarray) and is_sorted_by_hash(index.hashes, index.hash)


def _add_index(work: Verification, folder: Path, why: str) -> None:
    work.report.add("index", folder, f"{why}: `rm -r {folder}` and restart the server, which builds it again")
