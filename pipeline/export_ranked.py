"""The order by rank of the texts of each selector that has several, for exports with one text a selector or joined texts."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.rank import Summary, ranked
from sigdir.warehouse import Warehouse
from sigdir.warehouse.evidence.lookup import Text, texts_evidence

Order = dict[bytes, list[tuple[int, str]]]
"""Id and text of each text of a selector, the best first."""

_SHARED = """
    SELECT hash, id, text_signature FROM signatures
    SEMI JOIN (SELECT hash FROM signatures GROUP BY hash HAVING count(*) > 1) USING (hash) ORDER BY hash, id"""
_SHARED_NAMES = """
    SELECT signature_name(text_signature) AS name FROM signatures
    WHERE list_contains($names, name) GROUP BY name HAVING count(*) > 1"""
_CHUNK = 10_000


def ranked_order(warehouse: Warehouse) -> Order:
    """The selectors with several texts; raises UnreadableWarehouse. Of 10 M texts they are some twenty thousand."""
    groups = {
        hash: [Text(id, text) for _, id, text in rows]
        for hash, rows in groupby(warehouse.sql(_SHARED).rows(), itemgetter(0))
    }
    every = [text for group in groups.values() for text in group]
    summaries: dict[int, Summary] = {}
    for at in range(0, len(every), _CHUNK):
        found = texts_evidence(warehouse.snapshot.evidence, SIGNATURES, every[at : at + _CHUNK])
        summaries |= {one.summary.id: one.summary for one in found}
    names = sorted({text.text.partition("(")[0] for text in every})
    shared = {name for (name,) in warehouse.sql(_SHARED_NAMES, {"names": names}).rows()} if names else set()
    return {
        hash: [
            (one.summary.id, one.summary.text)
            for one in ranked(hash, [summaries[text.id] for text in group], shared.__contains__)
        ]
        for hash, group in groups.items()
    }
