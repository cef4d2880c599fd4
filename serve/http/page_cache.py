"""Rendered pages, kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict


class PageCache:
    """The pages rendered last, as many as fit ``limit`` bytes. The oldest leaves first.

    A page is kept under the token of its view and its address. Pages over a sixteenth of the limit are not kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._pages: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, token: str, address: str) -> bytes | None:
        return self._pages.get((token, address))

    def put(self, token: str, address: str, page: bytes) -> None:
        if len(page) > self._limit // 16:
            return
        with self._lock:
            self._size += len(page) - len(self._pages.pop((token, address), b""))
            self._pages[token, address] = page
            while self._size > self._limit:
                self._size -= len(self._pages.popitem(last=False)[1])
