"""Browse: the newest of both collections, and each back to its beginning, by the id of the last row seen."""

from __future__ import annotations

from typing import Any

import falcon

from sigdir.serve.http.errors import detail, not_found
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import (
    NAMED,
    SHORT,
    TITLES,
    following,
    newest,
)
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import View

_FIRST_ROWS = 15
_PAGE_ROWS = 50
_MAX_DIGITS = 18


class BrowsePage(ViewPage):
    """Both collections, or one where the address names it, from an id on downwards or upwards."""

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        short = parameters.get("short")
        if short is None:
            groups = [_page(view, collection, None, None, _FIRST_ROWS) for collection in COLLECTIONS]
        elif short in NAMED:
            before, after = (_id(req.get_param(name)) for name in ("before", "after"))
            groups = [_page(view, NAMED[short], before, after, _PAGE_ROWS)]
        else:
            raise not_found()
        return rendered("browse.html", here="/browse/", groups=groups, only=short)


def _id(given: str | None) -> int | None:
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= _MAX_DIGITS):
        raise detail(404, "There is no such row.")
    return int(given)


def _page(view: View, collection: Collection, before: int | None, after: int | None, size: int) -> dict[str, Any]:
    """A page of a collection: its rows, and the ids that the pages beside it begin behind, None at the ends."""
    rows = newest(view, collection, before, size) if after is None else following(view, collection, after, size)
    older = newer = None
    if rows:
        older = rows[-1].id if newest(view, collection, rows[-1].id, 1) else None
        newer = rows[0].id if following(view, collection, rows[0].id, 1) else None
    return {
        "title": TITLES[collection], "short": SHORT[collection], "collection": collection,
        "count": view.count(collection), "rows": rows, "older": older, "newer": newer,
    }  # fmt: skip
