"""What waitress does not bound by itself: a client's connection, as a worker has it.

waitress bounds bodies, headers and silence. Left as it is, a client may still
    send many requests at once and read none of the answers: they pile up, and above 16 MiB the thread
    that answers waits for the client without an end, so as many such clients as there are threads
    stop a worker;
    send a byte every minute for ever;
    write a chunk's size, or the trailer behind the last one, without an end, which is copied anew with
    each piece that comes.
Here the next request of a connection is looked at when the answer before it has gone out, a request
has a time to arrive in, and such lines have a length.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.task import ErrorTask
from waitress.utilities import BadRequest

REQUEST_SECONDS = 300
"""What a request may take to arrive: 16 MiB at 450 kbit/s."""
_MAX_CHUNK_LINE = 8192


class _Parser(HTTPRequestParser):
    """Reads one request; what lies behind it in a piece goes to ``keep``."""

    def __init__(self, keep: Callable[[bytes], None], adj: Any) -> None:
        super().__init__(adj)
        self._keep = keep
        self.began = time.monotonic()

    def received(self, data: bytes) -> int:
        taken = super().received(data)
        if self.chunked and not self.completed:
            chunks: Any = self.body_rcv
            if len(chunks.control_line) > _MAX_CHUNK_LINE or len(chunks.trailer) > _MAX_CHUNK_LINE:
                self.error = BadRequest("Chunk size or trailer too long")
                self.completed = True
        if self.completed and taken < len(data):
            self._keep(data[taken:])
            return len(data)
        return taken


class _Refused(ErrorTask):
    """A request that is refused before the application sees it, in the shape of the application's refusals."""

    def execute(self) -> None:
        request: Any = self.request
        error = request.error
        self.status = f"{error.code} {error.reason}"
        body = orjson.dumps({"detail": f"{error.reason}: {error.body}" if error.code < 500 else error.reason})
        self.response_headers = [("Content-Type", "application/json")]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Channel(HTTPChannel):
    """A connection with one request in work at a time."""

    error_task_class = _Refused

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._held = b""
        parser: Any = partial(_Parser, self._hold)
        self.parser_class = parser
        super().__init__(*arguments, **more)

    def _hold(self, data: bytes) -> None:
        self._held = data

    def _goes_on(self) -> bool:
        return bool(self._held) and self.readable()

    def writable(self) -> bool:
        return bool(super().writable()) or self._goes_on()

    def handle_write(self) -> None:
        if self._goes_on():
            held, self._held = self._held, b""
            self.received(held)
        else:
            super().handle_write()

    def handle_read(self) -> None:
        if self._held:  # first what came before
            return
        super().handle_read()
        request: Any = self.request
        if request is not None and time.monotonic() - request.began > REQUEST_SECONDS:
            self.will_close = True
