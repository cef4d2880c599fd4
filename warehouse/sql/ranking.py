"""The order of texts for SQL: ``sigdir.signatures.rank`` decides it, by the summaries of the texts.

Few selectors have several texts. The engine finds these, a million rows in 0.1 s.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from sigdir.signatures.arrow import blobs, numbers, strings
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.rank import Ranked, Summary, made_up_part, ranked
from sigdir.warehouse.evidence.summaries import KINDS, SightingCounts
from sigdir.warehouse.log.snapshot import Snapshot
from sigdir.warehouse.sql.summaries import SummaryReader
from sigdir.warehouse.table.paths import Paths

RIVAL = "STRUCT(id BIGINT, text_signature VARCHAR, hash BLOB, position BIGINT, mined VARCHAR)"
"""The type of ``Ranking.rivals``."""

_TEXTS = "SELECT hash, id, text_signature FROM {} WHERE hash IN (SELECT unnest($1::BLOB[])) ORDER BY hash, id"
_REPEATED = f"SELECT hash FROM {SIGNATURES.view_name} GROUP BY hash HAVING count(*) > 1"
_SHARED = """
    SELECT name FROM (SELECT split_part(text_signature, '(', 1) AS name FROM {})
    WHERE name IN (SELECT unnest($1::VARCHAR[])) GROUP BY name HAVING count(*) > 1"""


class Ranking:
    """The order of the texts of a connection's views. It holds no connection open."""

    def __init__(
        self, connection: weakref.ref[duckdb.DuckDBPyConnection], readers: Mapping[Collection, SummaryReader]
    ) -> None:
        self._connection, self._readers = connection, readers

    @classmethod
    def of(cls, connection: weakref.ref[duckdb.DuckDBPyConnection], paths: Paths, snapshot: Snapshot) -> Ranking:
        return cls(connection, {collection: SummaryReader(paths, snapshot, collection) for collection in COLLECTIONS})

    def ranked(self, collection: Collection, hashes: Sequence[bytes]) -> dict[bytes, list[Ranked]]:
        """The texts of those of these hashes that have any, the best first; raises UnreadableWarehouse."""
        rows = self._rows(_TEXTS.format(collection.view_name), hashes)
        ids = np.array([id for _, id, _ in rows], np.int64)
        counts, declarations = self._readers[collection].of(ids)
        summed = zip(map(SightingCounts._make, counts.tolist()), declarations.to_pylist(), strict=True)
        texts = [(hash, _summary(id, text, *each)) for (hash, id, text), each in zip(rows, summed, strict=True)]
        names = {text.name for _, text in texts if made_up_part(text.name)}
        shared = (
            {name for (name,) in self._rows(_SHARED.format(collection.view_name), sorted(names))} if names else set()
        )
        return {
            bytes(hash): ranked(hash, [text for _, text in group], shared.__contains__)
            for hash, group in groupby(texts, itemgetter(0))
        }

    @cached_property
    def rivals(self) -> pa.StructArray:
        """The texts of the selectors that several texts have, in their places; raises UnreadableWarehouse."""
        groups = self.ranked(SIGNATURES, [hash for (hash,) in self._rows(_REPEATED)])
        texts = [(hash, one) for hash, group in groups.items() for one in group]
        columns = {
            "id": numbers(np.array([one.summary.id for _, one in texts], np.int64)),
            "text_signature": strings([one.summary.text for _, one in texts]),
            "hash": blobs([hash for hash, _ in texts]),
            "position": numbers(np.array([one.position for _, one in texts], np.int64)),
            "mined": strings([one.mined or None for _, one in texts]),
        }
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def _rows(self, query: str, *parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        connection = self._connection()
        if connection is None:
            return []
        with connection.cursor() as cursor:
            return cursor.execute(query, parameters).fetchall()


def _summary(id: int, text: str, counts: SightingCounts, declaration: str | None) -> Summary:
    return Summary(
        id, text, Witness(counts.witness), KINDS[counts.kinds], counts.sources, counts.contracts, counts.compiled,
        counts.verified, declaration=declaration or "",
    )  # fmt: skip
