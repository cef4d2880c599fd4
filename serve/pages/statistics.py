"""The statistics page: the plots of `sigdir report`, as they were drawn last."""

from __future__ import annotations

import falcon

from sigdir.serve.http.negotiate import HTML, not_modified
from sigdir.serve.pages.page import build, rendered, send
from sigdir.serve.statistics.drawing import Drawer, Drawing
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.paths import Paths

_LOOK_AGAIN_SECONDS = 2


class StatisticsPage:
    """Shows the newest drawing, or asks the browser to come again where there is none yet."""

    kind = HTML

    def __init__(self, reader: Reader, paths: Paths) -> None:
        self._reader = reader
        self._drawer = Drawer(paths)
        self._page = ("", b"")

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        version = self._reader.current().snapshot.version
        drawing = self._drawer.newest(version) if version >= 0 else None
        if drawing is not None:
            tag = f"{drawing.tag}-{build()}"
            if not not_modified(req, resp, tag):
                send(req, resp, self._page_of(drawing, tag))
            return
        is_coming = version >= 0 and not self._drawer.has_failed
        resp.set_header("Cache-Control", "no-store")
        if is_coming:
            resp.set_header("Refresh", str(_LOOK_AGAIN_SECONDS))
        send(
            req,
            resp,
            rendered("statistics.html", here="/statistics/", drawing=None, version=version, is_coming=is_coming),
        )

    on_head = on_get

    def _page_of(self, drawing: Drawing, tag: str) -> bytes:
        kept, page = self._page
        if kept != tag:
            page = rendered(
                "statistics.html", here="/statistics/", drawing=drawing, about=drawing.about, totals=drawing.totals,
                figures=drawing.figures,
            )  # fmt: skip
            self._page = (tag, page)
        return page
