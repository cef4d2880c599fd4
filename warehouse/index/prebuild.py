"""Indexes and summaries that are built before a version is visible, so that no request waits for them.

Nothing is done unless a server has made the cache folder. What fails here is built by the servers: a version is
complete without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from sigdir.warehouse import suppressed
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.evidence.manifest import manifest_of
from sigdir.warehouse.index.build import build_index
from sigdir.warehouse.index.summaries import build_summaries
from sigdir.warehouse.index.visible import Visible
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.evidence import ManifestFile
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.suppressed import Suppressed


def build_indexes(paths: Paths, files: Iterable[DataFile], threads: int) -> None:
    """Build the indexes of files that are not in a version yet."""
    if not paths.cache.is_dir():
        return
    visible = Visible(paths, _suppressed(paths))

    def build(file: DataFile) -> None:
        shown = visible.file(file)
        if shown is not None:
            build_index(paths.index_cache(shown.path), shown.collection, shown.path, shown.rows)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build, file)


def build_summaries(paths: Paths, files: Iterable[DataFile], manifest: ManifestFile | None, threads: int) -> None:
    """Build the summaries by which texts are ranked, of those of a version's files that have none yet."""
    if manifest is None or not paths.cache.is_dir():
        return
    evidence, visible = manifest_of(manifest), Visible(paths, _suppressed(paths))

    def build(file: DataFile) -> None:
        shown = visible.file(file)
        if shown is not None:
            build_summaries(paths.index_cache(shown.path), shown, evidence)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build, file)


def _suppressed(paths: Paths) -> Suppressed:
    """The suppress list; empty if it cannot be read, because then servers use the one that they have read last."""
    try:
        return suppressed.read(paths)
    except WarehouseError:
        return suppressed.NONE
