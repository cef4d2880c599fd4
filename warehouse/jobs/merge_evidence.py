"""Few sorted files of evidence instead of many, without the sightings that no longer count.

Invariants
    What counts in a version counts in the compacted one: a sighting is dropped where its source was imported again,
    or where another of the same source says the same of the same text. A text keeps one sighting by POST.
    A merged file is in the order of the ids, then of the sources, then as the sightings came.
    The engine sorts them within its memory limit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.evidence.files import write_sightings
from sigdir.warehouse.log.manifest import POST, EvidenceFile, Manifest, sync_folders
from sigdir.warehouse.sql.sightings import SightingTables
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.schema import SIGHTING_SCHEMA

Files = Sequence[EvidenceFile]
Merges = Mapping[Collection, Sequence[Files]]

_SAID = (name for name in SIGHTING_SCHEMA.names if name not in ("id", "source", "import_id"))
_REPEATS = f"""
CREATE TABLE repeats AS SELECT file_index, file_row_number, source FROM live
WHERE (id, source) IN (SELECT (id, source) FROM live GROUP BY ALL HAVING count(*) > 1)
QUALIFY row_number() OVER (
    PARTITION BY id, source, {", ".join(f"if(source = {POST}, NULL, {name})" for name in _SAID)}
    ORDER BY declaration IS NULL, import_id, file_index, file_row_number) > 1
"""
_ORDER = "id, source, file_index, file_row_number"


def with_replaced_sightings(manifest: Manifest, merges: Merges) -> Merges:
    """The merges, and each other file alone that has sightings which no longer count."""
    found = {}
    for collection in COLLECTIONS:
        chosen = {file.path for files in merges.get(collection, ()) for file in files}
        alone = [
            [file]
            for file in manifest.files[collection]
            if file.path not in chosen and not all(manifest.counts(*pair) for pair in file.source_imports or ())
        ]
        found[collection] = [*merges.get(collection, ()), *alone]
    return {collection: files for collection, files in found.items() if files}


def merge(paths: Paths, run: str, base: Manifest, merges: Merges, threads: int) -> Manifest:
    """Write and sync each list of files as one; returns what names them. Raises UnreadableWarehouse, QueryError."""
    dropped: Counter[int] = Counter()
    named = {collection: list(base.files[collection]) for collection in COLLECTIONS}
    for collection, lists in merges.items():
        for number, files in enumerate(lists, 1):
            path = paths.evidence_file(collection, run, number)
            with SightingTables(base, files, threads) as tables:
                tables.execute(_REPEATS)
                dropped.update(tables.counts(f"repeats WHERE source != {POST}"))
                written = write_sightings(path, collection, tables.without("repeats", _ORDER))
            at = named[collection].index(files[0])
            named[collection][at:at] = [written] if written is not None else []
            named[collection] = [file for file in named[collection] if file not in files]
            sync_folders([written] if written is not None else [])
    sources = {
        number: replace(source, sightings=source.sightings - dropped[number]) for number, source in base.sources.items()
    }
    return replace(base, sources=sources, files={c: tuple(files) for c, files in named.items()})
