"""What granian does not do by itself: quick requests in one thread, and slow bodies outside of a turn.

granian calls the application in threads, which take turns at the interpreter. Forty of them answer 13,000 deep
pages a second, one answers 36,000: nobody waits to have the interpreter back, and no thread is woken for a
request that the one before could have taken. But one thread alone would stand still for a body on its way,
for a disk, for a scan. So there are forty, and whichever has answered something quick lies down for a while if
another is at the same just now, for that one takes the next; who begins what is not quick wakes one up.

Slow bodies: granian starts a request when its headers are there and has no time-out for the rest
(emmett-framework/granian#728), so whoever sends a body slowly holds a thread; as many such clients as
threads would stop a worker. It is therefore given ``BODIES`` threads beside those that work:
``Gate`` lets no more than the settings say work at once, and a request gives up its turn while it waits
for its body. When ``BODIES`` requests wait, the next one with a body is refused, and all others are served.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Any

from sigdir.serve.http.errors import HttpError
from sigdir.serve.lists.short_requests import is_short_request
from sigdir.serve.settings import BODIES

_RETRY_SECONDS = 10

# For so long a thread lies down at most: should all be wrong about who takes the next request, it waits no longer.
_REST_SECONDS = 1.0

Answer = Callable[[Any, dict[str, Any]], Any]
"""What granian calls with the object that responds and the environment."""


class Gate:
    """A WSGI application of which ``threads`` requests work at once."""

    def __init__(self, app: Any, threads: int) -> None:
        self._app = app
        # A semaphore written in C: 0.1 microseconds a turn where threading's takes 2.
        self.turns: SimpleQueue[None] = SimpleQueue()
        for _ in range(threads):
            self.turns.put(None)
        self.bodies = threading.BoundedSemaphore(BODIES)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ["wsgi.input"] = _Body(environ["wsgi.input"], self)
        self.turns.get()
        try:
            parts: Iterable[bytes] = self._app(environ, start_response)
            return parts
        finally:
            self.turns.put(None)


class _Body:
    """A request's body; reading it raises HttpError where too many wait for theirs."""

    def __init__(self, source: Any, gate: Gate) -> None:
        self._source, self._gate = source, gate

    def read(self, size: int) -> bytes:
        gate = self._gate
        if not gate.bodies.acquire(blocking=False):
            told = {"detail": "Too many request bodies are on their way."}
            raise HttpError(503, told, {"Retry-After": str(_RETRY_SECONDS)})
        gate.turns.put(None)
        try:
            body: bytes = self._source.read(size)
            return body
        finally:
            gate.turns.get()
            gate.bodies.release()


class Leader:
    """What granian calls for a request: calls ``quickly`` or ``slowly``, and keeps what is quick in one thread.

    Invariants
        A thread lies down only while another is at a quick request, so one is always about to come back.
        Whatever is miscounted, each is up again after a second.
    """

    def __init__(self, quickly: Answer, slowly: Answer) -> None:
        self._quickly, self._slowly = quickly, slowly
        self._leading: dict[object, None] = {}  # a quick request each; a number could be changed by two at once
        self._resting: SimpleQueue[None] = SimpleQueue()
        self._beds: dict[object, None] = {}

    def __call__(self, protocol: Any, scope: dict[str, Any]) -> None:
        request = object()
        if _is_quick(scope):
            self._leading[request] = None
            try:
                self._quickly(protocol, scope)
            finally:
                del self._leading[request]
            if self._leading:
                self._rest(request)
        else:
            if self._beds:
                self._resting.put(None)
            self._slowly(protocol, scope)

    def _rest(self, bed: object) -> None:
        self._beds[bed] = None
        try:
            self._resting.get(timeout=_REST_SECONDS)
        except Empty:
            pass
        finally:
            del self._beds[bed]


def _is_quick(scope: dict[str, Any]) -> bool:
    known = scope.get
    return is_short_request(
        scope["REQUEST_METHOD"], scope["PATH_INFO"], scope["QUERY_STRING"],
        known("HTTP_ACCEPT", ""), known("HTTP_ACCEPT_ENCODING", ""),
    )  # fmt: skip


def lead(threads: int) -> bool:
    """Have the granian of this process, a worker, call a Leader for each request.

    It has no setting for that. What is replaced is the name by which its server knows the function that makes
    a callback of an application; False where it knows none by that name.
    """
    server: Any = importlib.import_module("granian.server.mp")
    wrap = getattr(server, "_wsgi_call_wrap", None)
    if wrap is None:
        return False
    server._wsgi_call_wrap = lambda app, *options: Leader(wrap(app, *options), wrap(Gate(app, threads), *options))
    return True
