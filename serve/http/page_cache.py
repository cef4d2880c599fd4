"""Rendered pages, kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict

import falcon

from sigdir.warehouse.index.view import this_takes_long

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
