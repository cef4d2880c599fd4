"""The pages for people: rendered here, working without a script and better with it.

``page.py`` is what all of them share; the other modules have one kind of page each. What a page shows comes from
the view's mapped columns, as the API's answers do.
"""

from __future__ import annotations

from typing import Any

from sigdir.serve.pages.browse import BrowsePage
from sigdir.serve.pages.decode import DecodePage
from sigdir.serve.pages.docs import DocsPage
from sigdir.serve.pages.home import HomePage
from sigdir.serve.pages.page import (
    AssetResource,
    IconResource,
    Kept,
    build,
    send_answer,
)
from sigdir.serve.pages.record import RecordPage
from sigdir.serve.pages.rows import HASH_WORDS
from sigdir.serve.pages.search import ResultsPage
from sigdir.serve.pages.statistics import StatisticsPage
from sigdir.serve.pages.status import StatusPage
from sigdir.serve.pages.submit import StorePage, SubmitPage
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer
from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.names import Names, warm
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.origins import Origins
from sigdir.warehouse.paths import Paths

__all__ = ["WITHOUT_SLASH", "add_routes", "build", "send_answer", "warm"]

WITHOUT_SLASH = (
    r"^/(?:search|search/results|browse|browse/[^/]+|submit|decode|statistics|docs|status|(?:selector|topic)/[^/]+)$"
)
"""Paths of pages that lack the slash at their end."""


def add_routes(app: Any, settings: Settings, reader: Reader, writer: Writer) -> None:
    """Add all pages."""
    paths = Paths(settings.warehouse.absolute())
    kept, names, origins = Kept(), Names(), Origins(paths)
    app.add_route("/", HomePage(reader, kept))
    app.add_route("/assets/{name}", AssetResource())
    app.add_route("/favicon.ico", IconResource())
    app.add_route("/search/", ResultsPage(reader, kept, "search.html"))
    app.add_route("/search/results/", ResultsPage(reader, kept, "results.html"))
    app.add_route("/browse/", BrowsePage(reader, kept))
    app.add_route("/browse/{short}/", BrowsePage(reader, kept))
    for collection in COLLECTIONS:
        page = RecordPage(collection, reader, kept, names, origins)
        app.add_route(f"/{HASH_WORDS[collection]}/{{hash}}/", page)
    app.add_route("/submit/", SubmitPage(settings, reader))
    app.add_route("/submit/store/", StorePage(settings, reader, writer))
    app.add_route("/decode/", DecodePage(reader, kept))
    app.add_route("/docs/", DocsPage(settings))
    app.add_route("/statistics/", StatisticsPage(reader, paths))
    app.add_route("/status/", StatusPage(reader, kept, paths))
