"""The index of a data file: built once, mapped by every process. And a data file read in pieces, for which none is needed.

Each Parquet file has a folder in the cache, derived from it alone (``summaries.py``): its columns, uncompressed, with
``hashes``, the order of its hashes, the grams of its names (``grams.py``), and the dictionary of its parameter lists
(``parameter_lists.py``). The text is a file of bytes, all else are files of columns (``evidence/mapped.py``). The first
process that needs it builds it, under a lock. It can be deleted at any time and is built again. A data file's name is never
reused, so neither is the folder's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array, values
from sigdir.signatures.candidates import as_readonly, bytes_of
from sigdir.signatures.collections import Collection
from sigdir.warehouse.evidence.mapped import create_columns, map_bytes, mapped_columns, write_columns
from sigdir.warehouse.evidence.summaries import differs
from sigdir.warehouse.index.grams import Grams, build_grams
from sigdir.warehouse.index.parameter_lists import ParameterLists, build_lists
from sigdir.warehouse.index.segment import Segment, sort_hashes
from sigdir.warehouse.index.summaries import build, opened, require_written
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.parquet import FILE_SCHEMA, batches_in, naming
from sigdir.warehouse.table.paths import Paths, index_name, index_of_entry

SEGMENT_COLUMNS = ("id", "created_at", "text_signature", "hash")
"""The columns of data files that a segment has."""


def pieces(collection: Collection, file: Path) -> Iterator[Segment]:
    """A data file's rows, oldest first, as segments that cannot be searched by hash; raises UnreadableWarehouse."""
    for batch in batches_in(file, SEGMENT_COLUMNS):
        bounds, text = bytes_of(batch["text_signature"])
        first = int(bounds[0])
        with naming(file):
            yield Segment.of(
                batch.num_rows,
                values(batch["id"]),
                values(batch["created_at"].view(pa.int64())),
                bounds.astype(np.int64) - first,
                text[first : bounds[-1]],
                hashes_of(batch["hash"], collection.hash_bytes),
                {},
            )


def hashes_of(column: pa.Array, width: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """A column of hashes of one width, uint8 of shape (rows, width); raises ValueError where they have another."""
    starts, raw = bytes_of(column)
    if (np.diff(starts) != width).any():
        raise ValueError(f"a hash that is not of {width} bytes")
    return raw[starts[0] : starts[-1]].reshape(len(column), width)


IDS = "ids"
"""A file of its own, because SQL reads the ids alone."""
_COLUMNS = (IDS, "rows", "imports", "gram_starts", "gram_lists", "parameter_lists")
_FILES = (*_COLUMNS, "text")


Tick = Callable[[int], None]
"""Called with the number of rows of each piece that was built."""


def segment_of(paths: Paths, file: DataFile, tick: Tick = lambda _: None) -> Segment:
    """Map a data file's columns; a missing or broken index is built first.

    Raises UnreadableWarehouse, naming the data file, where that is damaged.
    """
    name = index_name(file.collection, file.path)
    folders = [cache / name for cache in paths.index_caches(file.path)]
    found = opened(folders, lambda folder: open_index(folder, file.rows))
    return found or build_index(paths, file, tick)


def build_index(paths: Paths, file: DataFile, tick: Tick = lambda _: None) -> Segment:
    """Map a data file's columns, which are built unless another process was faster; raises UnreadableWarehouse."""

    def write(part: Path) -> Iterable[str]:
        offsets = as_readonly(_write_rows(part, file, tick))
        text = as_readonly(map_bytes(part / "text"))
        _write_grams(part, text, offsets, file.rows)
        lists = build_lists(text, offsets, file.rows)
        write_columns(part / "parameter_lists", {f"list_{name}": getattr(lists, name) for name in _LISTS})
        return _FILES

    folder = paths.index_cache(file.path) / index_name(file.collection, file.path)
    return build(folder, folder, lambda folder: open_index(folder, file.rows), write)


def open_index(folder: Path, rows: int) -> Segment:
    """Map the folder of a data file with this many rows; raises OSError, ValueError or EOFError.

    Every byte is read and compared with its checksum.
    """
    require_written(folder, _FILES)
    columns = {name: column for file in _COLUMNS for name, column in mapped_columns(folder / file).items()}
    text = map_bytes(folder / "text")
    if len(columns["ids"]) != rows or columns["offsets"][-1] != len(text):
        raise ValueError(f"{folder} does not fit its data file")
    of = {name: as_readonly(column) for name, column in columns.items()}
    segment = Segment.of(
        rows, of["ids"], of["created_at"], of["offsets"], text, of["hash"], of["hashes"],
        Grams(of["gram_starts"], of["gram_lists"]),
    )  # fmt: skip
    lists = ParameterLists(*(of[f"list_{name}"] for name in _LISTS))
    return replace(segment, imports=(of["import_rows"], of["imports"]), lists=lists)


def unused(cache: Path, used: set[str]) -> list[Path]:
    """The folders and locks of data files that are gone.

    Deleting them is safe: a process that has one mapped keeps its pages.
    """
    entries = cache.iterdir() if cache.is_dir() else ()
    return [entry for entry in entries if index_of_entry(entry) not in used]


_LISTS = ("text", "offsets", "starts", "rows")
"""The columns of the parameter lists."""


def _write_rows(folder: Path, file: DataFile, tick: Tick) -> Array:
    """Write what the data file has, and the order of its hashes; gives the offsets of the texts."""
    width, rows = file.collection.hash_bytes, file.rows
    ids = create_columns(folder / IDS, {IDS: ("<i8", rows, None)})[IDS]
    columns = create_columns(folder / "rows", {
        "created_at": ("<i8", rows, None), "offsets": ("<i8", rows + 1, None), "hash": ("u1", rows, width),
        "hashes": ("<u8", rows, None),
    })  # fmt: skip
    offsets, hash = columns["offsets"], columns["hash"]
    at = 0
    import_rows, imports = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with (folder / "text").open("wb") as text:
        for batch in _batches(file.path, rows):
            here = slice(at, at + batch.num_rows)
            ids[here] = values(batch["id"])
            columns["created_at"][here] = values(batch["created_at"].view(pa.int64()))
            bounds, data = bytes_of(batch["text_signature"])
            offsets[here.start + 1 : here.stop + 1] = bounds[1:].astype(np.int64) + (text.tell() - int(bounds[0]))
            text.write(data[bounds[0] : bounds[-1]].data)
            with naming(file.path):
                hash[here] = hashes_of(batch["hash"], width)
            numbers = values(batch["import_id"])
            begins = np.flatnonzero(differs(numbers))
            import_rows.append(begins + at)
            imports.append(numbers[begins])
            at = here.stop
            tick(batch.num_rows)
    write_columns(folder / "imports", {"import_rows": np.concatenate(import_rows), "imports": np.concatenate(imports)})
    sort_hashes(hash, columns["hashes"])
    return offsets


def _write_grams(folder: Path, text: Array, offsets: Array, rows: int) -> None:
    def room(size: int) -> Array:
        return create_columns(folder / "gram_lists", {"gram_lists": ("u1", size, None)})["gram_lists"]

    write_columns(folder / "gram_starts", {"gram_starts": build_grams(text, offsets, rows, room).starts})


def _batches(file: Path, rows: int) -> Iterator[pa.RecordBatch]:
    """All rows of a data file; raises UnreadableWarehouse, also where it has others than the log says."""
    found = 0
    for batch in batches_in(file):
        if not batch.schema.equals(FILE_SCHEMA):
            raise UnreadableWarehouse(f"{file}: other columns than {', '.join(FILE_SCHEMA.names)}")
        found += batch.num_rows
        if found <= rows:
            yield batch
    if found != rows:
        raise UnreadableWarehouse(f"{file} has {found} rows, and the log says {rows}")
