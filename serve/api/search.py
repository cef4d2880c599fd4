"""Search over HTTP: the query of the search box, ranked, in pages, with exact counts, and what was understood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import falcon

from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.http.answers import detail, field_error, json_bytes, send_json
from sigdir.serve.http.bodies import pairs_of, positive
from sigdir.serve.http.caching import not_modified, token_at, weak
from sigdir.serve.pages.rows import BY_URL_NAME, Row
from sigdir.serve.pages.search import Matches, find
from sigdir.serve.pages.search_query import MAX_CHARACTERS, SearchQuery, parse_search
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.fields import iso, moment

MAX_PAGE_SIZE = 100
_PAGE_SIZE = 20
_MAX_PAGE = 100_000
_FIELDS = ("q", "in", "page", "page_size")


@dataclass
class SearchResource:
    """A page of the matches of each collection, or of one."""

    _settings: Settings
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        fields = dict(pairs_of(req.query_string))
        query, wanted = _query(fields), _collections(fields.get("in", ""))
        page, size = _number(fields, "page", 1, _MAX_PAGE), _number(fields, "page_size", _PAGE_SIZE, MAX_PAGE_SIZE)
        url = base_url(req, self._settings) + req.path
        if not_modified(req, resp, weak(token_at(view.token, url + req.query_string))):
            return
        found = [find(view, one, query, (page - 1) * size, size) for one in wanted]
        if page > 1 and not any(matches.rows for matches in found):
            raise detail(404, "Invalid page.")
        is_last = all(matches.count <= page * size for matches in found)
        pages = {"next": None if is_last else page + 1, "previous": page - 1 or None}
        links = {name: number and f"{url}?{urlencode(fields | {'page': number})}" for name, number in pages.items()}
        results = {matches.collection: _document(matches) for matches in found}
        send_json(req, resp, json_bytes({"understood": understood(query), **links, **results}))


def _query(fields: dict[str, str]) -> SearchQuery:
    """The query that is asked; raises HttpError."""
    if unknown := sorted(fields.keys() - set(_FIELDS)):
        raise field_error(unknown[0][:100], f"There is no such parameter. The parameters are {', '.join(_FIELDS)}.")
    entered = fields.get("q", "").strip()
    if not entered or len(entered) > MAX_CHARACTERS:
        raise field_error("q", f"A query of 1 to {MAX_CHARACTERS} characters, please.")
    query = parse_search(entered)
    if query.kind == "nothing":
        raise field_error("q", query.problem or "There is nothing to search for.")
    return query


def _collections(given: str) -> tuple[Collection, ...]:
    if not given:
        return tuple(COLLECTIONS)
    if given not in BY_URL_NAME:
        raise field_error("in", f"One of {', '.join(BY_URL_NAME)}, please.")
    return (BY_URL_NAME[given],)


def _number(fields: dict[str, str], name: str, usual: int, most: int) -> int:
    number = positive(fields[name]) if name in fields else usual
    if number is None or number > most:
        raise field_error(name, f"A whole number from 1 to {most}, please.")
    return number


def understood(query: SearchQuery) -> str:
    """What was understood, in words."""
    if query.terms is not None:
        return "signatures where " + ", and ".join(query.terms.understood)
    if query.kind == "text":
        return f"the text {query.canonical}, or texts that have it"
    if query.digits:
        return f"hashes that {'have' if query.kind == 'hex' else 'are'} 0x{query.digits}"
    return f"texts that have {query.fragment}"


def _document(matches: Matches) -> dict[str, Any]:
    return {"count": matches.count, "results": [document_of(row) for row in matches.rows]}


def document_of(row: Row) -> dict[str, Any]:
    """A match as JSON values."""
    return {
        "id": row.id, "created_at": iso(moment(row.created_at), "microseconds"), "text_signature": row.text,
        "hex_signature": "0x" + row.digest.hex(), "declaration": row.declaration or None,
    }  # fmt: skip
