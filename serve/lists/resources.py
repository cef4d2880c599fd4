"""The two collections over HTTP: pages of rows, single rows, new rows, and what OPTIONS says of the API's resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import falcon
import numpy as np
import orjson

from sigdir.serve.core.settings import Settings, base_url
from sigdir.serve.core.writer import Writer, canonical_text
from sigdir.serve.http import bodies
from sigdir.serve.http.answers import HTML, JSON, detail, field_error, not_found, reject
from sigdir.serve.http.bodies import FAR, WHOLE_BYTES, StreamLimit, whole_number
from sigdir.serve.http.caching import PageCache, set_validators, token_at, unless_current
from sigdir.serve.lists.paging import DEFAULT_PAGE_SIZE, Page, Query, page_of, parse, ranked_page
from sigdir.serve.pages.page import answer, answer_lookup, etag
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.grammar import GrammarError
from sigdir.warehouse.index.ranked import rival_of
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import render_record, render_rows
from sigdir.warehouse.index.view import Reader, View, this_takes_long
from sigdir.warehouse.staging.transaction import NewText, StagedRow
from sigdir.warehouse.table.fields import RECORD_FIELDS

_CACHE_BYTES = 4 << 20
_MIN_CHARACTERS = 3
_MAX_EVENT_CHARACTERS = 4096
_MAX_RIVAL_CHARACTERS = 1024

# Sentences of 4byte.directory's API.
_EXISTS = {
    SIGNATURES: "Signature with this text signature already exists.",
    EVENT_SIGNATURES: "EventSignature with this text signature already exists.",
}
_UNKNOWN_FORMAT = {SIGNATURES: "Unknown signature format", EVENT_SIGNATURES: "Unknown event signature format"}


class ListResource:
    """A collection: GET gives a page of its rows, POST adds a row."""

    negotiates = True
    stores = True
    may_be_short = True

    def __init__(
        self, collection: Collection, settings: Settings, reader: Reader, writer: Writer, streams: StreamLimit
    ) -> None:
        self._collection, self._settings, self._streams = collection, settings, streams
        self._reader, self._writer = reader, writer
        self._cache = PageCache(_CACHE_BYTES)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view, query = self._reader.current(), parse(req.query_string, is_ranked=self._settings.rank_lists)
        if query.page_size > DEFAULT_PAGE_SIZE:  # it may be a stream, too
            this_takes_long()
        if query.filter is not None and query.filter.is_lookup(self._collection.hash_bytes):
            self._look_up(req, resp, view, query, query.filter.looked_up(self._collection.hash_bytes))
        else:
            self._list(req, resp, view, query)
        if query.unknown:
            resp.set_header("Unknown-Parameters", query.unknown)

    def _look_up(
        self, req: falcon.Request, resp: falcon.Response, view: View, query: Query, hashes: list[bytes]
    ) -> None:
        """The rows of whole hashes. The ETag changes only when these rows do."""
        found = ranked_page if self._settings.rank_lists else page_of
        page = found(view, self._collection, query, self._address(req))
        if page.takes_long():
            this_takes_long()
        if page.is_longer_than(WHOLE_BYTES):
            self._send_long(req, resp, view, page)
        else:
            req.context.looked_up = hashes
            answer_lookup(req, resp, page.body(), found=page.count > 0)

    def _list(self, req: falcon.Request, resp: falcon.Response, view: View, query: Query) -> None:
        page = unless_current(req, resp, self._tag(req, view), lambda: self._page(req, view, query))
        if isinstance(page, Page):
            self._send_long(req, resp, view, page)
        elif page is not None:
            answer(req, resp, page)

    def _send_long(self, req: falcon.Request, resp: falcon.Response, view: View, page: Page) -> None:
        """Stream a page that is long because of its texts; raises HttpError: 503, or 413 where HTML is wanted."""
        if req.context.kind == HTML:
            raise detail(413, "This page is too long to show. Ask for fewer rows with page_size, or for JSON.")
        self._streams.send(req, resp, page.chunks(), FAR)
        resp.content_type = JSON
        set_validators(resp, self._tag(req, view))

    def _tag(self, req: falcon.Request, view: View) -> str:
        return etag(req, token_at(view.token, self._address(req) + req.query_string))

    def _address(self, req: falcon.Request) -> str:
        return base_url(req, self._settings) + req.path

    def _page(self, req: falcon.Request, view: View, query: Query) -> bytes | Page:
        """Render a page, or take it from the cache, which has page 1 and the pages that need a scan.

        Every other page is cheaper to render than to keep. A long page is not rendered.
        """
        scans = query.filter is not None and query.filter.needs_scan(self._collection.hash_bytes)
        is_kept = scans or (query.filter is None and query.page == "1")
        url = self._address(req)
        address = f"{url}?{req.query_string}"
        body = self._cache.get(req, view.token, address, takes_long=scans) if is_kept else None
        if body is None:
            page = page_of(view, self._collection, query, url)
            if page.is_longer_than(WHOLE_BYTES):
                return page
            if is_kept and page.takes_long():  # to ask each of the others costs more than it saves
                this_takes_long()
            body = page.body()
            if is_kept:
                self._cache.put(view.token, address, body)
        return body

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_body)
        new, row = self._store(bodies.text_field(fields, "text_signature"))
        resp.status = falcon.HTTP_201
        rival = rival_of(self._reader.held(), self._collection, new.hash, new.text)
        if 0 < len(rival) <= _MAX_RIVAL_CHARACTERS:
            resp.set_header("Clashes-With", rival)
        answer(req, resp, render_record(row.id, row.created_at, new.text, new.hash))

    def _store(self, text: str) -> tuple[NewText, StagedRow]:
        """Store a text; raises HttpError."""
        name = "text_signature"
        if len(text) < _MIN_CHARACTERS:
            raise field_error(
                name, f"Ensure this value has at least {_MIN_CHARACTERS} characters (it has {len(text)})."
            )
        if self._collection == EVENT_SIGNATURES and len(text) > _MAX_EVENT_CHARACTERS:
            most = _MAX_EVENT_CHARACTERS
            raise field_error(name, f"Ensure this value has at most {most} characters (it has {len(text)}).")
        try:
            new = canonical_text(self._collection, text)
        except GrammarError as error:
            position = {"Reject-Position": str(error.column)} if error.column else {}
            raise reject(400, {name: [_UNKNOWN_FORMAT[self._collection]]}, error.reason, position) from None
        if self._writer.refuses(new):
            raise reject(400, {name: ["This signature is suppressed."]}, "suppressed")
        (row,) = self._writer.store([new])
        if row is None:
            raise reject(400, {name: [_EXISTS[self._collection]]}, "duplicate", self._id_header(new))
        return new, row

    def _id_header(self, known: NewText) -> dict[str, str]:
        """The id of a text that is stored already; empty if it is gone from the view, as after an operator's change."""
        id = self._reader.current().id_of_text(known.collection, known.text, known.hash)
        return {} if id is None else {"Existing-Id": str(id)}

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        answer(req, resp, description(f"{self._collection.row_title} List", ROW_FIELDS))


def row_of_id(view: View, collection: Collection, id: str) -> tuple[Segment, int]:
    """A segment and the number of the row there that has an id; raises HttpError."""
    number = whole_number(id)
    if number is not None:
        for segment in view.segments[collection]:
            row = segment.row_of_id(number)
            if row is not None:
                return segment, row
    raise not_found()


@dataclass
class RowResource:
    """One row, by its id."""

    negotiates = True
    may_be_short = True

    _collection: Collection
    _reader: Reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, id: str) -> None:
        segment, row = row_of_id(self._reader.current(), self._collection, id)
        body = render_rows(segment, np.array([row], np.int64))
        answer_lookup(req, resp, body)

    def on_options(self, req: falcon.Request, resp: falcon.Response, id: str) -> None:
        answer(req, resp, description(f"{self._collection.row_title} Instance"))


Fields = dict[str, dict[str, Any]]


def description(name: str, fields: Fields | None = None) -> bytes:
    """The JSON of a description; ``fields`` are those of its POST, None if it has none."""
    value: dict[str, Any] = {
        "name": name,
        "description": "",
        "renders": [JSON, HTML],
        "parses": [JSON, "application/x-www-form-urlencoded", "multipart/form-data"],
    }
    if fields is not None:
        value["actions"] = {"POST": fields}
    return orjson.dumps(value)


_REQUIRED = ("text_signature", "contract_abi")
_OPTIONAL = ("source_file", "source_code")
_COUNTERS = dict.fromkeys(("num_processed", "num_imported", "num_duplicates", "num_ignored"), "integer")


def _fields(types: dict[str, str]) -> Fields:
    """Fields by their names; those that no POST has are read only."""
    return {
        name: {
            "type": kind,
            "required": name in _REQUIRED,
            "read_only": name not in (*_REQUIRED, *_OPTIONAL),
            "label": "ID" if name == "id" else name.replace("_", " ").capitalize(),
        }
        for name, kind in types.items()
    }


ROW_FIELDS = _fields({field.name: field.type.options for field in RECORD_FIELDS})
ABI_FIELDS = _fields({"contract_abi": "string"} | _COUNTERS)
SOLIDITY_FIELDS = _fields({"source_file": "file upload", "source_code": "string"} | _COUNTERS)
