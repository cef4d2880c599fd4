"""The page after a submission: the rows that it stored.

Storing redirects to it, so reloading the page stores nothing again. Its address has the ids of the rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

import falcon

from sigdir.serve.http.errors import HttpError, detail
from sigdir.serve.pages.page import ViewPage, rendered
from sigdir.serve.pages.rows import BY_URL_NAME, URL_NAMES, Row, rows_between
from sigdir.signatures.collections import Collection
from sigdir.warehouse.index.view import View

PATH = "/submit/stored/"

_MAX_RANGES = 100
_MAX_ROWS = 10_000
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_COUNT = re.compile(r"\d{1,9}", re.ASCII)


def stored_address(ids: Mapping[Collection, Iterable[int]], others: int) -> str:
    """The address of the page for rows stored now; ``others`` counts the lines that were not.

    The ids of a transaction have no gaps, so these are a few ranges.
    """
    ranges = {URL_NAMES[collection]: ",".join(_ranges(found)) for collection, found in ids.items()}
    values = {name: text for name, text in ranges.items() if text} | ({"others": str(others)} if others else {})
    return PATH + (f"?{urlencode(values, safe=',')}" if values else "")


def _ranges(ids: Iterable[int]) -> list[str]:
    """Rising ids as inclusive ranges: 4-7, 9-9."""
    found: list[tuple[int, int]] = []
    for id in ids:
        if found and found[-1][1] == id - 1:
            found[-1] = found[-1][0], id
        else:
            found.append((id, id))
    return [f"{first}-{last}" for first, last in found]


class StoredPage(ViewPage):
    """The rows of the parameters ``functions`` and ``events``, and how many ``others`` the submission had."""

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        groups = [_rows(view, collection, req.get_param(name) or "") for name, collection in BY_URL_NAME.items()]
        others = req.get_param("others") or "0"
        if not _COUNT.fullmatch(others):
            raise _no_such_rows()
        return rendered(
            "stored.html", here="/submit/", groups=[rows for rows in groups if rows], stored=sum(map(len, groups)),
            others=int(others),
        )  # fmt: skip


def _rows(view: View, collection: Collection, written: str) -> list[Row]:
    """The rows of ranges such as ``4-7,9-9``, oldest first, those that are there; raises HttpError."""
    ranges = written.split(",") if written else []
    if len(ranges) > _MAX_RANGES:
        raise _no_such_rows()
    found: list[Row] = []
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise _no_such_rows()
        found += rows_between(view, collection, int(match[1]), int(match[2]), _MAX_ROWS - len(found))
    return found


def _no_such_rows() -> HttpError:
    return detail(404, "There are no such rows.")
