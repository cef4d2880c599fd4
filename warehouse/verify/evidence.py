"""The manifest of the evidence, and its files as they are by themselves.

Readers trust the bytes of a mapped file that are those that were written, so nothing more is looked at.
"""

from __future__ import annotations

import pyarrow as pa

from sigdir.warehouse.log.manifest import EvidenceFile
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.parquet import batches_in
from sigdir.warehouse.table.schema import SIGHTING_SCHEMA
from sigdir.warehouse.verify.files import StoredFile, Verification, reason_of

_READ = ["id", "source", "import_id"]
"""The columns that are compared with anything."""


def check_evidence(work: Verification) -> None:
    """Read all that the version's manifest names."""
    work.begin_stage("evidence", 0)
    try:
        work.manifest = work.snapshot.evidence
    except UnreadableWarehouse as error:
        path = work.snapshot.manifest.path if work.snapshot.manifest is not None else work.paths.evidence
        work.report.add("evidence", path, reason_of(error, path))
    for file in work.manifest.sighting_files():
        _check_file(work, file)
    for mapped in work.manifest.mapped:
        work.has_bytes(StoredFile("evidence", mapped.path, pa.schema([]), mapped.rows, mapped.size, mapped.sha256))
        if any(said is not None and said[0] not in work.manifest.sources for said in mapped.statements):
            work.report.add("evidence", mapped.path, "a statement of a source that is not in the manifest")


def _check_file(work: Verification, file: EvidenceFile) -> None:
    stored = StoredFile("evidence", file.path, SIGHTING_SCHEMA, file.rows, file.size, file.sha256)
    if work.metadata_of(stored) is None:
        return
    try:
        for _ in batches_in(file.path, _READ):
            pass
    except UnreadableWarehouse as error:
        work.add_unreadable(stored, error)
    else:
        work.readable.add(file.path)
