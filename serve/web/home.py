"""The first page: what this is, how much there is, and the search box."""

from __future__ import annotations

import falcon

from serve.web.page import ViewPage, rendered
from warehouse.reading import View
from warehouse.schema import EVENT_SIGNATURES, SIGNATURES


class HomePage(ViewPage):
    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        return rendered("home.html", functions=view.count(SIGNATURES), events=view.count(EVENT_SIGNATURES))
