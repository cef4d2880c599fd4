"""Indexes and summaries that are built before a version is visible, so that no request waits for them.

Nothing is done unless a server has made the cache folder. What fails here is built by the servers: a version is
complete without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from sigdir.warehouse.index.build import build_index, segment_of
from sigdir.warehouse.index.summaries import folder_name, summaries_of
from sigdir.warehouse.index.visible import Visible
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.log.evidence import ManifestFile
from sigdir.warehouse.log.manifest import manifest_of
from sigdir.warehouse.table import suppressed
from sigdir.warehouse.table.errors import WarehouseError
from sigdir.warehouse.table.paths import Paths, index_name
from sigdir.warehouse.table.suppressed import Suppressed


def prebuild(
    paths: Paths, files: Iterable[DataFile], manifest: ManifestFile | None, threads: int, hidden: Suppressed | None = None
) -> None:  # fmt: skip
    """Build what a version's files lack, as servers show them: without ``hidden``, by default the suppress list."""
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
            summaries_of(paths, shown, segment_of(paths, shown).ids, evidence)

    with ThreadPoolExecutor(threads) as pool:
        for file in files:
            pool.submit(build_missing, file)


def _suppressed(paths: Paths) -> Suppressed:
    """The suppress list; empty if it cannot be read, because then servers use the one that they have read last."""
    try:
        return suppressed.read(paths)
    except WarehouseError:
        return suppressed.NONE
