"""The evidence of one publish: the sightings of an import's rows, new and duplicate, and those of folded POSTs.

Invariants
    Every accepted row leaves its sighting, with the id that its text has once the version is visible: a stored one,
    the one reserved for the row, that of the batch's first row with the text, or that of a POST that took the text.
    Memory does not grow with the batch: a part of CHUNK_ROWS rows is in memory at a time, in each thread.
    A sighting of a text that its source has said before is not written: the earlier one stays (``renewal.py``).

A list that names a text twice brings one sighting of it where the two lines are in the same part; compaction removes
the others.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Collection as AnyOf
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures import arrow
from sigdir.signatures.candidates import Sightings
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.signatures.evidence import LISTED, Kind, Sighting
from sigdir.warehouse.evidence.mapped import (
    FILE_ROWS,
    BatchSightings,
    posted_ids,
    sightings_table,
    sorted_by_id,
    write_sightings,
)
from sigdir.warehouse.evidence.summaries import differs
from sigdir.warehouse.log.manifest import (
    POST,
    POST_SOURCE,
    EvidenceFile,
    EvidenceSource,
    Manifest,
    ManifestFile,
    sync_folders,
    without_replaced,
    write_manifest,
)
from sigdir.warehouse.publish.batch import Batch, Staged, runs_of_batches
from sigdir.warehouse.publish.renewal import MappedDraft, Renewal, Withdrawn, place_mapped
from sigdir.warehouse.publish.spill import Ids
from sigdir.warehouse.staging.transaction import PostedSighting, Range, StagedRow
from sigdir.warehouse.table.parallel import for_each
from sigdir.warehouse.table.paths import Paths

CHUNK_ROWS = 1 << 19
"""So many sightings are sorted by id and written at a time."""


@dataclass(frozen=True, slots=True)
class _EvidencePart:
    """The sightings of one file: those of the spill's batches ``first`` up to and without ``last``."""

    number: int
    first: int
    last: int


class _SourceSums(NamedTuple):
    """By the labels of sources: how many sightings each has, and the sum of the digests of its batches."""

    sightings: Counter[str]
    digests: Counter[str]


class _WrittenEvidence(NamedTuple):
    file: EvidenceFile | None
    sums: _SourceSums


class EvidenceFiles:
    """The files of sightings that one publish writes; none is visible until the log names their manifest.

    File 0 of a collection holds the POSTs' sightings; the batch's files count from 1, and files that lose superseded
    sightings follow. ``unchanged`` are the labels of sources that say nothing new.
    """

    def __init__(
        self, paths: Paths, run: str, base: Manifest, batches: Mapping[Collection, Batch], threads: int,
        unchanged: AnyOf[str] = (), mapped: Sequence[MappedDraft] = (),
    ) -> None:  # fmt: skip
        self._paths, self._run, self._base, self._threads = paths, run, base, threads
        self._collections = {c: _CollectionSightings(batch) for c, batch in batches.items()}
        self._unchanged, self._mapped = unchanged, mapped
        self._replaced = set[str]().union(*(batch.sightings.replaced for batch in batches.values()))
        """The labels of the sources whose earlier sightings stop to count."""
        self._withdrawn: set[str] = set()
        """Those of them that say nothing any more."""
        self._parts: dict[Collection, list[_EvidencePart]] = {}
        self._written: dict[tuple[Collection, int], _WrittenEvidence] = {}
        self._renewals: dict[Collection, Renewal] = {}
        self._rewritten: dict[Path, tuple[EvidenceFile | None, Counter[int]]] = {}
        """What takes the place of earlier files, and how many sightings of each source it has less."""
        self._import_id = 0
        self._numbers: dict[str, int] = {}

    def write(
        self, reserved: Mapping[Collection, Range], folded: Staged, sighted: list[PostedSighting], import_id: int
    ) -> None:
        """Write and sync all files.

        ``reserved`` has the ids of the new rows, ``folded`` the POSTed rows, ``sighted`` what POSTs said beyond that.
        """
        self._import_id = import_id
        self._number_sources()
        for collection, sightings in self._collections.items():
            sightings.number_new_rows(reserved[collection].first_id)
            self._renewals[collection] = self._renewal(collection)
            self._parts[collection] = sightings.parts(self._threads)
        parts = [(collection, part) for collection, parts in self._parts.items() for part in parts]
        for_each(lambda part: self._write_part(*part), parts, self._threads)
        for collection, renewal in self._renewals.items():
            for old, new, gone in renewal.without_superseded(self._paths, self._run, len(self._parts[collection]) + 1):
                self._rewritten[old.path] = new, gone
        for collection, rows in folded.items():
            posted = {one.id: one for one in sighted if one.collection == collection}
            self._write_posted(collection, [row.id for row in rows], posted)
        self._sync()

    def add_late_rows(self, late: Staged) -> None:
        """Give the sightings of late POSTs' texts the POSTs' ids, and write the files that have them again."""
        for collection, rows in late.items():
            sightings = self._collections[collection]
            numbers = sightings.add_late_rows(rows)
            for part in self._parts[collection]:
                if sightings.has_row_of(part, numbers):
                    old = self._written[collection, part.number].file
                    self._write_part(collection, part, suffix=f"-{time.time_ns()}")
                    if old is not None:
                        old.path.unlink()
        self._sync()

    def sightings(self) -> int:
        """How many sightings the publish brings."""
        return sum(written.file.rows for written in self._written.values() if written.file is not None)

    def labels(self) -> set[str]:
        """The labels of the sources that say something, and of the known ones that say nothing any more."""
        self._number_sources()
        return set(self._numbers)

    def unchanged(self) -> set[str]:
        """The labels of known sources that name no new text and say nothing new; nothing is written.

        A source that is replaced has to say just what it said before.
        """
        self._number_sources()
        new: set[str] = set().union(*(sightings.labels_with_new_rows() for sightings in self._collections.values()))
        known = {one: source for one in self._numbers if one not in new and (source := self._base.of_label(one))}
        digests = self._digests(known)
        same = {
            label for label, source in known.items()
            if source.digest == digests[label] and not (label in self._replaced and source.is_added_to)
        }  # fmt: skip
        silent = known.keys() - same - self._replaced
        self._unchanged = self._numbers.keys() - silent
        for collection, sightings in self._collections.items() if silent else ():
            self._renewals[collection] = self._renewal(collection)
            for part in sightings.parts(1):
                sums = _SourceSums(Counter(), Counter())
                for _ in self._tables(collection, part, sums):
                    silent = {label for label in silent if not sums.sightings[label]}
                    if not silent:
                        return same
        return same | silent

    def _digests(self, labels: AnyOf[str]) -> dict[str, str]:
        """The digests of what these sources say."""
        found: Counter[str] = Counter()
        for sightings in self._collections.values():
            for number in range(sightings.spill.batches()):
                label, file = sightings.input_of(number)
                if label in labels:
                    found[label] += _digest(file, sightings.ids(number), sightings.spill.sightings.read(number))
        return {label: _hex(found[label]) for label in labels}

    def withdrawn(self) -> Withdrawn:
        """What the sources that are replaced no longer say."""
        each = [renewal.withdrawn() for renewal in self._renewals.values()]
        return Withdrawn(sum(one.sightings for one in each), sum(one.texts for one in each))

    def write_manifest(self) -> ManifestFile | None:
        """Write and sync the manifest of the new version; None if the publish brings no evidence."""
        files = {
            collection: [written.file for (of, _), written in sorted(self._written.items()) if of == collection]
            for collection in COLLECTIONS
        }
        sums = [written.sums for written in self._written.values()]
        sightings = sum((one.sightings for one in sums), Counter[str]())
        digests = sum((one.digests for one in sums), Counter[str]())
        digests.update(dict.fromkeys(self._withdrawn, 0))
        if not digests and not self._mapped and not any(any(of) for of in files.values()):
            return None
        sources = {POST: POST_SOURCE, **self._base.sources}
        for label, digest in digests.items():
            source = self._source(label, sightings[label], _hex(digest))
            sources[source.number] = source
        for label in (label for draft in self._mapped for label in draft.labels):
            number = self._numbers[label]
            if number not in sources:  # it says nothing of texts
                sources[number] = EvidenceSource(
                    number, label, self._import_id, self._import_id, 0, "", is_added_to=False
                )
        mapped = place_mapped(self._paths, self._run, self._base, self._mapped, self._numbers, self._import_id)
        sync_folders(mapped[len(self._base.mapped) :])
        earlier = {c: [self._rewritten.get(file.path, (file,))[0] for file in self._base.files[c]] for c in COLLECTIONS}
        named = {c: tuple(file for file in (*earlier[c], *files[c]) if file is not None) for c in COLLECTIONS}
        manifest = without_replaced(Manifest(sources, named, self._base.sources_file, mapped))
        return write_manifest(self._paths, self._run, manifest, self._base)

    def _source(self, label: str, sightings: int, digest: str) -> EvidenceSource:
        """A source as it is once so many new sightings are published."""
        number, old = self._numbers[label], self._base.of_label(label)
        if old is None or label in self._replaced:
            first = old.first_import if old is not None else self._import_id
            return EvidenceSource(number, label, self._import_id, first, sightings, digest, is_added_to=False)
        gone = sum(less[number] for _, less in self._rewritten.values())
        return replace(old, sightings=old.sightings + sightings - gone, digest=digest, is_added_to=True)

    def _renewal(self, collection: Collection) -> Renewal:
        """What the import's sources said before; those that are unchanged say nothing."""
        known = {label for label in self._numbers if label not in self._unchanged and self._base.of_label(label)}
        replaced = known & self._replaced
        added, gone = ({self._numbers[label] for label in labels} for labels in (known - replaced, replaced))
        return Renewal(
            self._base, collection, added, gone, self._threads, self._collections[collection].spill.texts_path.parent
        )

    def _number_sources(self) -> None:
        """Give each source that says something, or nothing any more, its number: its own, or the next one for a new source."""
        following = max(self._base.sources, default=POST) + 1
        labels = [label for sightings in self._collections.values() for label in sightings.labels()]
        replaced = map(self._base.of_label, self._replaced.difference(labels))
        self._withdrawn = {source.label for source in replaced if source is not None and source.sightings}
        labels += [label for draft in self._mapped for label in draft.labels]
        for label in dict.fromkeys([*labels, *self._withdrawn]):
            if label not in self._numbers:
                known = self._base.of_label(label)
                self._numbers[label] = known.number if known is not None else following
                following += known is None

    def _write_part(self, collection: Collection, part: _EvidencePart, suffix: str = "") -> None:
        sums = _SourceSums(Counter(), Counter())
        path = self._paths.evidence_file(collection, self._run + suffix, part.number)
        file = write_sightings(path, collection, self._tables(collection, part, sums))
        self._written[collection, part.number] = _WrittenEvidence(file, sums)

    def _tables(self, collection: Collection, part: _EvidencePart, sums: _SourceSums) -> Iterator[pa.Table]:
        sightings = self._collections[collection]
        labels = {number: label for label, number in self._numbers.items()}
        for first, last in sightings.chunks(part):
            tables: list[pa.Table] = []
            for (label, file), batches in groupby(range(first, last), sightings.input_of):
                if label not in self._unchanged:
                    tables += self._tables_of_input(sightings, list(batches), label, file, sums.digests)
            table = self._renewals[collection].news(sorted_by_id(tables))
            for number, rows in zip(*np.unique(arrow.values(table["source"]), return_counts=True), strict=True):
                sums.sightings[labels[int(number)]] += int(rows)
            yield table

    def _tables_of_input(
        self, sightings: _CollectionSightings, batches: list[int], label: str, file: str | None, digests: Counter[str]
    ) -> Iterator[pa.Table]:
        """The sightings of adjacent batches of one input, each different one once."""
        listed: list[Ids] = []
        for number in batches:
            ids, said = sightings.ids(number), sightings.spill.sightings.read(number)
            digests[label] += _digest(file, ids, said)
            if said is None:
                listed.append(ids)
                continue
            if len(_distinct(ids)) < len(ids):
                is_first = _is_first(ids, said)
                ids, said = ids[is_first], said.filter(is_first)
            yield sightings_table(ids, self._numbers[label], self._import_id, file, said)
        if listed:
            yield sightings_table(_distinct(np.concatenate(listed)), self._numbers[label], self._import_id, file)

    def _write_posted(self, collection: Collection, folded: list[int], sighted: Mapping[int, PostedSighting]) -> None:
        """The sightings of POSTs: one of each folded row, and of each other text unless the evidence has as much."""
        new = set(folded)
        others = {id: one for id, one in sighted.items() if id not in new}
        known = posted_ids(self._base.files[collection], others)
        others = {id: one for id, one in others.items() if id not in known or (one.declaration and not known[id])}
        ids = sorted([*folded, *others])
        if not ids:
            return
        said = BatchSightings.of(Sightings.of([_sighting(sighted.get(id)) for id in ids]))
        table = sightings_table(np.array(ids, np.int64), POST, 0, None, said)
        path = self._paths.evidence_file(collection, self._run, 0)
        self._written[collection, 0] = _WrittenEvidence(
            write_sightings(path, collection, [table]), _SourceSums(Counter(), Counter())
        )

    def _sync(self) -> None:
        files = [*(written.file for written in self._written.values()), *(new for new, _ in self._rewritten.values())]
        sync_folders(file for file in files if file is not None)


def _sighting(posted: PostedSighting | None) -> Sighting:
    return LISTED if posted is None else Sighting(Kind(posted.kind), declaration=posted.declaration)


class _CollectionSightings:
    """What the sources say of one collection's rows, with the ids of the rows' texts."""

    def __init__(self, batch: Batch) -> None:
        self.spill, self._keep, self._sightings = batch.spill, batch.keep, batch.sightings
        self._bounds, self._ids = self.spill.first_rows(), batch.sightings.text_ids

    def input_of(self, batch: int) -> tuple[str, str | None]:
        """The label of a batch's source, and the name of its input."""
        found = self._sightings.inputs[self._sightings.of_batch[batch]]
        return found.label, found.file

    def labels(self) -> list[str]:
        """The labels of the sources that have rows here, in their order."""
        return list(dict.fromkeys(self.input_of(number)[0] for number in range(self.spill.batches())))

    def labels_with_new_rows(self) -> set[str]:
        if not self.spill.batches():
            return set()
        new = np.add.reduceat(self._keep, self._bounds[:-1], dtype=np.int64)
        return {self.input_of(number)[0] for number in np.flatnonzero(new).tolist()}

    def number_new_rows(self, first_id: int) -> None:
        """Give the new rows their ids, which rise from ``first_id`` on in their order."""
        for start, stop in pairwise(self._bounds.tolist()):
            new = np.flatnonzero(self._keep[start:stop])
            self._ids[start + new] = first_id + np.arange(len(new))
            first_id += len(new)

    def ids(self, batch: int) -> Ids:
        """The ids of the texts of a batch's rows."""
        ids = np.array(self._ids[self._bounds[batch] : self._bounds[batch + 1]])
        repeated = ids < 0
        ids[repeated] = self._ids[-1 - ids[repeated]]
        return ids

    def add_late_rows(self, rows: list[StagedRow]) -> Ids:
        """Note the ids of POSTs that took texts of the batch; returns the numbers of the rows with these texts."""
        numbers, which = self.spill.rows_with([row.text for row in rows])
        self._ids[numbers] = np.array([row.id for row in rows], np.int64)[which]
        return numbers

    def parts(self, threads: int) -> list[_EvidencePart]:
        """Files of about equal size, as many as keep all threads busy."""
        rows = self.spill.rows
        wanted = threads * -(-rows // (FILE_ROWS * threads)) if rows > FILE_ROWS // 10 else 1
        pieces = runs_of_batches(self._bounds, wanted)
        return [_EvidencePart(number, *piece) for number, piece in enumerate(pieces, 1) if piece[0] < piece[1]]

    def chunks(self, part: _EvidencePart) -> Iterator[tuple[int, int]]:
        """The part's batches in runs of about CHUNK_ROWS rows, each from the first up to and without the last."""
        first = part.first
        while first < part.last:
            last = int(np.searchsorted(self._bounds, self._bounds[first] + CHUNK_ROWS))
            last = min(max(last, first + 1), part.last)
            yield first, last
            first = last

    def has_row_of(self, part: _EvidencePart, numbers: Ids) -> bool:
        """Whether one of the rows is among those of a part."""
        return bool(((self._bounds[part.first] <= numbers) & (numbers < self._bounds[part.last])).any())


def _distinct(ids: Ids) -> Ids:
    """The ids that differ, in order."""
    if (ids[1:] > ids[:-1]).all():
        return ids
    ids = np.sort(ids)  # np.unique takes ten times as long: it hashes first
    return ids[differs(ids)]


def _is_first(ids: Ids, said: BatchSightings) -> npt.NDArray[np.bool_]:
    """Whether no row above says the same of the same text."""
    base, kind = arrow.values(said.rows["base"]), arrow.values(said.rows["kind"])
    declaration = arrow.values(said.rows["declaration"].dictionary_encode("encode").indices)
    columns = declaration, kind, base, ids
    order = np.lexsort(columns)  # stable: the first of equal rows stays in front
    is_first = np.empty(len(ids), np.bool_)
    is_first[order] = differs(*(column[order] for column in columns))
    return is_first


def _hex(digest: int) -> str:
    """The digest of a source, from the sum of those of its batches."""
    return f"{digest % (1 << 256):064x}"


def _digest(file: str | None, ids: Ids, sightings: BatchSightings | None) -> int:
    """A number for what an input says of a batch of texts."""
    digest = hashlib.sha256((file or "").encode() + b"\0")
    digest.update(ids.tobytes())
    if sightings is not None:
        digest.update(sightings.bases.serialize())
        digest.update(sightings.rows.serialize())
    return int.from_bytes(digest.digest(), "big")
