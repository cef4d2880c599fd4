"""Search: both collections, or one of them in pages; a whole page, or the results alone for the script.

The first page, and browse: the newest rows of both collections, and each collection back to its first row.

Links to other directories lead on: viem prints ``/?q=0x...`` of Sourcify's pages, older versions
``/signatures?query=0x...`` of OpenChain's. 4byte.directory's pages had ``/signatures/?bytes4_signature=0x...`` and
``/event-signatures/?bytes_signature=0x...``.

Look for texts of a hash that nobody knows, for ten seconds. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

import falcon

from sigdir.pipeline.solve import SolveReport, solve_one
from sigdir.serve.core.budget import Cost
from sigdir.serve.core.settings import Settings
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HTML, detail, not_found
from sigdir.serve.http.bodies import positive, whole_number
from sigdir.serve.pages.page import ViewPage, rendered, send
from sigdir.serve.pages.rows import (
    BY_URL_NAME,
    HASH_NAMES,
    TITLES,
    URL_NAMES,
    Row,
    found_row,
    hash_address,
    minute,
    newest,
    next_above,
)
from sigdir.serve.pages.search_query import QueryKind, SearchQuery, parse_search
from sigdir.signatures.arrow import Array
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, UNKNOWN, Collection
from sigdir.signatures.decode_input import BadInput, hex_bytes
from sigdir.signatures.evidence import Kind
from sigdir.signatures.types import KINDS
from sigdir.warehouse.index.matches import best_matches, rows_with_fragment
from sigdir.warehouse.index.ranked import ranked_rows
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.terms import rows_of_terms, similar_texts
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.table.fields import MAX_SEARCHED


@dataclass(frozen=True, slots=True)
class Matches:
    """The matches in one collection: ``count`` of them, and the ``rows`` of one page."""

    collection: Collection
    count: int
    rows: list[Row]
    kind: QueryKind = "fragment"

    @property
    def has_more(self) -> bool:
        return self.count > len(self.rows)


def find(view: View, collection: Collection, query: SearchQuery, start: int, size: int) -> Matches:
    """The matches of a query, with rows ``start`` to ``start + size``."""
    if len(query.fragment) > MAX_SEARCHED:
        return _of_text(view, collection, query)
    if query.terms is not None:
        return _ranked(view, collection, rows_of_terms(view, collection, query.terms), query.terms.piece, start, size)
    if query.fragment:
        found = rows_with_fragment(view, collection, query.fragment)
        return _ranked(view, collection, found, query.fragment, start, size)
    if len(query.digits) == 2 * collection.hash_bytes:
        ranked = ranked_rows(view, collection, bytes.fromhex(query.digits))
        rows = [
            found_row(collection, one.segment, one.row, digits=query.digits, looks_mined=bool(one.mined))
            for one in ranked[start : start + size]
        ]
        return Matches(collection, len(ranked), rows, query.kind)
    with_digits = _with_digits(view, collection, query)
    places = [(segment, row) for segment, rows in with_digits for row in rows[: start + size].tolist()]
    rows = [found_row(collection, *place, digits=query.digits) for place in places[start : start + size]]
    return Matches(collection, sum(len(rows) for _, rows in with_digits), rows, query.kind)


def _of_text(view: View, collection: Collection, query: SearchQuery) -> Matches:
    """The row of a whole text that is too long to be searched as a part of others."""
    found = view.with_hash(collection, query.digest[: collection.hash_bytes])
    places = [(segment, row) for segment, rows in found for row in rows.tolist()]
    rows = [found_row(collection, segment, row) for segment, row in places if segment.text_at(row) == query.canonical]
    return Matches(collection, len(rows), rows)


def _with_digits(view: View, collection: Collection, query: SearchQuery) -> list[tuple[Segment, Array]]:
    if query.kind == "hex":
        return [(segment, segment.with_hex(query.digits)) for segment in view.segments[collection]]
    if len(query.digits) <= 2 * collection.hash_bytes:
        return view.with_hash(collection, bytes.fromhex(query.digits))
    return []  # a topic is longer than any selector


def _ranked(view: View, collection: Collection, rows: list[Array], fragment: str, start: int, size: int) -> Matches:
    """A page of the matches: ``rows`` of each segment, rising."""
    best = best_matches(view, collection, rows, fragment, start, start + size)
    shown = [found_row(collection, one.segment, one.row, fragment=fragment) for one in best]
    return Matches(collection, sum(map(len, rows)), shown)


FIRST_ROWS = 20
PAGE_ROWS = 50
_MAX_SUGGESTIONS = 3
_MAX_QUERY_BYTES = 16_384
_MAX_PAGE = 10**9


@dataclass
class ResultsPage(ViewPage):
    """The results of a search, inside the search page or alone, as the template says."""

    _template: str

    def render(self, view: View, req: falcon.Request, **_: str) -> bytes:
        if len(req.query_string) > _MAX_QUERY_BYTES:
            raise detail(414, "The address is too long.")
        parameters = dict(parse_qsl(req.query_string, errors="replace"))
        return rendered(self._template, here="/search/", **results(view, parameters))


def results(view: View, parameters: Mapping[str, str]) -> dict[str, Any]:
    """The template's values for the parameters ``q``, ``in`` and ``page``; raises HttpError."""
    query = parse_search(parameters.get("q", ""))
    only = BY_URL_NAME.get(parameters.get("in", ""))
    page = _page_number(parameters.get("page", "1"))
    if only is None:
        groups, page, pages = _first_matches(view, query), 1, 1
    else:
        groups, pages = _page_of_matches(view, only, query, page)
    suggestions = _suggestions(view, query, groups)
    return {
        "query": query.entered, "suggestions": suggestions, "search_query": query, "groups": [_group_values(group) for group in groups],
        "only": URL_NAMES[only] if only else "", "page": page, "pages": pages, "meanings": _meanings(view, query),
        "summary": _summary(query, groups, suggestions), "json": _json_query(query), "more": partial(_search_address, query.entered),
        "submit": "/submit/" + (f"?{urlencode({'text': query.entered})}" if query.canonical else ""),
    }  # fmt: skip


def _page_number(value: str) -> int:
    number = positive(value)
    if number is None or number >= _MAX_PAGE:
        raise detail(404, "There is no such page.")
    return number


def _first_matches(view: View, query: SearchQuery) -> list[Matches]:
    """The best matches of each collection that has some, or could have."""
    if query.kind == "nothing":
        return []
    found = [find(view, collection, query, 0, FIRST_ROWS) for collection in COLLECTIONS]
    return [matches for matches in found if matches.rows or _may_match(query, matches.collection)]


def _may_match(query: SearchQuery, collection: Collection) -> bool:
    """Whether a query is meant for a collection. A selector may be the beginning of a topic, but by chance only."""
    if query.kind in ("selector", "calldata"):
        return collection == SIGNATURES
    if query.terms is not None and query.terms.kind:
        return (query.terms.kind == Kind.EVENT) == (collection == EVENT_SIGNATURES)
    return query.kind != "topic" or collection == EVENT_SIGNATURES


def _page_of_matches(view: View, only: Collection, query: SearchQuery, page: int) -> tuple[list[Matches], int]:
    """A page of one collection's matches, and the number of pages; raises HttpError."""
    groups = [] if query.kind == "nothing" else [find(view, only, query, (page - 1) * PAGE_ROWS, PAGE_ROWS)]
    if page > 1 and not (groups and groups[0].rows):
        raise detail(404, "There is no such page.")
    return groups, max(1, -(-groups[0].count // PAGE_ROWS)) if groups else 1


def _group_values(matches: Matches) -> dict[str, Any]:
    collection = matches.collection
    return {
        "collection": collection, "url_name": URL_NAMES[collection], "title": TITLES[collection],
        "hash_name": HASH_NAMES[collection], "count": matches.count, "rows": matches.rows,
        "has_more": matches.has_more, "is_whole_hash": matches.kind in ("selector", "calldata", "topic"),
    }  # fmt: skip


def _search_address(entered: str, url_name: str, page: int = 1) -> str:
    """The address of a page of a search in one collection."""
    return "/search/?" + urlencode({"q": entered, "in": url_name} | ({"page": page} if page > 1 else {}))


def _meanings(view: View, query: SearchQuery) -> list[dict[str, Any]]:
    """For a complete signature: its hash in each collection that its keyword allows, and whether it is stored there."""
    if query.kind != "text":
        return []
    stated = KINDS.get(query.entered.split()[0], Kind.UNKNOWN).collection
    found = []
    for collection in COLLECTIONS:
        if stated not in (UNKNOWN, collection.code):
            continue
        digest = query.digest[: collection.hash_bytes]
        known = view.id_of_text(collection, query.canonical, digest) is not None
        found.append({
            "hash_name": HASH_NAMES[collection], "hex": "0x" + digest.hex(), "known": known,
            "address": hash_address(collection, digest), "kind": _noun(collection, 1),
            "submit": "/submit/?" + urlencode({"text": query.entered, "as": URL_NAMES[collection]}),
        })  # fmt: skip
    return found


def _suggestions(view: View, query: SearchQuery, groups: list[Matches]) -> list[str]:
    """What else the user may have meant, where nothing was found. Takes a scan of all texts, as the search does."""
    if not query.fragment or any(group.rows for group in groups):
        return []
    segments = [segment for group in groups for segment in view.segments[group.collection]]
    return similar_texts(segments, query.fragment, _MAX_SUGGESTIONS)


def _summary(query: SearchQuery, groups: list[Matches], suggestions: list[str]) -> str:
    """The sentence that a screen reader speaks when results arrive."""
    if query.kind == "nothing":
        return "This search cannot be read." if query.problem else ""
    counts = " and ".join(f"{g.count:,} {_noun(g.collection, g.count)}" for g in groups if g.count)
    if counts:
        return f"{counts} found."
    return f"Nothing found. Did you mean {' or '.join(suggestions)}?" if suggestions else "Nothing found."


def _noun(collection: Collection, count: int) -> str:
    if collection == EVENT_SIGNATURES:
        return "event" if count == 1 else "events"
    return "function or error" if count == 1 else "functions and errors"


def _json_query(query: SearchQuery) -> str:
    """The query string of the same search in the API's lists."""
    if 0 < len(query.fragment) <= MAX_SEARCHED:
        return urlencode({"text_signature": query.fragment, "format": "json"})
    return f"hex_signature=0x{query.digits}&format=json" if query.digits else ""


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


_SECONDS = 10.0
_MOST = 20


@dataclass
class SolvePage:
    """The hash, the code of its contract if it is known, and below them what was found."""

    kind = HTML
    cost = Cost.PATIENCE

    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        self._send(req, resp, (req.get_param("hash") or "").strip(), "")

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_body)
        hash, code = (str(fields.get(name) or "").strip() for name in ("hash", "code"))
        self._send(req, resp, hash, code)

    def _send(self, req: falcon.Request, resp: falcon.Response, hash: str, code: str) -> None:
        values: dict[str, Any] = {"here": "/solve/", "hash": hash, "code": code, "problem": "", "report": None}
        try:
            values["report"] = self._solved(hash, code) if hash else None
        except BadInput as error:
            values["problem"] = str(error)
            resp.status = falcon.HTTP_400
        send(req, resp, rendered("solve.html", **values, seconds=_SECONDS, most=_MOST))

    def _solved(self, hash: str, code: str) -> SolveReport:
        """Raises BadInput."""
        digest = hex_bytes(hash, "hash")
        if len(digest) not in (SIGNATURES.hash_bytes, EVENT_SIGNATURES.hash_bytes):
            raise BadInput("neither a selector nor a topic: 8 or 64 hex digits", "hash")
        return solve_one(self._reader.current().texts, digest, code, _SECONDS)
