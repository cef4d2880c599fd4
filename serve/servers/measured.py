"""A WSGI application around another, which counts and logs each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from sigdir.serve.http.routing import ROUTE
from sigdir.serve.lists.short_requests import IsShort, never_short
from sigdir.serve.metrics.counts import OTHER, Counts
from sigdir.serve.servers.access_log import log_request
from sigdir.serve.servers.probe import is_probe

Environ = dict[str, Any]


class MeasuredApp:
    """Passes requests to ``app``. Counts each answer when it ends, and logs it if asked; not the supervisor's probes.

    The time of an answer ends where its body begins. The bytes of a streamed body are those that the server took.
    """

    def __init__(self, app: Any, counts: Counts, *, log: bool, is_short: IsShort = never_short) -> None:
        self._app, self._counts, self._log = app, counts, log
        self.is_short = is_short
        """Whether the thread that read a request shall answer it."""
        self.beat = counts.beat
        """To be called by the worker's loop at least once a second; the supervisor replaces a worker that does not."""

    def __call__(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.perf_counter_ns()
        status, headers = 500, []

        def start(line: str, given: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal status, headers
            status, headers = int(line[:3]), given
            return start_response(line, given, exc_info) if exc_info else start_response(line, given)

        parts: Iterable[bytes] = self._app(environ, start)
        nanoseconds = time.perf_counter_ns() - began
        if is_probe(environ):
            return parts
        if isinstance(parts, list):
            self._end(environ, status, nanoseconds, sum(map(len, parts)))
        elif type(parts) is environ.get("wsgi.file_wrapper"):  # the server sends it, and wants it as it is
            self._end(environ, status, nanoseconds, _announced(headers))
        else:
            return _CountedParts(parts, partial(self._end, environ, status, nanoseconds))
        return parts

    def _end(self, environ: Environ, status: int, nanoseconds: int, size: int) -> None:
        self._counts.count_request(environ["REQUEST_METHOD"], environ.get(ROUTE, OTHER), status, nanoseconds, size)
        if self._log:
            log_request(environ, status, nanoseconds, size)


def _announced(headers: list[tuple[str, str]]) -> int:
    return next((int(value) for name, value in headers if name.lower() == "content-length"), 0)


class _CountedParts:
    """A streamed body. When the server closes it, ``end`` gets the bytes that the server took."""

    def __init__(self, parts: Iterable[bytes], end: Callable[[int], None]) -> None:
        self._source, self._parts, self._end = parts, iter(parts), end
        self._size = 0
        self._is_open = True

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = next(self._parts)
        self._size += len(part)
        return part

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            try:
                close = getattr(self._source, "close", None)
                if close is not None:
                    close()
            finally:
                self._end(self._size)
