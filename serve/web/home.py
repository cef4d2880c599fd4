"""The first page: what this is, how much there is, and the search box."""

from __future__ import annotations

import falcon

from serve.web.page import ViewPage, rendered
from serve.web.rows import moment, newest
from warehouse.reading import View
from warehouse.schema import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES


class HomePage(ViewPage):
    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        times = [row.created_at for collection in COLLECTIONS for row in newest(view, collection, None, 1)]
        return rendered(
            "home.html", here="/", functions=view.count(SIGNATURES), events=view.count(EVENT_SIGNATURES),
            newest=moment(max(times)) if times else "",
        )  # fmt: skip
