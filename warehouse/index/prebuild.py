"""Indexes and summaries that are built before a version is visible, so that no request waits for them.

Nothing is done unless a server has made the cache folder. What fails here is built by the servers: a version is
complete without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from sigdir.warehouse.index.build import build_index
from sigdir.warehouse.index.summaries import build_file_summaries
from sigdir.warehouse.index.visible import Visible
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.evidence import ManifestFile
from sigdir.warehouse.log.manifest import manifest_of
from sigdir.warehouse.table import suppressed
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.suppressed import Suppressed


def build_indexes(paths: Paths, files: Iterable[DataFile], threads: int) -> None:
    """Build the indexes of files that are not in a version yet."""

    def build(shown: DataFile) -> None:
        build_index(paths.index_cache(shown.path), shown.collection, shown.path, shown.rows)

    _build(paths, files, threads, build)


def build_summaries(paths: Paths, files: Iterable[DataFile], manifest: ManifestFile | None, threads: int) -> None:
    """Build the summaries by which texts are ranked, of those of a version's files that have none yet."""
    if manifest is None or not paths.cache.is_dir():
        return
    evidence = manifest_of(manifest)

    def build(shown: DataFile) -> None:
        build_file_summaries(paths.index_cache(shown.path), shown, evidence)

    _build(paths, files, threads, build)


def _build(paths: Paths, files: Iterable[DataFile], threads: int, build: Callable[[DataFile], None]) -> None:
    """Call ``build`` with each file as servers show it."""
    if not paths.cache.is_dir():
        return
    visible = Visible(paths, _suppressed(paths))

    def build_visible(file: DataFile) -> None:
        shown = visible.file(file)
        if shown is not None:
            build(shown)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build_visible, file)


def _suppressed(paths: Paths) -> Suppressed:
    """The suppress list; empty if it cannot be read, because then servers use the one that they have read last."""
    try:
        return suppressed.read(paths)
    except WarehouseError:
        return suppressed.NONE
