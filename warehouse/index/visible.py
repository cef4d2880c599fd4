"""What servers show of a version: the same without the rows of the suppress list.

``change_list`` changes the list, ``prebuild`` builds what servers need of new files before a commit makes them visible.

Invariants
    Everything that answers a request reads a snapshot that ``Visible.snapshot`` has given, so no route can show a
    suppressed row: lists, lookups, the feed, dumps, statistics. Export, SQL and verify read the snapshot itself.
    With an empty list that is the same object, and nothing is read or written.

A data file that has a suppressed row is written again without it, into ``visible/<list>/``, and its index is built
beside it. So pages, counts and lookups cost what they cost without a list. `sigdir suppress` and publishers write
these files before a server needs them; a server that finds one missing writes it itself, 0.35 s for a million rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from sigdir.signatures.arrow import blobs, numbers, strings, values
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.build import build_index, segment_of
from sigdir.warehouse.index.summaries import folder_name, summaries_of
from sigdir.warehouse.log.manifest import ManifestFile, manifest_of
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.table.errors import UnreadableWarehouse, WarehouseError
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.files import FileLock, make_folder, sync
from sigdir.warehouse.table.parquet import FILE_SCHEMA, batches_in, described, write_data_file
from sigdir.warehouse.table.paths import Paths, index_name
from sigdir.warehouse.table.places import place_of
from sigdir.warehouse.table.suppressed import NONE, Entry, Suppressed, changed, parse, read, read_text

_KEPT = 4096
"""Data files whose visible file is remembered."""


class Visible:
    """Shows the versions of one warehouse without the rows of one list. Safe for threads."""

    def __init__(self, paths: Paths, suppressed: Suppressed) -> None:
        self.suppressed = suppressed
        self._paths = paths
        self._file = lru_cache(_KEPT)(self._visible_file)

    def snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The version without suppressed rows; raises UnreadableWarehouse, OSError."""
        if not self.suppressed:
            return snapshot
        files = {
            collection: tuple(shown for file in snapshot.files[collection] if (shown := self.file(file)) is not None)
            for collection in COLLECTIONS
        }
        return replace(snapshot, files=files)

    def file(self, file: DataFile) -> DataFile | None:
        """The file itself if it has no suppressed row, else its visible file; None if all its rows are suppressed.

        Raises UnreadableWarehouse, OSError.
        """
        return self._file(file) if self.suppressed else file

    def _visible_file(self, file: DataFile) -> DataFile | None:
        if not file.path.exists():  # vacuumed: whoever reads it gets the error that says so
            return file
        hidden = self._count_hidden(file)
        if hidden in (0, file.rows):
            return None if hidden else file
        visible = self._paths.visible_file(self.suppressed.id, file.collection, file.path)
        with suppress(UnreadableWarehouse):  # there is none yet, or it is damaged
            return described(visible, file.collection)
        make_folder(visible.parent)
        with FileLock(visible.with_suffix(".lock")):
            with suppress(UnreadableWarehouse):  # another process has written it
                return described(visible, file.collection)
            self._write(file, visible)
            return described(visible, file.collection)

    def _count_hidden(self, file: DataFile) -> int:
        """How many rows are suppressed. The hashes are looked at first."""
        hashes = blobs([hash for collection, hash in self.suppressed.hashes if collection == file.collection])
        if not any(_is_in(batch["hash"], hashes).true_count for batch in batches_in(file.path, ["hash"])):
            return 0
        shown: int = sum(batch.num_rows for batch in self._shown(file))
        return file.rows - shown

    def _shown(self, file: DataFile) -> Iterator[pa.RecordBatch]:
        """The rows that are not suppressed."""
        texts = strings([text for collection, text in self.suppressed.entries if collection == file.collection])
        for batch in batches_in(file.path, FILE_SCHEMA.names):
            is_hidden = _is_in(batch["text_signature"], texts)
            yield batch.filter(numbers(~values(is_hidden)))

    def _write(self, file: DataFile, visible: Path) -> None:
        part = visible.with_suffix(".part")
        rows = (pa.Table.from_batches([batch], FILE_SCHEMA) for batch in self._shown(file) if batch.num_rows)
        try:
            write_data_file(part, file.collection, rows)
            part.replace(visible)
        finally:
            part.unlink(missing_ok=True)
        sync(visible.parent)


def _is_in(column: pa.Array, wanted: pa.Array) -> pa.BooleanArray:
    """Which values of a column are among these, of which there may be none."""
    import pyarrow.compute as pc  # takes 70 ms, and a server without a list does without it

    return pc.is_in(column, wanted)


def unused_visible(paths: Paths) -> list[Path]:
    """What other lists left, and what belongs to data files that are gone; nothing while the list cannot be read."""
    found: list[Path] = []
    try:
        suppressed = read(paths)
    except UnreadableWarehouse:
        return found
    data_files = {file.stem for file in paths.data_files()}
    for folder in paths.visible.iterdir() if paths.visible.is_dir() else ():
        if folder.name != suppressed.id:
            found.append(folder)
        else:
            found += [entry for entry in folder.glob("*/*") if not any(stem in entry.name for stem in data_files)]
    return found


def prebuild(
    paths: Paths, files: Iterable[DataFile], manifest: ManifestFile | None, threads: int, hidden: Suppressed | None = None
) -> None:  # fmt: skip
    """Build what a version's files lack before it is visible, as servers show them, so that no request waits for it.

    ``hidden`` is left out, by default the suppress list. Nothing is done unless a server has made the cache folder. What
    fails here is built by the servers: a version is complete without it.
    """
    if not paths.cache.is_dir():
        return
    visible = Visible(paths, _suppressed(paths) if hidden is None else hidden)

    def build_missing(file: DataFile) -> None:
        shown = visible.file(file)
        if shown is None:
            return
        cache = paths.index_cache(shown.path)
        if not (cache / index_name(shown.collection, shown.path)).exists():
            build_index(paths, shown)
        evidence = manifest_of(manifest)
        if manifest is not None and not (cache / folder_name(shown, evidence)).exists():
            summaries_of(paths, shown, segment_of(paths, shown), evidence)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build_missing, file)


def _suppressed(paths: Paths) -> Suppressed:
    """The suppress list; empty if it cannot be read, because then servers use the one that they have read last."""
    try:
        return read(paths)
    except WarehouseError:
        return NONE


def change_list(
    paths: Paths, *, add: Iterable[Entry] = (), remove: Iterable[Entry] = (), wait: bool = True,
    on_wait: Callable[[str], None] = lambda _: None,
) -> Suppressed:  # fmt: skip
    """Change the suppress list of a warehouse, and give the new one; raises Busy, UnreadableWarehouse, OSError.

    The visible files of the new list come first, the list last, under the publish lock: a server that sees the new
    list writes nothing.
    """
    with FileLock(paths.lock, wait, on_wait=on_wait):
        text = changed(read_text(paths), add, remove)
        suppressed = parse(text, str(paths.suppressed))
        snapshot = read_snapshot(paths)
        Visible(paths, suppressed).snapshot(snapshot)  # raises where a file cannot be written
        prebuild(paths, snapshot.all_files(), snapshot.manifest, 1, suppressed)
        place_of(paths).write_suppressed(text.encode())
    return suppressed
