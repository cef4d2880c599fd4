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
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.index.records import render_records
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 50_000
"""Rows of one answer: about 8 MB of signatures, which the server buffers, so no thread waits for a slow client."""

_CHUNK_ROWS = 4096


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows after a cursor. ``parts`` are a segment and its rows ``first`` up to ``last``, exclusive, in id order."""

    parts: tuple[tuple[Segment, int, int], ...]
    last_id: int
    more: bool

    def lines(self) -> Iterator[bytes]:
        """The rows as NDJSON, in chunks."""
        for segment, first, last in self.parts:
            for start in range(first, last, _CHUNK_ROWS):
                yield render_records(segment, np.arange(start, min(start + _CHUNK_ROWS, last)))


def changes(view: View, collection: Collection, after: int, limit: int) -> Changes:
    """At most ``limit`` rows after the id ``after``, up to the first id below which a row may still appear."""
    parts = []
    last_id, more = after, False
    for segment in view.segments[collection]:
        ids = segment.ids[: segment.rows]
        first = int(ids.searchsorted(after, side="right"))
        stable_up_to = int(ids.searchsorted(view.stable_up_to[collection], side="right"))
        last = min(stable_up_to, first + limit)
        if last > first:
            parts.append((segment, first, last))
            last_id = int(ids[last - 1])
            limit -= last - first
        more = more or stable_up_to > max(first, last)
    return Changes(tuple(parts), last_id, more)


class ChangesResource:
    """Lines of JSON: the rows, then a line with the next cursor. An answer without that line is incomplete."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        collection = _collection(req)
        after = _after(req, collection)
        limit = min(req.get_param_as_int("limit", min_value=1, default=DEFAULT_LIMIT), MAX_LIMIT)
        found = changes(self._reader.current(), collection, after, limit)
        last_line = orjson.dumps({"next": cursor_at(collection, found.last_id), "more": found.more}) + b"\n"
        resp.content_type = NDJSON
        resp.set_header("Cache-Control", "no-cache")
        resp.stream = chain(found.lines(), [last_line]) if req.method != "HEAD" else ()

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
