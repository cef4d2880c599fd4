"""The statistics page: the charts of `sigdir report`, as last rendered in the background."""

from __future__ import annotations

import falcon

from sigdir.serve.http.conditional import not_modified, weak
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import build, rendered, send
from sigdir.serve.statistics.background import BackgroundRenderer
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths

_RELOAD_SECONDS = 2


class StatisticsPage:
    """Shows the charts, or reloads until the first ones are rendered."""

    kind = HTML

    def __init__(self, reader: Reader, paths: Paths) -> None:
        self._reader = reader
        self._renderer = BackgroundRenderer(paths)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        version = view.snapshot.version
        statistics = self._renderer.newest(version, view.suppressed.id) if version >= 0 else None
        if statistics is None:
            self._send_without_charts(req, resp, version)
            return
        if not not_modified(req, resp, weak(f"{statistics.tag}-{build()}")):
            send(req, resp, rendered("statistics.html", here="/statistics/", statistics=statistics))

    def _send_without_charts(self, req: falcon.Request, resp: falcon.Response, version: int) -> None:
        is_rendering = version >= 0 and not self._renderer.has_failed
        resp.set_header("Cache-Control", "no-store")
        if is_rendering:
            resp.set_header("Refresh", str(_RELOAD_SECONDS))
        page = rendered(
            "statistics.html", here="/statistics/", statistics=None, version=version, is_rendering=is_rendering
        )
        send(req, resp, page)
