"""Slow bodies behind a server that reads them in the application's threads, as granian does.

granian starts a request when its headers are there and has no time-out for the rest
(emmett-framework/granian#728), so whoever sends a body slowly holds a thread; as many such clients as
threads would stop a worker. It is therefore given ``BODIES`` threads beside those that work:
``Gate`` lets no more than the settings say work at once, and a request gives up its turn while it waits
for its body. When ``BODIES`` requests wait, the next one with a body is refused, and all others are served.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Any

from serve.errors import Refusal

BODIES = 32
"""Bodies that a worker waits for at once. Each may be as large as the settings allow."""

_RETRY_SECONDS = 10


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
    """A request's body; reading it raises Refusal where too many wait for theirs."""

    def __init__(self, source: Any, gate: Gate) -> None:
        self._source, self._gate = source, gate

    def read(self, size: int) -> bytes:
        gate = self._gate
        if not gate.bodies.acquire(blocking=False):
            told = {"detail": "Too many request bodies are on their way."}
            raise Refusal(503, told, {"Retry-After": str(_RETRY_SECONDS)})
        gate.turns.put(None)
        try:
            body: bytes = self._source.read(size)
            return body
        finally:
            gate.turns.get()
            gate.bodies.release()
