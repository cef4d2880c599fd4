"""The change feed: the rows of a collection in id order, for mirrors.

Invariants
    A client that follows the feed gets every row exactly once, even during POSTs and imports.
    A cursor is valid for ever.

Ids alone are not enough: an import reserves its ids, and may publish them after rows with higher ids were POSTed
and shown. The feed therefore ends before the first id that is reserved and not published
(``View.stable_up_to``). It continues after the import is published or abandoned; abandoned ids stay a gap.

With ``evidence=1`` each line has what is known of its text now. A row comes once, so a client that wants to know what is
said of it later reads the feed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import falcon
import numpy as np
import orjson

from sigdir.serve.http.answers import NDJSON, field_error
from sigdir.serve.http.bodies import StreamLimit, positive
from sigdir.serve.lists.paging import cursor_at, id_of
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Witness
from sigdir.signatures.types import MAX_DECLARATION_BYTES
from sigdir.warehouse.evidence.summaries import KINDS
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import records_size, render_records
from sigdir.warehouse.index.view import Reader, View

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 50_000
"""Rows of one answer: about 8 MB of signatures."""
MAX_TEXT_BYTES = 8 << 20
"""Bytes of the texts of one answer, which has fewer rows where they are long."""
MAX_EVIDENCE_LIMIT = 10_000
"""Rows of one answer with evidence: 0.2 s where each has a declaration."""
_EVIDENCE_BYTES = 200 + MAX_DECLARATION_BYTES
"""The most bytes that the evidence of a row takes. A declaration has no character that JSON escapes."""

_CHUNK_ROWS, _CHUNK_BYTES = 4096, 1 << 20


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows after a cursor. ``parts`` are a segment and its rows ``first`` up to ``last``, exclusive, in id order.

    ``left`` is the number of rows that the feed has now after ``last_id``.
    """

    parts: tuple[tuple[Segment, int, int], ...]
    last_id: int
    left: int

    def lines(self, *, with_evidence: bool = False) -> Iterator[bytes]:
        """The rows as NDJSON, in chunks."""
        for segment, first, last in self.parts:
            for start, stop in segment.spans(first, last, _CHUNK_ROWS, _CHUNK_BYTES):
                records = render_records(segment, np.arange(start, stop))
                yield _with_evidence(segment, start, records) if with_evidence else records

    @property
    def size(self) -> int:
        """The most bytes that the lines take."""
        return sum(records_size(segment, np.arange(first, last)) for segment, first, last in self.parts)


def changes(view: View, collection: Collection, after: int, limit: int) -> Changes:
    """At most ``limit`` rows after the id ``after``, up to the first id below which a row may still appear.

    Their texts have at most MAX_TEXT_BYTES.
    """
    parts = []
    last_id, rows_left, bytes_left = after, 0, MAX_TEXT_BYTES
    for segment in view.segments[collection]:
        ids = segment.ids[: segment.rows]
        first = int(ids.searchsorted(after, side="right"))
        stable_up_to = int(ids.searchsorted(view.stable_up_to[collection], side="right"))
        last = min(stable_up_to, first + limit)
        if last > first:
            wanted = last
            _, last = next(segment.spans(first, last, limit, bytes_left))
            parts.append((segment, first, last))
            last_id = int(ids[last - 1])
            limit = limit - (last - first) if last == wanted else 0
            bytes_left = max(0, bytes_left - int(segment.offsets[last] - segment.offsets[first]))
        rows_left += max(0, stable_up_to - max(first, last))
    return Changes(tuple(parts), last_id, rows_left)


def _evidence(segment: Segment, row: int) -> dict[str, Any]:
    """What is known of a row's text, under the names that a full lookup has."""
    counts = segment.counts_at(row)
    return {
        "declaration": segment.declaration_at(row) or None,
        "kinds": [kind.name.lower() for kind in KINDS[counts.kinds]],
        "witness": Witness(counts.witness).name.lower(),
        "contracts": counts.contracts,
    }


def _with_evidence(segment: Segment, first: int, records: bytes) -> bytes:
    """The lines of rows from ``first`` on, each with what is known of its text."""
    return b"".join(
        line[:-1] + b"," + orjson.dumps(_evidence(segment, row))[1:] + b"\n"
        for row, line in enumerate(records.splitlines(), first)
    )


@dataclass
class ChangesResource:
    """Lines of JSON: the rows, then a line with the next cursor. An answer without that line is incomplete."""

    _reader: Reader
    _streams: StreamLimit

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        collection = _collection(req)
        after = _after(req, collection)
        with_evidence = req.get_param_as_bool("evidence", default=False)
        most = MAX_EVIDENCE_LIMIT if with_evidence else MAX_LIMIT
        limit = min(_limit(req), most)
        view = self._reader.current()
        found = changes(view, collection, after, limit)
        lines, size = found.lines(with_evidence=with_evidence), found.size
        if with_evidence:
            size += _EVIDENCE_BYTES * sum(last - first for _, first, last in found.parts)
        cursor = cursor_at(collection, found.last_id)
        last_line = orjson.dumps({"next": cursor, "more": found.left > 0, "left": found.left}) + b"\n"
        resp.content_type = NDJSON
        resp.set_header("Cache-Control", "no-cache")
        self._streams.send(req, resp, chain(lines, [last_line]), size + len(last_line))


def _collection(req: falcon.Request) -> Collection:
    wanted = req.get_param("collection", default=SIGNATURES)
    if wanted not in COLLECTIONS:
        raise field_error("collection", f"Not a collection; the collections are {' and '.join(COLLECTIONS)}.")
    return Collection.of_name(wanted)


def _limit(req: falcon.Request) -> int:
    limit = positive(req.get_param("limit", default=str(DEFAULT_LIMIT)))
    if limit is None:
        raise field_error("limit", "A whole number above 0, please.")
    return limit


def _after(req: falcon.Request, collection: Collection) -> int:
    cursor = req.get_param("after", default="")
    seen = id_of(collection, cursor) if cursor else 0
    if seen is None:
        raise field_error("after", f"Not a cursor of {collection}.")
    return seen
