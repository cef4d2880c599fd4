"""What changed: the rows of a collection in id order, for mirrors.

Invariants
    Whoever follows the feed has every row once, whatever is POSTed and imported meanwhile.
    A cursor is valid for ever.

Ids alone would not do: an import reserves its ids, and is published when rows with higher ids have been
POSTed and shown. The feed therefore ends before the first id that is reserved and not published
(``View.stable_up_to``), and goes on when the import is there, or given up: its ids then stay a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import falcon
import numpy as np
import orjson

from sigdir.serve.cursors import InvalidCursor, cursor_at, id_of
from sigdir.serve.http.errors import field_error
from sigdir.serve.http.negotiate import NDJSON
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES, Collection
from sigdir.warehouse.index.records import render_records
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View

DEFAULT_LIMIT = 10_000
MAX_LIMIT = 50_000
"""Rows of one answer: about 8 MB of signatures, which a worker sends without keeping a thread waiting."""

_CHUNK_ROWS = 4096


def routes(settings: Settings, reader: Reader, writer: Writer) -> list[tuple[str, object]]:
    return [("/api/v1/changes/", ChangesResource(reader))]


@dataclass(frozen=True, slots=True)
class Changes:
    """The rows behind a cursor: ``parts`` are rows ``first`` up to ``last`` of a segment, in id order."""

    parts: tuple[tuple[Segment, int, int], ...]
    last_id: int
    more: bool

    def lines(self) -> Iterator[bytes]:
        """A record a line, in pieces."""
        for segment, first, last in self.parts:
            for start in range(first, last, _CHUNK_ROWS):
                yield render_records(segment, np.arange(start, min(start + _CHUNK_ROWS, last)))


def changes(view: View, collection: Collection, after: int, limit: int) -> Changes:
    """At most ``limit`` rows behind the id ``after``, as far as no row can come in between any more."""
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
    """Lines of JSON: the rows, then one with the cursor to go on with; without that one it was cut short."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        collection = _collection(req)
        after = _after(req, collection)
        limit = min(req.get_param_as_int("limit", min_value=1, default=DEFAULT_LIMIT), MAX_LIMIT)
        found = changes(self._reader.current(), collection, after, limit)
        told = orjson.dumps({"next": cursor_at(collection, found.last_id), "more": found.more}) + b"\n"
        resp.content_type = NDJSON
        resp.set_header("Cache-Control", "no-cache")
        resp.stream = _all(found, told) if req.method != "HEAD" else ()

    on_head = on_get


def _all(found: Changes, told: bytes) -> Iterator[bytes]:
    yield from found.lines()
    yield told


def _collection(req: falcon.Request) -> Collection:
    asked = req.get_param("collection", default=SIGNATURES)
    for collection in COLLECTIONS:
        if asked == collection:
            return collection
    raise field_error("collection", f"Not a collection; there are {' and '.join(COLLECTIONS)}.")


def _after(req: falcon.Request, collection: Collection) -> int:
    cursor = req.get_param("after", default="")
    try:
        return id_of(collection, cursor) if cursor else 0
    except InvalidCursor:
        raise field_error("after", f"Not a cursor of {collection}.") from None
