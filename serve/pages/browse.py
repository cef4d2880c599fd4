"""Browse: the newest rows of both collections, and each collection back to its first row."""

from __future__ import annotations

from typing import Any

import falcon

from sigdir.serve.http.errors import detail, not_found
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import BY_URL_NAME, TITLES, URL_NAMES, newest, next_above
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import View

_FIRST_ROWS = 15
_PAGE_ROWS = 50
_MAX_DIGITS = 18


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
    if not (value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS):
        raise detail(404, "There is no such row.")
    return int(value)


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
