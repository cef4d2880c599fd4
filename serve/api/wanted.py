"""What lookups did not find, the most wanted first, where the server counts misses: as JSON and as a page."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import falcon

from sigdir.serve.core.misses import Wanted, wanted
from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.http.negotiate import HTML, json_bytes, send_json
from sigdir.serve.lists.paging import NumberedPage, numbered_page
from sigdir.serve.lists.query import parse
from sigdir.serve.pages.page import rendered, send
from sigdir.warehouse.index.view import Reader


@dataclass
class WantedResource:
    """Selectors and topics without a text; ``page`` and ``page_size`` are those of the lists."""

    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        found = wanted(self._reader.paths.misses, self._reader.current())
        query = parse(req.query_string)
        page = numbered_page(query, len(found), base_url(req, self._settings) + req.path)
        resp.set_header("Cache-Control", "no-cache")
        self._send(req, resp, page, found[page.start : page.start + query.page_size])

    def _send(self, req: falcon.Request, resp: falcon.Response, page: NumberedPage, rows: list[Wanted]) -> None:
        results = list(map(asdict, rows))
        send_json(req, resp, json_bytes(page.links() | {"results": results}))


class WantedPage(WantedResource):
    """The same for people, with what to do about each."""

    kind = HTML

    def _send(self, req: falcon.Request, resp: falcon.Response, page: NumberedPage, rows: list[Wanted]) -> None:
        send(req, resp, rendered("wanted.html", page=page, rows=rows, solves=self._settings.solve))
