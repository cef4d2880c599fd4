"""The evidence: its manifest, its files, the texts that its sightings are of, and how many each source has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.interruption import each
from sigdir.warehouse.errors import UnreadableWarehouse
from sigdir.warehouse.evidence.manifest import POST, EvidenceFile, Manifest
from sigdir.warehouse.log.actions import DataFile
from sigdir.warehouse.parquet import naming, sha256_of
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.schema import SIGHTING_SCHEMA
from sigdir.warehouse.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.staging.reader import open_read_only
from sigdir.warehouse.verify.report import Findings, reason_of

Ids = npt.NDArray[np.int64]


def check_evidence(findings: Findings, snapshot: Snapshot) -> None:
    """Check everything that the snapshot's manifest names; a damaged file is reported once."""
    try:
        manifest = snapshot.evidence
    except UnreadableWarehouse as error:
        path = snapshot.manifest.path if snapshot.manifest is not None else findings.paths.evidence
        findings.add("evidence", path, reason_of(error, path))
        return
    counts: Counter[int] = Counter()
    is_complete = True
    for collection in COLLECTIONS:
        texts = _Texts(findings.paths, snapshot, collection)
        for file in manifest.files[collection]:
            try:
                _check_file(findings, manifest, file, texts, counts)
            except UnreadableWarehouse as error:
                findings.add("evidence", file.path, reason_of(error, file.path) if file.path.exists() else "missing")
                is_complete = False
    for number, source in manifest.sources.items() if is_complete else ():
        if number != POST and counts[number] != source.sightings:
            why = f"{counts[number]} sightings of source {number}; the manifest says {source.sightings}"
            findings.add("evidence", findings.paths.evidence, why)


def _check_file(
    findings: Findings, manifest: Manifest, file: EvidenceFile, texts: _Texts, counts: Counter[int]
) -> None:
    with naming(file.path):
        size, schema = file.path.stat().st_size, pq.read_schema(file.path)
    if size != file.size or not schema.equals(SIGHTING_SCHEMA):
        findings.add("evidence", file.path, "not the size or the columns that were written")
    elif sha256_of(file.path) != file.sha256:
        findings.add("evidence", file.path, "not the bytes that were written")
    since = np.full(max(manifest.sources, default=0) + 2, -1, np.int64)
    for number, source in manifest.sources.items():
        since[number] = source.import_id
    rows, lowest, highest = 0, file.last_id, file.first_id
    for ids, sources, imports in _batches(file):
        rows += len(ids)
        lowest, highest = min(lowest, int(ids.min())), max(highest, int(ids.max()))
        if sources.min() < 0 or sources.max() >= len(since) or (since[sources] < 0).any():
            findings.add("evidence", file.path, "a sighting of a source that is not in the manifest")
            continue
        counts.update(Counter(sources[imports >= since[sources]].tolist()))
        for id in texts.unknown(ids)[:1].tolist():
            findings.add("sighting", file.path, "of a text that is not there", f"id {id}")
    if (rows, lowest, highest) != (file.rows, file.first_id, file.last_id):
        why = f"{rows} sightings of the ids {lowest} to {highest}; the manifest says {file.rows}"
        findings.add("evidence", file.path, f"{why} of {file.first_id} to {file.last_id}")


def _batches(file: EvidenceFile) -> Iterator[tuple[Ids, Ids, Ids]]:
    """Ids, sources and imports of a file, a batch at a time."""
    with naming(file.path), pq.ParquetFile(file.path, page_checksum_verification=True) as parquet:
        for batch in each(parquet.iter_batches(1 << 20, columns=["id", "source", "import_id"])):
            if batch.num_rows:
                ids, sources, imports = (column.to_numpy() for column in batch.columns)
                yield ids, sources.astype(np.int64), imports


class _Texts:
    """The ids of a collection's texts, staged ones too.

    A file whose ids have no gaps is known by its range, of another file the ids are read.
    """

    def __init__(self, paths: Paths, snapshot: Snapshot, collection: Collection) -> None:
        self._paths, self._collection = paths, collection
        self._is_complete = True
        self._read(snapshot)

    def unknown(self, ids: Ids) -> Ids:
        """Those of the ids that no text has; none where staging cannot be read."""
        left = ids[~self._are_known(ids)]
        if (
            len(left) and self._is_complete
        ):  # a text may have been POSTed, or folded, since the files and staging were read
            self._read(None)
            left = left[~self._are_known(left)]
        return left if self._is_complete else left[:0]

    def _read(self, snapshot: Snapshot | None) -> None:
        self._staged = np.sort(np.array(self._staged_ids(), np.int64))  # read before the log: they may be folded
        files = (snapshot or read_snapshot(self._paths)).files[self._collection]
        self._firsts = np.array([file.first_id for file in files], np.int64)
        self._lasts = np.array([file.last_id for file in files], np.int64)
        self._gappy = {
            at: _ids_of(file) for at, file in enumerate(files) if file.rows != file.last_id - file.first_id + 1
        }

    def _staged_ids(self) -> list[int]:
        if not self._paths.staging.exists():
            return []
        with suppress(UnreadableWarehouse), open_read_only(self._paths.staging) as staging:
            return [row.id for row in staging.rows(self._collection, 0)]
        self._is_complete = False  # staging is damaged, which is a finding already
        return []

    def _are_known(self, ids: Ids) -> npt.NDArray[np.bool_]:
        known = np.isin(ids, self._staged)
        if not len(self._firsts):
            return known
        at = np.searchsorted(self._firsts, ids, side="right") - 1
        in_file = (at >= 0) & (ids <= self._lasts[at])
        for number, its_ids in self._gappy.items():
            here = in_file & (at == number)
            in_file[here] = np.isin(ids[here], its_ids)
        return known | in_file


def _ids_of(file: DataFile) -> Ids:
    with naming(file.path):
        ids: Ids = pq.read_table(file.path, columns=["id"])["id"].to_numpy()
    return ids
