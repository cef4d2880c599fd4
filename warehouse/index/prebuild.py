"""Indexes and summaries that are built before a version is visible, so that no request waits for them.

Nothing is done unless a server has made the cache folder. What fails here is built by the servers: a version is
complete without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from sigdir.warehouse import suppressed
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.evidence.manifest import manifest_of
from sigdir.warehouse.index.missing import build_missing_index, build_missing_summaries
from sigdir.warehouse.index.visible import Visible
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.evidence import ManifestFile
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.suppressed import Suppressed


def build_indexes(paths: Paths, files: Iterable[DataFile], threads: int) -> None:
    """Build the indexes of files that are not in a version yet."""
    _build(paths, files, threads, build_missing_index)


def build_summaries(paths: Paths, files: Iterable[DataFile], manifest: ManifestFile | None, threads: int) -> None:
    """Build the summaries by which texts are ranked, of those of a version's files that have none yet."""
    if manifest is not None and paths.cache.is_dir():
        _build(paths, files, threads, partial(build_missing_summaries, evidence=manifest_of(manifest)))


def _build(paths: Paths, files: Iterable[DataFile], threads: int, build: Callable[[Path, DataFile], object]) -> None:
    """Call ``build`` with the cache folder of each file, and the file as servers show it."""
    if not paths.cache.is_dir():
        return
    visible = Visible(paths, _suppressed(paths))

    def build_one(file: DataFile) -> None:
        shown = visible.file(file)
        if shown is not None:
            build(paths.index_cache(shown.path), shown)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build_one, file)


def _suppressed(paths: Paths) -> Suppressed:
    """The suppress list; empty if it cannot be read, because then servers use the one that they have read last."""
    try:
        return suppressed.read(paths)
    except WarehouseError:
        return suppressed.NONE
