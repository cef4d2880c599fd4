"""Rendered pages, kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable


class PageCache:
    """The pages rendered last, as many as fit ``limit`` bytes. The oldest leaves first.

    A page is kept under the token of its view and its address. Pages over a sixteenth of the limit are not kept.
    ``count`` gets, for each look, whether the page was there.
    """

    def __init__(self, limit: int, count: Callable[[bool], None]) -> None:
        self._limit, self._count = limit, count
        self._size = 0
        self._pages: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, token: str, address: str) -> bytes | None:
        page = self._pages.get((token, address))
        self._count(page is not None)
        return page

    def put(self, token: str, address: str, page: bytes) -> None:
        if len(page) > self._limit // 16:
            return
        with self._lock:
            self._size += len(page) - len(self._pages.pop((token, address), b""))
            self._pages[token, address] = page
            while self._size > self._limit:
                self._size -= len(self._pages.popitem(last=False)[1])
