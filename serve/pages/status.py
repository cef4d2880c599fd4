"""What there is in numbers: the status page, and the statistics page, whose charts are as last rendered in the background."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import falcon

from sigdir.serve.core.openapi import package_version
from sigdir.serve.http.conditional import not_modified, weak
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import ViewPage, build, rendered, send
from sigdir.serve.pages.rows import TITLES
from sigdir.serve.statistics.background import BackgroundRenderer
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.history import Origin, newest_first, origin_of
from sigdir.warehouse.table.identity import FORMAT
from sigdir.warehouse.table.paths import Paths

_MAX_IMPORTS = 10
_MAX_COMMITS = 300
"""Commits read for the page at most: at one fold a minute these are five hours."""


@dataclass
class StatusPage(ViewPage):
    """What is in the warehouse and what was last done to it."""

    _counts_misses: bool

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        imports, fold = _last_jobs(self._reader.paths, view.snapshot.version)
        return rendered(
            "status.html", here="/status/", version=view.snapshot.version, collections=_collections(view),
            imports=imports, fold=fold, format=FORMAT, package=package_version(), max_commits=_MAX_COMMITS,
            counts_misses=self._counts_misses,
        )  # fmt: skip


def _last_jobs(paths: Paths, version: int) -> tuple[list[Origin], dict[str, Any] | None]:
    """The last imports, newest first, and the last fold."""
    imports: list[Origin] = []
    fold = None
    for summary in newest_first(paths, version, version - _MAX_COMMITS):
        if "import" in summary and len(imports) < _MAX_IMPORTS:
            imports.append(origin_of(summary))
        elif fold is None and summary["kind"] == "fold":
            fold = summary
        if fold is not None and len(imports) == _MAX_IMPORTS:
            break
    return imports, fold


def _collections(view: View) -> list[dict[str, Any]]:
    """Per collection its title, all rows, the staged ones among them, and its data files."""
    found = []
    for collection in COLLECTIONS:
        rows = view.count(collection)
        staged, files = rows - view.snapshot.count(collection), len(view.snapshot.files[collection])
        found.append({"title": TITLES[collection], "rows": rows, "staged": staged, "files": files})
    return found


_RELOAD_SECONDS = 2


class StatisticsPage:
    """Shows the charts, or reloads until the first ones are rendered."""

    kind = HTML

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._renderer = BackgroundRenderer(reader.paths)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        version = view.snapshot.version
        statistics = self._renderer.newest(version, view.suppressed.id) if version >= 0 else None
        if statistics is None:
            self._send_without_charts(req, resp, version)
            return
        if not not_modified(req, resp, weak(f"{statistics.written_ns:x}-{build()}")):
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
