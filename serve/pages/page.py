"""HTML: templates compiled once, assets under names that change with them, a page and its headers.

Invariants
    Whatever a template is given is escaped (autoescape), and a page runs and loads nothing but our own
    files: the policy has no exception for inline scripts or styles, so a template has neither.
    A page shows one view. It is kept while that is the newest, and its ETag names the view and the build.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import falcon
import jinja2
import orjson

from sigdir.serve.http.errors import not_found
from sigdir.serve.http.negotiate import (
    HTML,
    not_modified,
    packed,
    takes_gzip,
)
from sigdir.serve.pages import row_markup as parts
from sigdir.warehouse.index.view import Reader, View

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
"""connect-src lets the script ask this server for results; nothing else may be asked."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

_FOLDER = Path(__file__).parent
_KEPT_BYTES = 16 << 20
_KEPT_SECONDS = 365 * 86_400
_ICON_SECONDS = 86_400  # its name stays when it changes
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


# Assets.


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that pages refer to. ``name`` has its hash in it, so what it names never changes."""

    name: str
    type: str
    body: bytes
    gzipped: bytes

    @classmethod
    def of(cls, path: Path) -> Asset:
        body = path.read_bytes()
        name = f"{path.stem}-{hashlib.sha256(body).hexdigest()[:12]}{path.suffix}"
        packer = zlib.compressobj(9, wbits=31)
        return cls(name, _TYPES[path.suffix], body, packer.compress(body) + packer.flush())


@lru_cache(maxsize=1)
def assets() -> Mapping[str, Asset]:
    """The assets by the name of their file."""
    return {path.name: Asset.of(path) for path in sorted((_FOLDER / "assets").iterdir()) if path.suffix in _TYPES}


def asset(name: str) -> str:
    """The address of an asset."""
    return f"/assets/{assets()[name].name}"


class AssetResource:
    """The assets, each under the one name that it has now."""

    def __init__(self) -> None:
        self._by_name = {found.name: found for found in assets().values()}

    def on_get(self, req: falcon.Request, resp: falcon.Response, name: str) -> None:
        found = self._by_name.get(name)
        if found is None:
            raise not_found()
        _send_asset(req, resp, found, f"public, max-age={_KEPT_SECONDS}, immutable")

    on_head = on_get


class IconResource:
    """The icon where browsers look for one by themselves, as beside an answer that is no page."""

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        _send_asset(req, resp, assets()["icon.svg"], f"public, max-age={_ICON_SECONDS}")

    on_head = on_get


def _send_asset(req: falcon.Request, resp: falcon.Response, found: Asset, keep: str) -> None:
    resp.content_type = found.type
    resp.set_header("Cache-Control", keep)
    resp.set_header("X-Content-Type-Options", "nosniff")
    resp.set_header("Vary", "Accept-Encoding")
    if takes_gzip(req.get_header("Accept-Encoding") or ""):
        resp.set_header("Content-Encoding", "gzip")
        resp.data = found.gzipped
    else:
        resp.data = found.body


# Pages.


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.globals |= {"asset": asset, "navigation": NAVIGATION}
    made.filters |= {"soft": parts.soft, "n": "{:,}".format}
    made.globals |= {"listing": parts.listing, "heading": parts.heading, "copy": parts.copy, "time": parts.time}
    made.globals |= {"search": made.get_template("search_box.html").module.search}  # type: ignore[attr-defined]
    frame = made.get_template("frame.html").module
    made.globals |= {"head": frame.head(), "script": frame.script(), "foot": frame.foot()}  # type: ignore[attr-defined]
    # What is the same on every page is a third of rendering a small one.
    made.globals["masthead"] = lru_cache(maxsize=len(NAVIGATION) + 2)(frame.masthead)  # type: ignore[attr-defined]
    return made


@lru_cache(maxsize=1)
def build() -> str:
    """Differs between any two states of the templates and assets that differ."""
    files = sorted([*(_FOLDER / "templates").iterdir(), *(_FOLDER / "assets").iterdir()])
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()[:8]


def rendered(template: str, **values: Any) -> bytes:
    """A template filled in. ``here`` is the address of the navigation's entry that the page belongs to."""
    return _templates().get_template(template).render({"here": None, "query": ""} | values).encode()


def send(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a page."""
    resp.content_type = HTML_TYPE
    for name, value in _HEADERS.items():
        resp.set_header(name, value)
    resp.data = packed(req, resp, body)


class Kept:
    """The pages of the newest view by their address, as many as fit the bytes: older ones nobody asks for again."""

    def __init__(self, limit: int = _KEPT_BYTES) -> None:
        self._limit = limit
        self._begin("")

    def _begin(self, token: str) -> None:
        self._token, self._size = token, 0
        self._pages: dict[str, bytes] = {}

    def get(self, token: str, key: str) -> bytes | None:
        return self._pages.get(key) if token == self._token else None

    def put(self, token: str, key: str, page: bytes) -> None:
        if token != self._token or self._size + len(page) > self._limit:
            self._begin(token)
        if len(page) <= self._limit // 16:
            self._pages[key] = page
            self._size += len(page)


class ViewPage:
    """A page that shows the newest view. ``render`` makes it; ``kind`` makes its errors pages too."""

    kind = HTML

    def __init__(self, reader: Reader, kept: Kept) -> None:
        self._reader, self._kept = reader, kept

    def render(self, view: View, req: falcon.Request, **parameters: str) -> bytes:
        """The page of a view and an address, and of nothing else; raises HttpError."""
        raise NotImplementedError

    def on_get(self, req: falcon.Request, resp: falcon.Response, **parameters: str) -> None:
        view = self._reader.current()
        key = f"{req.path}?{req.query_string}"
        page = self._kept.get(view.token, key)
        if page is None:
            page = self.render(view, req, **parameters)
            self._kept.put(view.token, key, page)
        if not not_modified(req, resp, f"{view.token}-{build()}"):
            send(req, resp, page)

    on_head = on_get


_HEADINGS = {
    301: "It is elsewhere", 403: "Not from there", 404: "Not found", 405: "Not this way", 413: "Too much",
    414: "Too much", 503: "Not now",
}  # fmt: skip

_HASH_PATH = re.compile(r"/(selector/0x[0-9a-f]{8}|topic/0x[0-9a-f]{64})/")
"""Where a text may still come to be."""

# What an API's answer looks like in a browser.


def send_answer(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with a page that shows the JSON ``body``, or tells what a page could not do."""
    value = orjson.loads(body)
    status = falcon.http_status_to_code(resp.status)
    if status >= 300 and not req.path.startswith("/api/"):
        send(req, resp, rendered("error.html", status=status, heading=_HEADINGS.get(status, "That went wrong"),
                                 told=str(value.get("detail", "")),
                                 offers_submit=status == 404 and _HASH_PATH.fullmatch(req.path) is not None))  # fmt: skip
        return
    is_list = isinstance(value, dict) and "results" in value
    told = value if is_list else {}
    separator = "&" if req.query_string else ""
    page = rendered(
        "answer.html",
        title=req.path.removeprefix("/api/v1/").strip("/") or "signature directory",
        method="GET" if req.method == "HEAD" else req.method, status=str(resp.status), path=req.path,
        address=req.path + ("?" + req.query_string if req.query_string else ""),
        json_address=f"{req.path}?{req.query_string}{separator}format=json",
        results=told.get("results"), count=told.get("count"), next=told.get("next"), previous=told.get("previous"),
        pretty=orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(),
    )  # fmt: skip
    send(req, resp, page)
