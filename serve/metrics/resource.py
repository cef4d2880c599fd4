"""``/metrics`` over HTTP."""

from __future__ import annotations

import falcon

from sigdir.serve.http.codings import packed
from sigdir.serve.metrics.counts import Counts
from sigdir.serve.metrics.exposition import CONTENT_TYPE, WarehouseState
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths


class MetricsResource:
    """The counts of all workers, and the state of the warehouse, in Prometheus' text format."""

    def __init__(self, counts: Counts, reader: Reader, paths: Paths) -> None:
        self._counts, self._reader, self._state = counts, reader, WarehouseState(paths)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        resp.content_type = CONTENT_TYPE
        resp.set_header("Cache-Control", "no-store")
        resp.data = packed(req, resp, self._state.exposition(self._counts, self._reader.current()))

    on_head = on_get
