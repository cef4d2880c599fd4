"""The HTTP application: every route, and what each does, on one screen.

``create_app`` is given all it needs. A request takes one View and stays with it, so a page never mixes
two versions. Falcon routes and parses; rows are found and written by ``sigdir.serve.lists``, posted ones stored
by ``sigdir.serve.writer``.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import falcon
import numpy as np
import orjson

from sigdir.serve import (
    decode,
    imports,
    openapi,
)
from sigdir.serve import (
    pages as web,
)
from sigdir.serve.bulk import changes, dumps, resolve
from sigdir.serve.cursors import InvalidCursor
from sigdir.serve.dialects import hash_files as static
from sigdir.serve.dialects import openchain
from sigdir.serve.http import bodies
from sigdir.serve.http.errors import (
    HttpError,
    detail,
    field_error,
    not_found,
)
from sigdir.serve.http.negotiate import (
    HTML,
    JSON,
    not_modified,
    packed,
    preflight,
    representation,
)
from sigdir.serve.lists import (
    InvalidPage,
    Query,
    needs_scan,
    page_of,
    parse,
)
from sigdir.serve.settings import Settings
from sigdir.serve.writer import Writer, new_text
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.grammar import GrammarError
from sigdir.warehouse.errors import WarehouseError
from sigdir.warehouse.index.records import render_lines, render_rows
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.staging import NewText, StagedRow

_LIST_METHODS = "GET, POST, HEAD, OPTIONS"
_DETAIL_METHODS = "GET, HEAD, OPTIONS"
_IMPORT_METHODS = "POST, OPTIONS"
_METHODS = {allow: frozenset(allow.split(", ")) for allow in (_LIST_METHODS, _DETAIL_METHODS, _IMPORT_METHODS)}

_MAX_EVENT_CHARACTERS = 4096
_MAX_QUERY_BYTES = 16_384
_CACHED_BYTES = 4 << 20

# What pages of any origin may read and write.
_OPEN_PATHS = ("/api/", "/dumps/", "/signature-database/", "/signatures/", "/topic0/")
_RETRY_SECONDS = 10

# The words of the contract, per collection.
_EXISTS = {
    SIGNATURES: "Signature with this text signature already exists.",
    EVENT_SIGNATURES: "EventSignature with this text signature already exists.",
}
_UNKNOWN_FORMAT = {SIGNATURES: "Unknown signature format", EVENT_SIGNATURES: "Unknown event signature format"}


def create_app(settings: Settings, reader: Reader, writer: Writer) -> Any:
    """The WSGI application over one warehouse."""
    app = falcon.App(middleware=[_Front()])
    app.req_options.strip_url_path_trailing_slash = False
    app.add_error_handler(HttpError, _refused)
    app.add_error_handler(falcon.HTTPError, _falcon_error)
    app.add_error_handler(Exception, _failed)
    routes: list[tuple[str, object]] = []
    for collection in (SIGNATURES, EVENT_SIGNATURES):
        routes.append((f"/api/v1/{collection}/", ListResource(collection, settings, reader, writer)))
        routes.append((f"/api/v1/{collection}/{{id}}/", DetailResource(collection, settings, reader)))
    routes += [
        ("/api/v1/import-abi/", ImportResource(ABI_IMPORT, settings, writer)),
        ("/api/v1/import-solidity/", ImportResource(SOLIDITY_IMPORT, settings, writer)),
        ("/healthz", HealthResource(reader, look=False)),
        ("/readyz", HealthResource(reader, look=True)),
    ]
    for part in (decode, changes, resolve, dumps, openchain, static):
        routes += part.routes(settings, reader, writer)
    older = openchain.OlderLookup(reader)
    routes.append((openapi.PATH, DocumentResource()))
    for path, resource in routes:
        app.add_route(path, resource)
    app.add_sink(_unknown_path, "/")  # the sink that was added last is asked first
    app.add_sink(
        _add_slash, r"^/api/v1/(?:(?:event-)?signatures(?:/[^/]+)?|import-(?:abi|solidity)|decode|resolve|changes)$"
    )
    app.add_sink(_add_slash, r"^/dumps(?:/(?:\d+|latest))?$")
    app.add_sink(older, f"^{older.path}$")
    web.add_routes(app, settings, reader, writer)
    app.add_sink(_add_slash, web.WITHOUT_SLASH)
    return app


class _Front:
    """What all answers share: the method and query are checked first, CORS headers are added last."""

    def process_resource(self, req: falcon.Request, resp: falcon.Response, resource: Any, params: Any) -> None:
        req.context.failure = getattr(resource, "failure", None)
        req.context.kind = getattr(resource, "kind", JSON)
        allowed = getattr(resource, "methods", None)
        if allowed is None:
            return
        resp.set_header("Allow", allowed)
        resp.set_header("Vary", "Accept")
        if len(req.query_string) > _MAX_QUERY_BYTES:
            raise detail(414, "Query string too long.")
        req.context.kind = representation(req.env.get("HTTP_ACCEPT", ""), parse(req.query_string).format)
        if req.method not in _METHODS[allowed]:
            raise detail(405, f'Method "{req.method}" not allowed.')

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        if req.env.get("HTTP_ORIGIN") and req.path.startswith(_OPEN_PATHS):
            resp.set_header("Access-Control-Allow-Origin", "*")
            preflight(req, resp)


class _Resource:
    methods = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def address(self, req: falcon.Request) -> str:
        """The absolute address of the request's path; a proxy's word counts only when it is trusted."""
        if self._settings.trust_proxy:
            return f"{req.forwarded_scheme}://{req.forwarded_host}{req.path}"
        return f"{req.scheme}://{req.netloc}{req.path}"

    def describe(self, req: falcon.Request, resp: falcon.Response, name: str, fields: dict[str, Any] | None) -> None:
        """Answer OPTIONS."""
        told: dict[str, Any] = {
            "name": name,
            "description": "",
            "renders": [JSON, HTML],
            "parses": [JSON, "application/x-www-form-urlencoded", "multipart/form-data"],
        }
        if fields is not None:
            told["actions"] = {"POST": fields}
        _answer(req, resp, orjson.dumps(told))


class ListResource(_Resource):
    """A collection: its pages, and new rows."""

    methods = _LIST_METHODS

    def __init__(self, collection: Collection, settings: Settings, reader: Reader, writer: Writer) -> None:
        super().__init__(settings)
        self._collection = collection
        self._reader = reader
        self._writer = writer
        self._cache = _Cache(_CACHED_BYTES)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view = self._reader.current()
        query = parse(req.query_string)
        address = self.address(req)
        page = self._page_of(view, query, address, req.query_string)
        if not _not_modified(req, resp, view.token):
            _answer(req, resp, page)

    on_head = on_get

    def _page_of(self, view: View, query: Query, address: str, query_string: str) -> bytes:
        # Kept is what is asked for again or dear; anything else costs less than what it would drive out.
        if not (needs_scan(query.filter, self._collection) or (query.filter is None and query.page == "1")):
            return self._page(view, query, address)
        key = (view.token, address, query_string)
        page = self._cache.get(key)
        if page is None:
            page = self._page(view, query, address)
            self._cache.put(key, page)
        return page

    def _page(self, view: View, query: Query, address: str) -> bytes:
        try:
            return page_of(view, self._collection, query, address).body()
        except InvalidPage:
            raise detail(404, "Invalid page.") from None
        except InvalidCursor:
            raise detail(404, "Invalid cursor.") from None

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_body)
        row = self._store(bodies.text_field(fields, "text_signature"))
        resp.status = falcon.HTTP_201
        _answer(req, resp, row)

    def _store(self, text: str) -> bytes:
        name = "text_signature"
        if len(text) < 3:
            raise field_error(name, f"Ensure this value has at least 3 characters (it has {len(text)}).")
        if self._collection == EVENT_SIGNATURES and len(text) > _MAX_EVENT_CHARACTERS:
            raise field_error(name, f"Ensure this value has at most 4096 characters (it has {len(text)}).")
        try:
            new = new_text(self._collection, text)
        except GrammarError:
            raise field_error(name, _UNKNOWN_FORMAT[self._collection]) from None
        (row,) = self._writer.store([new])
        if row is None:
            raise field_error(name, _EXISTS[self._collection])
        return _record(new, row)

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        self.describe(req, resp, f"{self._collection.row_title} List", _ROW_FIELDS)


class DetailResource(_Resource):
    """One row."""

    methods = _DETAIL_METHODS

    def __init__(self, collection: Collection, settings: Settings, reader: Reader) -> None:
        super().__init__(settings)
        self._collection = collection
        self._reader = reader

    def on_get(self, req: falcon.Request, resp: falcon.Response, id: str) -> None:
        view = self._reader.current()
        if not (id.isascii() and id.isdigit() and len(id) <= 18):
            raise not_found()
        for segment in view.segments[self._collection]:
            row = segment.row_of_id(int(id))
            if row is not None:
                if not _not_modified(req, resp, view.token):
                    _answer(req, resp, render_rows(segment, np.array([row], np.int64)))
                return
        raise not_found()

    on_head = on_get

    def on_options(self, req: falcon.Request, resp: falcon.Response, id: str) -> None:
        self.describe(req, resp, f"{self._collection.row_title} Instance", None)


@dataclass(frozen=True, slots=True)
class Import:
    """One of the two imports: its name and fields by the contract, how a body becomes candidates."""

    name: str
    fields: dict[str, Any]
    entries: Callable[[dict[str, Any]], list[Any]]


class ImportResource(_Resource):
    """A body of many signatures; answers four counters."""

    methods = _IMPORT_METHODS

    def __init__(self, kind: Import, settings: Settings, writer: Writer) -> None:
        super().__init__(settings)
        self._kind, self._writer = kind, writer

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        fields = bodies.fields_of(req, self._settings.max_import_body)
        counters = imports.store(self._writer, self._kind.entries(fields))
        resp.status = falcon.HTTP_201
        _answer(req, resp, orjson.dumps(counters))

    def on_options(self, req: falcon.Request, resp: falcon.Response) -> None:
        self.describe(req, resp, self._kind.name, self._kind.fields)


def _abi(fields: dict[str, Any]) -> list[Any]:
    return imports.abi_entries(bodies.text_field(fields, "contract_abi"))


class HealthResource:
    """/healthz: the process answers. /readyz: it can read its warehouse."""

    def __init__(self, reader: Reader, look: bool) -> None:
        self._reader = reader
        self._look = look

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        told: dict[str, Any] = {"status": "ok"}
        if self._look:
            view = self._reader.current()
            told |= {"version": view.snapshot.version, "rows": {c: view.count(c) for c in view.segments}}
        resp.content_type = JSON
        resp.data = orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS)

    on_head = on_get


class DocumentResource:
    """The OpenAPI document."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        req.context.kind = JSON
        body, token = openapi.rendered()
        if not _not_modified(req, resp, token, "public, max-age=3600"):
            _answer(req, resp, body)

    on_head = on_get


def _answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Write a JSON body, or the page that shows it to a browser."""
    if req.context.kind == HTML:
        web.send_answer(req, resp, body)
    else:
        resp.content_type = JSON
        resp.data = packed(req, resp, body)


def _not_modified(req: falcon.Request, resp: falcon.Response, token: str, keep: str = "no-cache") -> bool:
    """Set the validators; True where the client has this state already."""
    page = f"-{web.build()}" if req.context.kind == HTML else ""
    return not_modified(req, resp, f"{token}-{req.context.kind[-4:]}{page}", keep)


class _Cache:
    """The pages answered last, as many as fit the bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pages: OrderedDict[Any, bytes] = OrderedDict()

    def get(self, key: Any) -> bytes | None:
        return self._pages.get(key)

    def put(self, key: Any, page: bytes) -> None:
        if len(page) > self._limit // 16:
            return
        self._size += len(page)
        self._pages[key] = page
        while self._size > self._limit:
            try:
                self._size -= len(self._pages.popitem(last=False)[1])
            except KeyError:  # another thread was quicker
                self._size = 0


def _record(new: NewText, row: StagedRow) -> bytes:
    """One record; a quarter of what setting up the kernel for it would cost."""
    seconds, microseconds = divmod(row.created_at, 1_000_000)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=microseconds, tzinfo=None)
    return orjson.dumps(
        {
            "id": row.id,
            "created_at": at.isoformat(timespec="microseconds") + "Z",
            "text_signature": new.text,
            "hex_signature": "0x" + new.hash.hex(),
            "bytes_signature": new.hash.decode("latin-1"),
        }
    )


def warm() -> None:
    """Load every kernel that a request may need, compiling those that never were, before any waits."""
    [candidates] = pack([Entry(b"function warm(uint a)", 1)], 0)
    canonicalise(candidates)
    new_text(SIGNATURES, "warm(uint a)")
    text, hash = np.frombuffer(b"warm(uint256)", np.uint8), np.zeros((1, 4), np.uint8)
    numbers = np.zeros(1, np.int64)
    segment = Segment.of(1, numbers, numbers, np.array([0, len(text)]), text, hash, {})
    render_rows(segment, numbers)
    render_lines(segment, 0, 1)
    segment.with_text("uint"), segment.with_hex("0"), segment.like("w*", 1)
    resolve.warm()
    dumps.warm()
    web.warm()


def _refused(req: falcon.Request, resp: falcon.Response, error: HttpError, params: Any) -> None:
    resp.status = falcon.code_to_http_status(error.status)
    for name, value in error.headers.items():
        resp.set_header(name, value)
    req.context.kind = getattr(req.context, "kind", JSON)
    resp.delete_header("ETag")
    failure = getattr(req.context, "failure", None)  # a dialect's own words
    _answer(req, resp, orjson.dumps(failure(error.body) if failure else error.body))


def _falcon_error(req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, params: Any) -> None:
    status = falcon.http_status_to_code(error.status)
    told = {"detail": error.description or error.title or ""}
    _refused(req, resp, HttpError(status, told, dict(error.headers or {})), params)


def _failed(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    """Our own fault: one line in the log, no traceback to the client.

    Where it is the storage's, as a full disk or a damaged file, it may be mended when the client comes again.
    """
    told = " ".join(str(error).split())
    print(f"error: {req.method} {req.path}: {type(error).__name__}: {told}", file=sys.stderr, flush=True)
    refusal = detail(500, "Internal error.")
    if isinstance(error, OSError | WarehouseError):
        words = "The directory's storage cannot be used at the moment."
        refusal = HttpError(503, {"detail": words}, {"Retry-After": str(_RETRY_SECONDS)})
    _refused(req, resp, refusal, params)


def _add_slash(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
    resp.status = falcon.HTTP_301
    # The server has taken the escapes off the path; without them it could end the header, or begin a query.
    path = quote(req.env["PATH_INFO"].encode("latin-1"), safe="/:@!$&'()*+,;=~")
    resp.set_header("Location", path + "/" + ("?" + req.query_string if req.query_string else ""))


def _unknown_path(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
    if (req.get_header("Accept") or "").startswith(HTML):  # as every browser's begins
        req.context.kind = HTML
    raise not_found()


def _field(kind: str, required: bool, read_only: bool, label: str) -> dict[str, Any]:
    return {"type": kind, "required": required, "read_only": read_only, "label": label}


_COUNTERS = {
    name: _field("integer", False, True, name.replace("_", " ").capitalize())
    for name in ("num_processed", "num_imported", "num_duplicates", "num_ignored")
}
_ROW_FIELDS = {
    "id": _field("integer", False, True, "ID"),
    "created_at": _field("datetime", False, True, "Created at"),
    "text_signature": _field("string", True, False, "Text signature"),
    "hex_signature": _field("string", False, True, "Hex signature"),
    "bytes_signature": _field("string", False, True, "Bytes signature"),
}
_ABI_FIELDS = {"contract_abi": _field("string", True, False, "Contract abi"), **_COUNTERS}
_SOLIDITY_FIELDS = {
    "source_file": _field("file upload", False, False, "Source file"),
    "source_code": _field("string", False, False, "Source code"),
    **_COUNTERS,
}
ABI_IMPORT = Import("Contract Abi Import Api", _ABI_FIELDS, _abi)
SOLIDITY_IMPORT = Import("Solidity Import Api", _SOLIDITY_FIELDS, imports.solidity_entries)
