"""The pages for people: rendered here, working without a script and better with it.

``page.py`` is what all of them share; the other modules have one kind of page each.
"""

from __future__ import annotations

from typing import Any

from serve.post import Writer
from serve.settings import Settings
from serve.web.home import HomePage
from serve.web.page import AssetResource, build, send_answer
from warehouse.reading import Reader

__all__ = ["WITHOUT_SLASH", "add_routes", "build", "send_answer"]

WITHOUT_SLASH = r"^/(?:search|browse|submit|decode|statistics|docs|status|(?:selector|topic)/[^/]+)$"
"""Paths of pages that lack the slash at their end."""


def add_routes(app: Any, settings: Settings, reader: Reader, writer: Writer) -> None:
    app.add_route("/", HomePage(reader))
    app.add_route("/assets/{name}", AssetResource())
