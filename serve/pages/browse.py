"""The first page, and browse: the newest rows of both collections, and each collection back to its first row.

Links to other directories lead on: viem prints ``/?q=0x...`` of Sourcify's pages, older versions
``/signatures?query=0x...`` of OpenChain's. 4byte.directory's pages had ``/signatures/?bytes4_signature=0x...`` and
``/event-signatures/?bytes_signature=0x...``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import falcon

from sigdir.serve.http.bodies import whole_number
from sigdir.serve.http.errors import detail, not_found
from sigdir.serve.http.negotiate import HTML
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import BY_URL_NAME, TITLES, URL_NAMES, hash_address, minute, newest, next_above
from sigdir.serve.pages.search_query import parse_search
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader, View


class HomePage(ViewPage):
    """Row counts, the time of the newest row, examples to search for. A link that asks for something leads on."""

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        entered = linked(req)
        if entered:
            raise falcon.HTTPFound(address_of(self._reader.current(), entered))
        super().on_get(req, resp, **parameters)

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        times = [row.created_at for collection in COLLECTIONS for row in newest(view, collection, None, 1)]
        return rendered(
            "home.html", here="/", functions=view.count(SIGNATURES), events=view.count(EVENT_SIGNATURES),
            newest=minute(max(times)) if times else "",
        )  # fmt: skip


_PARAMETERS = ("q", "query", "bytes4_signature", "bytes_signature")
_COLLECTIONS = {"selector": SIGNATURES, "topic": EVENT_SIGNATURES}


def linked(req: falcon.Request) -> str:
    """What a link asks for; "" for nothing."""
    values = (req.get_param(name, default="").strip() for name in _PARAMETERS)
    return next(filter(None, values), "")


def address_of(view: View, entered: str) -> str:
    """The address of the record of a hash that is known; of the search for anything else."""
    query = parse_search(entered)
    collection = _COLLECTIONS.get(query.kind)
    if collection is not None and view.with_hash(collection, bytes.fromhex(query.digits)):
        return hash_address(collection, bytes.fromhex(query.digits))
    return "/search/?" + urlencode({"q": query.entered}, errors="replace")


@dataclass
class LinkPage:
    """The lists' addresses of other directories' pages; without anything to look for, the newest rows."""

    kind = HTML

    _collection: Collection
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        entered = linked(req)
        newest = f"/browse/{URL_NAMES[self._collection]}/"
        raise falcon.HTTPFound(address_of(self._reader.current(), entered) if entered else newest)


_FIRST_ROWS = 15
_PAGE_ROWS = 50


class BrowsePage(ViewPage):
    """The newest rows of both collections, or one collection in pages.

    The parameters ``before`` and ``after`` are the id of the last row seen, so new rows never shift a page.
    """

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        name = parameters.get("collection")
        if name is None:
            groups = [_group(view, collection, None, None, _FIRST_ROWS) for collection in COLLECTIONS]
        elif name in BY_URL_NAME:
            before, after = (_id(req.get_param(parameter)) for parameter in ("before", "after"))
            groups = [_group(view, BY_URL_NAME[name], before, after, _PAGE_ROWS)]
        else:
            raise not_found()
        return rendered("browse.html", here="/browse/", groups=groups, only=name)


def _id(value: str | None) -> int | None:
    if value is None:
        return None
    id = whole_number(value)
    if id is None:
        raise detail(404, "There is no such row.")
    return id


def _group(view: View, collection: Collection, before: int | None, after: int | None, size: int) -> dict[str, Any]:
    """The template's values for a page of a collection.

    ``older`` and ``newer`` are the ids for the links to the neighbouring pages, None at the ends.
    """
    rows = newest(view, collection, before, size) if after is None else next_above(view, collection, after, size)
    older = newer = None
    if rows:
        older = rows[-1].id if newest(view, collection, rows[-1].id, 1) else None
        newer = rows[0].id if next_above(view, collection, rows[0].id, 1) else None
    return {
        "title": TITLES[collection], "url_name": URL_NAMES[collection], "collection": collection,
        "count": view.count(collection), "rows": rows, "older": older, "newer": newer,
    }  # fmt: skip
