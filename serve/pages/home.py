"""The first page: what this is, how many rows there are, and the search box."""

from __future__ import annotations

import falcon

from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import minute, newest
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.index.view import View


class HomePage(ViewPage):
    """Row counts, the time of the newest row, examples to search for."""

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        times = [row.created_at for collection in COLLECTIONS for row in newest(view, collection, None, 1)]
        return rendered(
            "home.html", here="/", functions=view.count(SIGNATURES), events=view.count(EVENT_SIGNATURES),
            newest=minute(max(times)) if times else "",
        )  # fmt: skip
