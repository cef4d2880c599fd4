"""What all pages share: compiled templates, assets, the headers of a page, and caching.

Invariants
    Every value in a template is escaped (autoescape). A page runs and loads only our own files: the
    Content-Security-Policy makes no exception for inline scripts or styles, so templates contain neither.
    A page shows one view. It is cached while that view is the newest; its ETag names the view and the build.

Answers in the representation that the request prefers: JSON, or the page that shows it to a browser, or a page's
error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import falcon
import jinja2
import orjson

from sigdir.serve.core.process import write_line
from sigdir.serve.http import caching
from sigdir.serve.http.answers import (
    HTML,
    JSON,
    HttpError,
    http_error_of,
    json_bytes,
    not_found,
    packed,
    packed_in,
    send_json,
)
from sigdir.serve.http.caching import PageCache, address_of, lookup_caching, token_at, unless_current, weak
from sigdir.serve.pages.rows import FILTERS, FUNCTIONS
from sigdir.signatures.decode_input import BadInput
from sigdir.signatures.errors import visible
from sigdir.warehouse.index.view import Reader, View, this_takes_long

HTML_TYPE = "text/html; charset=utf-8"

NAVIGATION = (
    ("/search/", "Search"),
    ("/browse/", "Browse"),
    ("/submit/", "Submit"),
    ("/decode/", "Decode"),
    ("/statistics/", "Statistics"),
    ("/docs/", "API"),
    ("/status/", "Status"),
)

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""connect-src lets the script fetch results from this server, and from nowhere else."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "same-origin",
}

TEMPLATES = Path(__file__).parent / "templates"
CACHE_BYTES = 16 << 20
"""Of the cache that all pages share."""


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    environment.globals |= FUNCTIONS | {"asset": asset_address, "navigation": NAVIGATION, "public_url": ""}
    environment.filters |= FILTERS
    return environment


def set_public_url(url: str) -> None:
    """What the address of the preview picture begins with: who shows a shared link needs it whole."""
    _templates().globals["public_url"] = url


@lru_cache(maxsize=1)
def build() -> str:
    """Eight hex digits that change with any template or asset."""
    files = sorted([*TEMPLATES.iterdir(), *FOLDER.iterdir()])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:8]


def rendered(template: str, **values: Any) -> bytes:
    """A template filled in. ``here`` is the address of the navigation entry that the page belongs to."""
    this_takes_long()
    page = _templates().get_template(template).render({"here": None, "query": ""} | values)
    return page.encode(errors="replace")  # a client's JSON may have half of a surrogate pair


def send(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a page."""
    resp.content_type = HTML_TYPE
    resp.set_headers(_HEADERS)
    resp.data = packed(req, resp, body)


_MOST_INDENTED = 6  # times as long: three levels of tuples make it four times as long


def indented(entries: list[dict[str, Any]]) -> str:
    """An ABI as indented JSON; in one line where it is nested so deep that it would be blanks for the most part."""
    packed, shown = orjson.dumps(entries), orjson.dumps(entries, option=orjson.OPT_INDENT_2)
    return (shown if len(shown) <= _MOST_INDENTED * len(packed) else packed).decode()


@dataclass
class ViewPage:
    """A page of the newest view. Subclasses implement ``render``."""

    kind = HTML  # errors are pages too
    may_be_short = True

    _reader: Reader
    _cache: PageCache

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        """The page, a function of the view and the address alone; raises HttpError."""
        raise NotImplementedError

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        view = self._reader.current()
        tag = weak(f"{token_at(view.token, address_of(req))}-{build()}")
        page = unless_current(req, resp, tag, lambda: self._page(view, req, **parameters))
        if page is not None:
            send(req, resp, page)

    def _page(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        address = address_of(req)
        page = self._cache.get(req, view.token, address)
        if page is None:
            page = self.render(view, req, **parameters)
            self._cache.put(view.token, address, page)
        return page


# Assets: the stylesheets, the script and the icon, each at an address that contains the hash of its content.

FOLDER = Path(__file__).parent / "assets"

_ASSET_SECONDS = 365 * 86_400
_DAY = 86_400  # /favicon.ico keeps its address when the icon changes
_PNG = "image/png"  # is packed already
_TYPES = {
    ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
    ".png": _PNG, ".txt": "text/plain; charset=utf-8",
}  # fmt: skip

_packed_once = cache(packed_in)


class Asset(NamedTuple):
    """A file that pages refer to. ``name`` contains the content's hash, so the content at a name never changes."""

    name: str
    type: str
    body: bytes

    @classmethod
    def of(cls, path: Path) -> Asset:
        body = path.read_bytes()
        return cls(f"{path.stem}-{hashlib.sha256(body).hexdigest()[:12]}{path.suffix}", _TYPES[path.suffix], body)


@lru_cache(maxsize=1)
def assets() -> Mapping[str, Asset]:
    """The assets by the name of their file."""
    return {path.name: Asset.of(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}


def asset_address(file_name: str) -> str:
    """The address of an asset."""
    return f"/assets/{assets()[file_name].name}"


class AssetResource:
    """The assets, each at its current name only."""

    may_be_short = True

    def __init__(self) -> None:
        self._by_name = {asset.name: asset for asset in assets().values()}

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        asset = self._by_name.get(name)
        if asset is None:
            raise not_found()
        _send(req, resp, asset, f"public, max-age={_ASSET_SECONDS}, immutable")


@dataclass
class NamedAssetResource:
    """An asset at the address where browsers or crawlers look for it on their own: the icon, as with a JSON answer."""

    _file_name: str

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        _send(req, resp, assets()[self._file_name], f"public, max-age={_DAY}")


def _send(req: falcon.Request, resp: falcon.Response, asset: Asset, cache_control: str) -> None:
    resp.content_type = asset.type
    resp.set_header("Cache-Control", cache_control)
    resp.data = asset.body if asset.type == _PNG else packed(req, resp, asset.body, _packed_once)


_HEADINGS = {
    301: "Moved", 400: "Not understood", 401: "Write token needed", 403: "Refused", 404: "Not found", 405: "Method not allowed", 413: "Too large",
    414: "Address too long", 503: "Unavailable",
}  # fmt: skip
_NO_LIST = dict.fromkeys(("count", "next", "previous", "results"))


def _error_page(req: falcon.Request, status: int, error: dict[str, Any]) -> bytes:
    of_fields = [f"{name}: {' '.join(found)}" for name, found in error.items() if isinstance(found, list)]
    return rendered(
        "error.html", status=status, heading=_HEADINGS.get(status, "Something went wrong"),
        detail=str(error.get("detail", "; ".join(of_fields))), submit=error.get("submit"), solve=error.get("solve"),
    )  # fmt: skip


def _json_page(req: falcon.Request, status: str, value: Any) -> bytes:
    is_list = isinstance(value, dict) and value.keys() == _NO_LIST.keys()
    separator = "&" if req.query_string else ""
    return rendered(
        "answer.html",
        title=req.path.removeprefix("/api/v1/").strip("/") or "signature directory",
        method="GET" if req.method == "HEAD" else req.method, status=status, path=req.path,
        address=req.path + ("?" + req.query_string if req.query_string else ""),
        json_address=f"{req.path}?{req.query_string}{separator}format=json",
        pretty=orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), **(value if is_list else _NO_LIST),
    )  # fmt: skip


def answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a JSON body, or with the page that shows it; with an error page where a page failed."""
    if req.context.kind != HTML:
        send_json(req, resp, body)
        return
    value = orjson.loads(body)
    is_page_error = resp.status_code >= 300 and not req.path.startswith("/api/")
    send(
        req,
        resp,
        _error_page(req, resp.status_code, value) if is_page_error else _json_page(req, str(resp.status), value),
    )


def answer_lookup(req: falcon.Request, resp: falcon.Response, body: bytes, *, found: bool = True) -> None:
    """Answer with a JSON body that is cheap to make, or its page, or a 304: the ETag changes only when the body does."""
    if not caching.not_modified(req, resp, etag(req, caching.token_of(body)), lookup_caching(found=found)):
        answer(req, resp, body)


def etag(req: falcon.Request, token: str) -> str:
    """The ETag of a state in the request's representation; a page changes with its templates too."""
    page = f"-{build()}" if req.context.kind == HTML else ""
    return caching.weak(f"{token}-{req.context.kind[-4:]}{page}")


def add_error_handlers(app: Any) -> None:
    app.add_error_handler(HttpError, _answer_error)
    app.add_error_handler(falcon.HTTPError, _answer_error)
    app.add_error_handler(BadInput, _answer_error)
    app.add_error_handler(Exception, _log_and_answer_error)


def _answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    found = http_error_of(error)
    resp.status = falcon.code_to_http_status(found.status)
    resp.set_headers(found.headers)
    resp.delete_header("ETag")
    req.context.kind = getattr(req.context, "kind", JSON)
    error_body = getattr(req.context, "error_body", None)
    answer(req, resp, json_bytes(error_body(found.body) if error_body else found.body))


def _log_and_answer_error(req: falcon.Request, resp: falcon.Response, error: Exception, params: Any) -> None:
    """Write one line to the log. The client gets no traceback. A request over its memory is no error of the server."""
    this_takes_long()  # a page of the error does, and the line would be written again
    word = "error" if http_error_of(error).status >= 500 else "refused"
    line = f"{word}: {req.method} {req.path}: {type(error).__name__}: {error}"
    write_line(visible(" ".join(line.split())))  # a path may have line breaks
    _answer_error(req, resp, error, params)
