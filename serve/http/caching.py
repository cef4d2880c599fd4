"""ETag, If-None-Match and If-Range (RFC 9110, 8.8.3, 13.1.2 and 13.1.5).

An ETag comes from one of two tokens.
    The view's token is known before anything is rendered, so a 304 costs no rendering. It changes with every row that
    is added anywhere. Lists, pages and exports have it. Lists and pages add their address: a client that sends this
    ETag got it from this address, so the page exists, and a 304 needs no count.
    The token of a finished body changes only when this answer does. Lookups have it, because they are cheap to render
    and clients ask for the same hash again; so do hash files and documents.

Rendered pages, kept in memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar
from zlib import crc32

import falcon

from sigdir.warehouse.index.view import this_takes_long

Made = TypeVar("Made")

_LOOKUP_SECONDS = 60
_SHORT_CHARACTERS = 1000  # 64,000 commas take 4 ms


def token_of(body: bytes) -> str:
    """The token of a finished body: 16 hex digits. Takes a microsecond for 1 KiB."""
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def address_of(req: falcon.Request) -> str:
    """A request's path and query."""
    return f"{req.path}?{req.query_string}"


def token_at(token: str, address: str) -> str:
    """The token of a state at an address, with its host where the answer has links. Takes half a microsecond; that of a
    body would take two.
    """
    return f"{token}.{crc32(address.encode()):08x}"


def lookup_caching(*, found: bool) -> str:
    """The Cache-Control of a lookup. What was not found may be POSTed at any time and is asked for again."""
    return f"public, max-age={_LOOKUP_SECONDS}" if found else "no-cache"


def weak(tag: str) -> str:
    """The ETag of a state whose bytes may differ, for example gzipped or not."""
    return f'W/"{tag}"'


def strong(tag: str) -> str:
    """The ETag of an exact sequence of bytes."""
    return f'"{tag}"'


def is_current(req: falcon.Request, etag: str) -> bool:
    """Whether If-None-Match names this ETag: the client has this state already.

    RFC 9110, 13.1.2 demands weak comparison: ``W/`` is ignored.
    """
    known = req.env.get("HTTP_IF_NONE_MATCH")  # get_header takes half a microsecond more
    if not known:
        return False
    if len(known) > _SHORT_CHARACTERS:
        this_takes_long()
    tag = etag.removeprefix("W/")
    return known.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in known.split(","))


def if_range_holds(req: falcon.Request, etag: str, modified: str) -> bool:
    """Whether a Range header counts: If-Range is missing or names this ETag or this Last-Modified."""
    return (req.get_header("If-Range") or etag).strip() in (etag, modified)


def set_validators(resp: falcon.Response, etag: str, cache_control: str = "no-cache") -> None:
    resp.set_header("ETag", etag)
    resp.set_header("Cache-Control", cache_control)


def not_modified(req: falcon.Request, resp: falcon.Response, etag: str, cache_control: str = "no-cache") -> bool:
    """Set the validators; True, and status 304, if the client has this state already."""
    set_validators(resp, etag, cache_control)
    if not is_current(req, etag):
        return False
    resp.status = falcon.HTTP_304
    if etag.startswith("W/"):  # its 200 may be packed: a cache takes over the Vary of a 304 (RFC 9110, 15.4.5)
        resp.append_header("Vary", "Accept-Encoding")
    return True


def unless_current(req: falcon.Request, resp: falcon.Response, etag: str, make: Callable[[], Made]) -> Made | None:
    """What ``make`` gives, with the validators; None, and status 304, if the client has this state already.

    ``*`` matches any answer that exists, and only making one shows whether it does.
    """
    is_any = req.env.get("HTTP_IF_NONE_MATCH", "").strip() == "*"
    made = make() if is_any or not is_current(req, etag) else None
    return None if not_modified(req, resp, etag) else made


_ENTRY_BYTES = 300
"""What the cache itself takes for a page."""
ANY_VIEW = ""
"""The token of pages whose address has all that they depend on."""


class PageCache:
    """The pages rendered last, as many as fit ``limit`` bytes with their addresses. The oldest leaves first.

    A page is kept under the token of its view and its address. Pages over a sixteenth of the limit are not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pages: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, req: falcon.Request, token: str, address: str, *, takes_long: bool = True) -> bytes | None:
        """The page; ``takes_long`` says whether it does to make it where it is not there.

        Leaves in ``req.context.was_kept``, for the counts of requests, whether it was there.
        """
        page = self._pages.get((token, address))
        if page is None and takes_long:
            this_takes_long()
        req.context.was_kept = page is not None
        return page

    def put(self, token: str, address: str, page: bytes) -> None:
        size = _size(address, page)
        if size > self._limit // 16:
            return
        with self._lock:
            known = self._pages.pop((token, address), None)
            self._pages[token, address] = page
            self._size += size if known is None else size - _size(address, known)
            while self._size > self._limit:
                (_, oldest), body = self._pages.popitem(last=False)
                self._size -= _size(oldest, body)


def _size(address: str, page: bytes) -> int:
    """What a page takes. An answer without rows has 50 bytes, and its address may have 60,000."""
    return len(page) + len(address) + _ENTRY_BYTES
