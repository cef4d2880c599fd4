"""The first page: what this is, how many rows there are, and the search box."""

from __future__ import annotations

import falcon

from sigdir.serve.pages.links import address_of, linked
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import minute, newest
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.index.view import View


class HomePage(ViewPage):
    """Row counts, the time of the newest row, examples to search for. A link that asks for something leads on."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        entered = linked(req)
        if entered:
            resp.status = falcon.HTTP_302
            resp.set_header("Location", address_of(self._reader.current(), entered))
        else:
            super().on_get(req, resp, **parameters)

    on_head = on_get

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        times = [row.created_at for collection in COLLECTIONS for row in newest(view, collection, None, 1)]
        return rendered(
            "home.html", here="/", functions=view.count(SIGNATURES), events=view.count(EVENT_SIGNATURES),
            newest=minute(max(times)) if times else "",
        )  # fmt: skip
