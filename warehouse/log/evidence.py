"""How a commit names the evidence of its version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sigdir.warehouse.log.damage import DAMAGED, damaged_entry, reason_of
from sigdir.warehouse.log.entry import LogEntry, read_summary
from sigdir.warehouse.table.paths import Paths

_MANIFEST_NAME = re.compile(r"[\w-]+\.json")


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The file that describes a version's evidence, and its digest in hex."""

    path: Path
    sha256: str


def evidence_entry(manifest: ManifestFile | None, sightings: int = 0) -> dict[str, Any]:
    """What a commit's summary says of its version's evidence; ``sightings`` is how many the commit brings."""
    if manifest is None:
        return {}
    return {"evidence": {"manifest": manifest.path.name, "sha256": manifest.sha256, "sightings": sightings}}


def manifest_at(paths: Paths, version: int) -> ManifestFile | None:
    """The manifest that a version names, None if it is before the first sighting; raises UnreadableWarehouse.

    A commit of another program names none: the version before it has the same evidence.
    """
    for number in range(version, 0, -1):
        summary = read_summary(paths, number)
        if summary is not None:
            return _manifest_of_summary(paths, number, summary)
    return None


def manifest_of_entry(paths: Paths, entry: LogEntry) -> ManifestFile | None:
    """The manifest that a commit names, None for one that names none; raises UnreadableWarehouse."""
    return _manifest_of_summary(paths, entry.version, entry.summary or {})


def _manifest_of_summary(paths: Paths, version: int, summary: Mapping[str, Any]) -> ManifestFile | None:
    if "evidence" not in summary:
        return None
    try:
        name, sha256 = summary["evidence"]["manifest"], summary["evidence"]["sha256"]
        if not _MANIFEST_NAME.fullmatch(name) or not isinstance(sha256, str):
            raise ValueError("not the name and the digest of a manifest")
    except DAMAGED as error:
        raise damaged_entry(paths.log_entry(version), f"its evidence: {reason_of(error)}") from error
    return ManifestFile(paths.evidence / name, sha256)
