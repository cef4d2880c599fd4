"""The mapped files of one publish: contracts and usage, each written before the publish began.

Invariants
    A file says what one import says; its statements are of the import's sources.
    A statement of a source that the import replaces takes the place of the source's earlier ones. Otherwise it is added,
    and readers take the newest first.
    A file that says just what a file of the same sources says is not published again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sigdir.warehouse.log.manifest import Manifest, MappedFile
from sigdir.warehouse.table.files import make_folder, sync
from sigdir.warehouse.table.parquet import sha256_of
from sigdir.warehouse.table.paths import Paths


@dataclass(frozen=True, slots=True)
class MappedDraft:
    """A file in the run's folder: CONTRACTS or USAGE, with so many rows. ``labels`` are the sources of its statements."""

    path: Path
    kind: str
    rows: int
    labels: tuple[str, ...]
    replaces: bool = False


def mapped_evidence(manifest: Manifest, drafts: Sequence[MappedDraft], replaces: bool) -> list[MappedDraft]:
    """The drafts that say something new, or are all that their sources say from now on."""
    found = [replace(draft, replaces=draft.replaces or replaces) for draft in drafts]
    return [draft for draft in found if not _is_said(manifest, draft)]


def _is_said(manifest: Manifest, draft: MappedDraft) -> bool:
    wanted = [source and source.number for source in map(manifest.of_label, draft.labels)]
    if None in wanted:
        return False
    digest, others = sha256_of(draft.path), 0
    is_said = False
    for file in manifest.mapped_of(draft.kind):
        said = [one and one[0] for one in file.statements]
        if said == wanted and file.sha256 == digest:
            is_said = True
        else:
            others += not {*said}.isdisjoint(wanted)
    return is_said and not (draft.replaces and others)


def place_mapped(
    paths: Paths, run: str, base: Manifest, drafts: Sequence[MappedDraft], numbers: Mapping[str, int], import_id: int
) -> tuple[MappedFile, ...]:
    """Put the files of a run in place and sync them; returns the mapped files of its version.

    ``numbers`` are those of the sources.
    """
    mapped = list(base.mapped)
    for number, draft in enumerate(drafts):
        path = paths.evidence_mapped(draft.kind, run, number)
        make_folder(path.parent)
        if not path.exists():  # a run that gives way to late rows writes its manifest again
            sync(draft.path)
            path.hardlink_to(draft.path)  # the run keeps its own for another attempt
        statements = tuple((numbers[label], import_id) for label in draft.labels)
        if draft.replaces:
            gone = {number for number, _ in statements}
            mapped = [_without(file, gone) if file.kind == draft.kind else file for file in mapped]
        mapped.append(MappedFile(path, draft.rows, path.stat().st_size, sha256_of(path), statements))
    return tuple(mapped)


def _without(file: MappedFile, gone: set[int]) -> MappedFile:
    kept = tuple(None if one is None or one[0] in gone else one for one in file.statements)
    return replace(file, statements=kept)
