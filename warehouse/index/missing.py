"""What a server maps of a data file, built before a server needs it, unless it is there."""

from __future__ import annotations

from pathlib import Path

from sigdir.warehouse.evidence import Manifest
from sigdir.warehouse.index.build import build_index, build_trigrams, segment_of
from sigdir.warehouse.index.summaries import has_summaries, summaries_of
from sigdir.warehouse.log.actions import DataFile


def build_missing_index(cache: Path, file: DataFile) -> None:
    """Build the columns and the trigrams; raises UnreadableWarehouse, OSError, ValueError or EOFError."""
    build_index(cache, file.collection, file.path, file.rows)
    build_trigrams(cache, file.collection, file.path, file.rows)


def build_missing_summaries(cache: Path, file: DataFile, evidence: Manifest) -> None:
    """Build the summaries for this evidence. The file's index is there; raises UnreadableWarehouse, OSError."""
    if not has_summaries(cache, file, evidence):
        segment = segment_of(cache, file.collection, file.path, file.rows)
        summaries_of(cache, file, segment.ids[: segment.rows], evidence)
