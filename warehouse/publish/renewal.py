"""What an import says anew: which sightings its sources gave before, and which mapped files take the place of others.

Sightings: what the sources of an import said before of the texts that they name now.

A sighting is renewed by a later one of the same source, text and contract; sightings without a contract are alike in
that. A new one that says nothing beyond the earlier ones is not written: a list that is imported again costs nothing
at rest. An earlier one goes where a new one has another declaration, or another display, in its place. It stays where
it says more: a kind, a declaration, a better witness or more contracts. Kinds do not exclude each other.

An import that replaces its sources writes all that they say. There the earlier sightings are only counted.

Theory. A sighting with a kind and a declaration says no less than the same without one of them. So each sighting
makes up to four claims, with and without its kind, with and without its declaration. Another one says nothing new
where a claim in its place has its kind and declaration and is as good. The engine joins them, a part of the import at
a time.

Mapped files of one publish: contracts and usage, each written before the publish began.

Invariants
    A file says what one import says; its statements are of the import's sources.
    A statement of a source that the import replaces takes the place of the source's earlier ones. Otherwise it is added,
    and readers take the newest first.
    A file that says just what a file of the same sources says is not published again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import numbers, values
from sigdir.signatures.collections import Collection
from sigdir.warehouse.evidence.mapped import write_sightings
from sigdir.warehouse.log.manifest import EvidenceFile, Manifest, MappedFile
from sigdir.warehouse.table.files import make_folder, sync
from sigdir.warehouse.table.parquet import ROW_GROUP_ROWS, sha256_of
from sigdir.warehouse.table.paths import Paths

if TYPE_CHECKING:
    from sigdir.warehouse.sql.scratch import SightingTables


_COMPARED = """
    id, source, contract_key, kind, witness, contracts, verified,
    declaration || chr(31) || coalesce(display, '') AS declared, nullif(declaration IS NOT NULL, false) AS is_declared
"""
_SAME_PLACE = "t.id = o.id AND t.source = o.source AND t.contract_key IS NOT DISTINCT FROM o.contract_key"


def _reached(these: str, others: str, declared: str) -> str:
    """The rows of a table that say nothing beyond another's; ``declared`` is the column that compares declarations."""
    return f"""
    SELECT t.* FROM {these} AS t JOIN (
        SELECT id, source, contract_key, if(with_kind, kind, 0) AS kind, if(with_declared, {declared}, NULL) AS declared,
            max(witness) AS witness, max(contracts) AS contracts, max(verified) AS verified
        FROM {others}, (VALUES (true, true), (true, false), (false, true), (false, false)) AS claim(with_kind, with_declared)
        WHERE with_kind <= (kind <> 0) AND with_declared <= ({declared} IS NOT NULL) GROUP BY ALL
    ) AS o ON {_SAME_PLACE} AND t.kind = o.kind AND t.{declared} IS NOT DISTINCT FROM o.declared
    WHERE o.witness >= t.witness AND o.contracts >= t.contracts AND o.verified >= t.verified"""


_TABLES = """
    CREATE TABLE named (id BIGINT, source INTEGER, contract_key BIGINT);
    CREATE TABLE again (file_index UBIGINT, file_row_number BIGINT);
    CREATE TABLE instead (file_index UBIGINT, file_row_number BIGINT);
"""
_NEW = f"""
    CREATE OR REPLACE TABLE new AS SELECT n, {_COMPARED} FROM rows SEMI JOIN sources USING (source);
    INSERT INTO named SELECT id, source, contract_key FROM new SEMI JOIN replaced USING (source);
    DELETE FROM new WHERE source IN (FROM replaced);
"""
_COMPARE = f"""
    CREATE OR REPLACE TABLE earlier AS SELECT file_index, file_row_number, {_COMPARED} FROM live
        WHERE source IN (SELECT source FROM new) AND id IN (SELECT id FROM new);
    CREATE OR REPLACE TABLE known AS {_reached("new", "earlier", "declared")};
    CREATE OR REPLACE TABLE news AS FROM new ANTI JOIN known USING (n);
    INSERT INTO again SELECT file_index, file_row_number FROM earlier AS t SEMI JOIN known AS o
        ON {_SAME_PLACE} AND t.kind = o.kind AND t.declared IS NOT DISTINCT FROM o.declared;
    INSERT INTO instead SELECT file_index, file_row_number FROM ({_reached("earlier", "news", "is_declared")});
"""
_SUPERSEDED = "(FROM instead EXCEPT FROM again)"
_WITHDRAWN = f"""
    SELECT (SELECT count(*) FROM live AS t SEMI JOIN replaced USING (source) ANTI JOIN named AS o ON {_SAME_PLACE}),
        (SELECT count(DISTINCT (id, source)) FROM live SEMI JOIN replaced USING (source) ANTI JOIN named USING (id, source))
"""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What replaced sources no longer say: ``sightings``, and ``texts`` that a source no longer names."""

    sightings: int = 0
    texts: int = 0


class Renewal:
    """The earlier sightings of an import's sources in one collection. Safe for threads.

    ``added`` are the numbers of the sources whose earlier sightings stay, ``replaced`` those of the others. ``news`` is
    called for all sightings of the import, then the other methods. Raises UnreadableWarehouse, QueryError.

    The tables are made once they are asked for something: not for a collection that the import says nothing of. They
    are spilled to ``spill``.
    """

    def __init__(
        self, manifest: Manifest, collection: Collection, added: AbstractSet[int],
        replaced: AbstractSet[int] = frozenset(), threads: int = 1, spill: Path | None = None,
    ) -> None:  # fmt: skip
        known = added | replaced
        self._manifest, self._collection, self._replaced = manifest, collection, replaced
        self._threads, self._spill, self._lock = threads, spill, threading.Lock()
        self._files = [file for file in manifest.files[collection] if file.may_have(lambda source, _: source in known)]

    @cached_property
    def _tables(self) -> SightingTables:
        from sigdir.warehouse.sql.scratch import SightingTables  # DuckDB takes 0.1 s to load

        tables = SightingTables(self._manifest, self._files, self._threads, self._spill)
        replaced = numbers(np.array(sorted(self._replaced), np.int64))
        tables.append(pa.table({"source": replaced}), "CREATE TABLE replaced AS FROM rows")
        tables.execute(_TABLES)
        return tables

    def news(self, sightings: pa.Table) -> pa.Table:
        """Those of an import's sightings that are written; all, without an engine, where each is of a new text."""
        known_to = max((file.last_id for file in self._files), default=0)
        if values(sightings["id"]).min(initial=known_to + 1) > known_to:
            return sightings
        is_news = np.ones(sightings.num_rows, np.bool_)
        with self._lock:
            self._tables.append(sightings.append_column("n", numbers(np.arange(sightings.num_rows))), _NEW)
            self._tables.execute(_COMPARE)
            for batch in self._tables.batches("SELECT n FROM known", ROW_GROUP_ROWS):
                is_news[values(batch["n"])] = False
        return sightings.filter(numbers(is_news))

    def without_superseded(
        self, paths: Paths, run: str, number: int
    ) -> Iterator[tuple[EvidenceFile, EvidenceFile | None, Counter[int]]]:
        """Write each file that has superseded sightings again without them; the first new one has this number.

        Gives the old file, the new one (None if nothing is left), and how many sightings of each source are gone.
        """
        if "_tables" not in vars(self):  # no sighting was compared
            return
        found = self._tables.rows(f"SELECT DISTINCT file_index FROM {_SUPERSEDED} ORDER BY ALL")
        for place, (index,) in enumerate(found):
            gone = f"(FROM live SEMI JOIN {_SUPERSEDED} USING (file_index, file_row_number) WHERE file_index = {index})"
            path = paths.evidence_file(self._collection, run, number + place)
            left = self._tables.without(f"{gone} AS gone", "file_row_number", f"file_index = {index}")
            yield self._files[index], write_sightings(path, self._collection, left), Counter(self._tables.counts(gone))

    def withdrawn(self) -> Withdrawn:
        """What the replaced sources said before and do not say now."""
        return Withdrawn(*self._tables.rows(_WITHDRAWN)[0]) if self._files and self._replaced else Withdrawn()


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
