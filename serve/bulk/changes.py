"""The change feed: the rows of a collection in id order, for mirrors.

Invariants
    A client that follows the feed gets every row exactly once, even during POSTs and imports.
    A cursor is valid for ever.

Ids alone are not enough: an import reserves its ids, and may publish them after rows with higher ids were POSTed
and shown. The feed therefore ends before the first id that is reserved and not published
(``View.stable_up_to``). It continues after the import is published or abandoned; abandoned ids stay a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import falcon
import numpy as np
import orjson

from sigdir.serve.cursors import InvalidCursor, cursor_at, id_of
from sigdir.serve.http.errors import field_error
from sigdir.serve.http.negotiate import NDJSON
from sigdir.serve.http.streams import StreamLimit
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.index.records import records_size, render_records
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 50_000
"""Rows of one answer: about 8 MB of signatures."""
MAX_TEXT_BYTES = 8 << 20
"""Bytes of the texts of one answer, which has fewer rows where they are long."""

_CHUNK_ROWS, _CHUNK_BYTES = 4096, 1 << 20


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows after a cursor. ``parts`` are a segment and its rows ``first`` up to ``last``, exclusive, in id order.

    ``left`` is the number of rows that the feed has now after ``last_id``.
    """

    parts: tuple[tuple[Segment, int, int], ...]
    last_id: int
    left: int

    def lines(self) -> Iterator[bytes]:
        """The rows as NDJSON, in chunks."""
        for segment, first, last in self.parts:
            for start, stop in segment.spans(first, last, _CHUNK_ROWS, _CHUNK_BYTES):
                yield render_records(segment, np.arange(start, stop))

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


class ChangesResource:
    """Lines of JSON: the rows, then a line with the next cursor. An answer without that line is incomplete."""

    def __init__(self, reader: Reader, streams: StreamLimit) -> None:
        self._reader, self._streams = reader, streams

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        collection = _collection(req)
        after = _after(req, collection)
        limit = min(req.get_param_as_int("limit", min_value=1, default=DEFAULT_LIMIT), MAX_LIMIT)
        found = changes(self._reader.current(), collection, after, limit)
        cursor = cursor_at(collection, found.last_id)
        last_line = orjson.dumps({"next": cursor, "more": found.left > 0, "left": found.left}) + b"\n"
        resp.content_type = NDJSON
        resp.set_header("Cache-Control", "no-cache")
        self._streams.send(req, resp, chain(found.lines(), [last_line]), found.size + len(last_line))

    on_head = on_get


def _collection(req: falcon.Request) -> Collection:
    wanted = req.get_param("collection", default=SIGNATURES)
    if wanted not in COLLECTIONS:
        raise field_error("collection", f"Not a collection; the collections are {' and '.join(COLLECTIONS)}.")
    return Collection.of_name(wanted)


def _after(req: falcon.Request, collection: Collection) -> int:
    cursor = req.get_param("after", default="")
    try:
        return id_of(collection, cursor) if cursor else 0
    except InvalidCursor:
        raise field_error("after", f"Not a cursor of {collection}.") from None
