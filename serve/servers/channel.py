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

And what it does not do by itself: a request that is quickly answered is answered by the thread that read
it. To hand it to another and be woken for the answer costs 100 microseconds, the answer 40.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from waitress import parser
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, unquote_bytes_to_wsgi
from waitress.task import ErrorTask, ThreadedTaskDispatcher
from waitress.utilities import BadRequest

from sigdir.serve.lists.short_requests import is_short_request

REQUEST_SECONDS = 300
"""What a request may take to arrive: 16 MiB at 450 kbit/s."""
_MAX_CHUNK_LINE = 8192


_split_any: Callable[[bytes], Any] = parser.split_uri


def split_uri(uri: bytes) -> tuple[str, str, str, str, str]:
    """What waitress's function of this name gives: scheme, host, path, query and fragment.

    That one has urlsplit take apart a path that was not seen before: 20 microseconds of the 150 that a
    request takes. Only a proxy's client, or one that sends rubbish, needs it.
    """
    if not uri.startswith(b"/") or uri.startswith(b"//") or b"\t" in uri or not uri.isascii():
        split: tuple[str, str, str, str, str] = _split_any(uri)
        return split
    rest, _, fragment = uri.partition(b"#")
    path, _, query = rest.partition(b"?")
    return "", "", unquote_bytes_to_wsgi(path), query.decode("latin-1"), fragment.decode("latin-1")


parser.split_uri = split_uri  # type: ignore[assignment]  # the stubs have the path as bytes


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


class Dispatcher(ThreadedTaskDispatcher):
    """Threads for what takes its time; quick requests stay with the channel."""

    def __init__(self) -> None:
        super().__init__()
        self._reading = threading.get_ident()

    def add_task(self, task: Any) -> None:
        """Take a channel whose first request has arrived."""
        if threading.get_ident() == self._reading and is_quick_request(task.requests[0]):
            task.is_next = True
        else:
            super().add_task(task)


def is_quick_request(request: Any) -> bool:
    """Whether a parsed request is answered in less time than a hand-over takes."""
    if request.error or request.body_rcv is not None:
        return False
    known = request.headers.get
    return is_short_request(
        request.command, request.path, request.query, known("ACCEPT", ""), known("ACCEPT_ENCODING", "")
    )


class Channel(HTTPChannel):
    """A connection with one request in work at a time."""

    error_task_class = _Refused

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._held = b""
        self.is_next = False
        parser: Any = partial(_Parser, self._hold)
        self.parser_class = parser
        super().__init__(*arguments, **more)

    def _hold(self, data: bytes) -> None:
        self._held = data

    def _goes_on(self) -> bool:
        return bool(self._held) and self.readable()

    def writable(self) -> bool:
        # The first line is the method of waitress; a call of it for each connection in each turn was 4 % of all time.
        waiting = self.total_outbufs_len or self.will_close or self.close_when_flushed
        return bool(waiting) or (self._held != b"" and self.readable())

    def handle_write(self) -> None:
        if self._goes_on():
            held, self._held = self._held, b""
            self.received(held)
            self._answer_quickly()
        else:
            super().handle_write()

    def handle_read(self) -> None:
        if self._held:  # first what came before
            return
        super().handle_read()
        self._answer_quickly()
        request: Any = self.request
        if request is not None and time.monotonic() - request.began > REQUEST_SECONDS:
            self.will_close = True

    def _answer_quickly(self) -> None:
        if self.is_next:
            self.is_next = False
            self.service()
