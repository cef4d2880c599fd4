"""The summaries of texts for SQL, and their order: ``sigdir.signatures.rank`` decides it.

Summaries are those of the servers, mapped, where these have built them. SQL builds and writes nothing: other texts are
summed when a query asks for them, 131,072 ids at a time. Few selectors have several texts. To find these takes 0.1 s of a
million rows.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import Array, blobs, numbers, strings
from sigdir.signatures.candidates import bytes_of
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.rank import Ranked, made_up_part, ranked
from sigdir.warehouse.evidence.contracts import with_uses
from sigdir.warehouse.evidence.mapped import mapped_columns
from sigdir.warehouse.evidence.summaries import COUNTS, SightingCounts, Summaries, summed
from sigdir.warehouse.index.summaries import opened, require_written, summaries_at_rest
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.table.fields import DataFile
from sigdir.warehouse.table.paths import Paths, index_name

_HASHES_AT_ONCE = 1 << 16
_NO_IDS = np.empty(0, np.int64)
_BLOCK_BITS = 17
_IN_BLOCK = (1 << _BLOCK_BITS) - 1
_FEW = 128
"""So many texts of a block are summed without the block."""
_KEPT_BLOCKS = 32
"""Of 2 MB and their declarations. The engine asks for 2,048 texts at a time, and to sum a block takes 30 ms."""


class SummaryReader:
    """The summaries of one collection's texts in one version. Safe for threads."""

    def __init__(self, paths: Paths, snapshot: Snapshot, collection: Collection) -> None:
        self._paths, self.evidence, self._collection = paths, snapshot.evidence, collection
        self._files = snapshot.files[collection]
        self._at_rest = lru_cache(maxsize=None)(self._opened)
        self._block = lru_cache(maxsize=_KEPT_BLOCKS)(self._summed)
        self._lock = threading.Lock()  # two threads would sum the same block

    def of(self, ids: Array) -> tuple[Array, pa.Array]:
        """Counts of type COUNTS and declarations, null for none, of each of these texts; raises UnreadableWarehouse."""
        counts, places, declarations = np.empty(len(ids), COUNTS), [_NO_IDS], [pa.nulls(0, pa.large_string())]
        for here, summaries, rows in self._parts(ids) if len(ids) else ():
            counts[here] = summaries.counts[rows]
            places.append(here)
            declarations.append(summaries.declarations(rows).cast(pa.large_string()))
        return counts, pa.concat_arrays(declarations).take(numbers(np.argsort(np.concatenate(places))))

    def _parts(self, ids: Array) -> Iterator[tuple[Array, Summaries, Array]]:
        """Places among the ids, and the summaries and their rows that these texts have."""
        left, first, last = np.arange(len(ids)), int(ids.min()), int(ids.max())
        for file in self._files:
            found = self._at_rest(file) if file.first_id <= last and first <= file.last_id else None
            if found is not None:
                file_ids, summaries = found
                rows = np.minimum(file_ids.searchsorted(ids[left]), file.rows - 1)
                mine = file_ids[rows] == ids[left]
                yield left[mine], summaries, rows[mine]
                left = left[~mine]
        blocks = ids[left] >> _BLOCK_BITS
        numbered = np.unique(blocks).tolist()
        if len(numbered) * _FEW > len(left):  # scattered texts, of which nobody asks for the neighbours
            wanted, rows = np.unique(ids[left], return_inverse=True)
            yield left, summed(self.evidence, self._collection, wanted), rows
            return
        for number in numbered:
            here = left[blocks == number]
            yield here, self._block_of(number), ids[here] & _IN_BLOCK

    def _block_of(self, number: int) -> Summaries:
        with self._lock:
            return self._block(number)

    def _opened(self, file: DataFile) -> tuple[Array, Summaries] | None:
        """The ids and the summaries of a data file as servers map them; None where they are missing or damaged."""
        summaries = summaries_at_rest(self._paths, file, self.evidence)
        name = index_name(file.collection, file.path)
        ids = opened([cache / name for cache in self._paths.index_caches(file.path)], _ids)
        return None if summaries is None or ids is None else (ids, summaries)

    def _summed(self, number: int) -> Summaries:
        """The summaries of a block, a row for each id."""
        return summed(self.evidence, self._collection, np.arange(number << _BLOCK_BITS, (number + 1) << _BLOCK_BITS))


def _ids(index: Path) -> Array:
    require_written(index, ["ids"])
    return mapped_columns(index / "ids")["ids"]


RIVAL = "STRUCT(id BIGINT, text_signature VARCHAR, hash BLOB, position BIGINT, mined VARCHAR)"
"""The type of ``Ranking.rivals``."""

_TEXTS = (
    "SELECT hash, id, text_signature, import_id FROM {} WHERE hash IN (SELECT unnest($1::BLOB[])) ORDER BY hash, id"
)
_HASHES = f"SELECT hash FROM {SIGNATURES.view_name}"
_NAMED = """
    SELECT name, id, import_id FROM (SELECT *, split_part(text_signature, '(', 1) AS name FROM {})
    WHERE name IN (SELECT unnest($1::VARCHAR[]))"""


class Ranking:
    """The order of the texts of a connection's views. It holds no connection open."""

    def __init__(self, connection: weakref.ref[duckdb.DuckDBPyConnection], paths: Paths, snapshot: Snapshot) -> None:
        self._connection, self._evidence = connection, snapshot.evidence
        self.readers = {collection: SummaryReader(paths, snapshot, collection) for collection in COLLECTIONS}

    def ranked(self, collection: Collection, hashes: Sequence[bytes]) -> dict[bytes, list[Ranked]]:
        """The texts of those of these hashes that have any, the best first; raises UnreadableWarehouse."""
        rows = self._rows(_TEXTS.format(collection.view_name), hashes)
        ids = np.array([id for _, id, *_ in rows], np.int64)
        counts, declarations = self.readers[collection].of(ids)
        texts = [
            (hash, SightingCounts._make(summed).summary(id, text, declaration or "", import_id))
            for (hash, id, text, import_id), summed, declaration in zip(
                rows, counts.tolist(), declarations.to_pylist(), strict=True
            )
        ]
        names = {text.name for _, text in texts if made_up_part(text.name)}
        shared = self._shared(collection, sorted(names)) if names else set()
        return {
            bytes(hash): ranked(hash, with_uses(self._evidence, hash, [text for _, text in group]), shared.__contains__)
            for hash, group in groupby(texts, itemgetter(0))
        }

    def _shared(self, collection: Collection, names: Sequence[str]) -> set[str]:
        """Those of these names that several imported texts have."""
        rows = self._rows(_NAMED.format(collection.view_name), names)
        counts, _ = self.readers[collection].of(np.array([id for _, id, _ in rows], np.int64))
        imported = Counter(
            name
            for (name, _, import_id), summed in zip(rows, counts.tolist(), strict=True)
            if not SightingCounts._make(summed).is_posted(import_id)
        )
        return {name for name, texts in imported.items() if texts > 1}

    @cached_property
    def rivals(self) -> pa.StructArray:
        """The texts of the selectors that several texts have, in their places; raises UnreadableWarehouse."""
        groups = self.ranked(SIGNATURES, self._repeated())
        texts = [(hash, one) for hash, group in groups.items() for one in group]
        columns = {
            "id": numbers(np.array([one.summary.id for _, one in texts], np.int64)),
            "text_signature": strings([one.summary.text for _, one in texts]),
            "hash": blobs([hash for hash, _ in texts]),
            "position": numbers(np.array([one.position for _, one in texts], np.int64)),
            "mined": strings([one.mined or None for _, one in texts]),
        }
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def _repeated(self) -> list[bytes]:
        """The selectors that several texts have. To group them in the engine takes 60 bytes of its memory for each text."""
        connection = self._connection()
        if connection is None:
            return []
        with connection.cursor() as cursor:
            batches = cursor.sql(_HASHES).to_arrow_reader(_HASHES_AT_ONCE)
            found = [data[bounds[0] : bounds[-1]] for bounds, data in (bytes_of(batch["hash"]) for batch in batches)]
        selectors = np.sort(np.concatenate([np.empty(0, np.uint8), *found]).view(np.uint32))
        return [one.tobytes() for one in np.unique(selectors[1:][selectors[1:] == selectors[:-1]])]

    def _rows(self, query: str, *parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = self._connection()
        if connection is None:
            return []
        with connection.cursor() as cursor:
            return cursor.execute(query, parameters).fetchall()
