"""The evidence: its manifest, its files, the texts that its sightings are of, and how many each source has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import each
from sigdir.warehouse.log.manifest import POST, EvidenceFile, Manifest
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parquet import naming
from sigdir.warehouse.table.schema import FILE_SCHEMA, SIGHTING_SCHEMA
from sigdir.warehouse.verify.files import StoredFile, Verification
from sigdir.warehouse.verify.report import reason_of

_READ = ["id", "source", "import_id"]
"""The columns that are compared with anything."""


def check_evidence(work: Verification) -> None:
    """Check everything that the snapshot's manifest names."""
    work.begin_stage("evidence", 0)
    try:
        manifest = work.snapshot.evidence
    except UnreadableWarehouse as error:
        path = work.snapshot.manifest.path if work.snapshot.manifest is not None else work.paths.evidence
        work.report.add("evidence", path, reason_of(error, path))
        return
    counted: Counter[int] = Counter()
    is_complete = True
    for collection in COLLECTIONS:
        files = [file for file in manifest.files[collection] if _is_readable(work, file)]
        is_complete &= len(files) == len(manifest.files[collection])
        work.create_view("sightings", [file.path for file in files], SIGHTING_SCHEMA)
        counted += _check_sightings(work, manifest, files)
        _check_texts(work, collection)
    for number, source in manifest.sources.items() if is_complete else ():
        if number != POST and counted[number] != source.sightings:
            why = f"{counted[number]} sightings of source {number}; the manifest says {source.sightings}"
            work.report.add("evidence", work.paths.evidence, why)


def _is_readable(work: Verification, file: EvidenceFile) -> bool:
    """Compare a file with the manifest, and read it by pages whose checksums are checked."""
    stored = StoredFile(
        "evidence", file.path, SIGHTING_SCHEMA, file.rows, file.size, file.sha256, "evidence", "the manifest"
    )
    if work.metadata_of(stored) is None:
        return False
    try:
        with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
            for _ in each(parquet.iter_batches(1 << 20, columns=_READ)):
                pass
    except UnreadableWarehouse as error:
        work.add_unreadable(stored, error)
        return False
    return True


def _check_sightings(work: Verification, manifest: Manifest, files: Sequence[EvidenceFile]) -> Counter[int]:
    """Compare ids and sources with the manifest; returns how many sightings of each source count."""
    groups = work.select(
        """SELECT filename, source, import_id, count(*) AS sightings, min(id) AS first_id, max(id) AS last_id
           FROM sightings GROUP BY filename, source, import_id"""
    )
    counted: Counter[int] = Counter()
    ids: dict[str, tuple[int, int]] = {}
    for group in groups:
        name, source = group["filename"], group["source"]
        first, last = ids.get(name, (group["first_id"], group["last_id"]))
        ids[name] = min(first, group["first_id"]), max(last, group["last_id"])
        if source not in manifest.sources:
            work.report.add("evidence", Path(name), "a sighting of a source that is not in the manifest")
        elif manifest.counts(source, group["import_id"]):
            counted[source] += group["sightings"]
    for file in files:
        first, last = ids.get(str(file.path), (file.first_id, file.last_id))
        if (first, last) != (file.first_id, file.last_id):
            why = f"sightings of the ids {first} to {last}; the manifest says {file.first_id} to {file.last_id}"
            work.report.add("evidence", file.path, why)
    return counted


def _check_texts(work: Verification, collection: Collection) -> None:
    """Check that each sighting is of a text of the table, or of staging."""
    try:
        staged = _staged_ids(work, collection)
    except UnreadableWarehouse:  # a finding already
        return
    # Read after staging: rows may have been POSTed and folded since the version under check was read.
    newest = read_snapshot(work.paths).files[collection]
    unreadable = set(work.snapshot.files[collection]) - set(work.readable[collection])
    files = [file for file in newest if file not in unreadable]
    ranges = {
        "first_id": pa.array([file.first_id for file in unreadable], pa.int64()),
        "last_id": pa.array([file.last_id for file in unreadable], pa.int64()),
    }
    work.create_view("stored", [file.path for file in files], FILE_SCHEMA)
    work.engine.register("staged", pa.table({"id": pa.array(staged, pa.int64())}))
    work.engine.register("unreadable", pa.table(ranges))
    unknown = work.select(
        """SELECT filename, id FROM sightings ANTI JOIN (SELECT id FROM stored UNION ALL FROM staged) USING (id)
           WHERE NOT EXISTS (FROM unreadable WHERE sightings.id BETWEEN first_id AND last_id)
           ORDER BY filename, id LIMIT 1000"""
    )
    for row in unknown:
        work.report.add("sighting", Path(row["filename"]), "of a text that is not there", f"id {row['id']}")


def _staged_ids(work: Verification, collection: Collection) -> list[int]:
    if not work.paths.staging.exists():
        return []
    with open_read_only(work.paths.staging) as staging:
        return [row.id for row in staging.rows(collection, 0)]
