"""Evidence at rest: who says what about a text. ``read_manifest`` and ``Snapshot.evidence`` are the way in."""

from __future__ import annotations

from sigdir.warehouse.evidence.manifest import NO_EVIDENCE, POST, EvidenceFile, EvidenceSource, Manifest, read_manifest

__all__ = ["NO_EVIDENCE", "POST", "EvidenceFile", "EvidenceSource", "Manifest", "read_manifest"]
