"""A client's connection on waitress, with bounds that waitress lacks, and short requests answered without a thread.

This file subclasses classes of waitress and uses names that are not documented: ``HTTPChannel`` and its
``parser_class``, ``task_class``, ``error_task_class``, ``service``, ``requests``, ``will_close``,
``total_outbufs_len``, ``last_activity``, ``handle_close``, ``send``, ``write_soon``; ``finish`` of tasks; the parser's
``body_rcv``, ``content_length`` and ``body_bytes_received``, ``Error`` of ``waitress.utilities``;
``ThreadedTaskDispatcher``, the servers' ``channel_class``, ``_map`` and the ``_dispatcher`` of ``create_server``,
``readable`` and ``handle_accept`` of servers.
pyproject.toml therefore bounds waitress above; read this file again before raising that bound.

Bounds. By itself waitress lets a client
    send many requests at once and read no answer. Answers pile up, and above 16 MiB the answering thread
    waits without a limit: as many such clients as threads stop a worker.
    send a byte every minute for ever.
    send the size of a chunk, or a trailer, without an end; each piece copies all that came before it.
    never read an answer, while a thread waits: waitress closes such a connection only when it can send again.
    open connections and send nothing: at the limit nobody else is let in for a minute.
Here a connection's next request is parsed after the previous answer is sent, a request has REQUEST_SECONDS to
arrive, and those lines have a length limit. ``close_stalled`` closes connections whose client takes too little of an
answer and, close to the limits, those that have been idle for longest and those that hold most memory.

Speed. A short request is answered by the thread that read it: waking another thread and being woken for its
answer costs 100 us, the answer 40.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import create_server
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask
from waitress.utilities import BadRequest, Error

from sigdir.serve.http.addresses import AddressShares, beyond_share
from sigdir.serve.lists.short_requests import IsShort, never_short
from sigdir.serve.servers.limits import (
    NO_ROOM,
    NO_ROOM_SECONDS,
    WRITE_BYTES,
    WRITE_SECONDS,
    note_no_room,
    to_make_room,
)

REQUEST_SECONDS = 300
"""Time limit for a request to arrive: 16 MiB at 450 kbit/s."""
_MAX_CHUNK_LINE = 8192
_MANY_CONNECTIONS, _ACCEPTED_AT_ONCE = 200, 100
_MAX_WAITING_BYTES = 256 << 20  # of all answers that clients have not taken yet


def create(
    app: Any, threads: int, is_short: IsShort = never_short, *, limits_addresses: bool, **adjustments: Any
) -> Any:
    """A waitress server of these connections with so many threads."""
    dispatcher = Dispatcher(max(1, threads // 2) if limits_addresses else 0, is_short)
    dispatcher.set_thread_count(threads)
    server: Any = create_server(app, _dispatcher=dispatcher, threads=threads, **adjustments)
    server.channel_class = Channel
    return server


def run_once(server: Any, seconds: float) -> None:
    """Handle the connections that are ready, or wait this long for one.

    waitress accepts one connection each time it has looked at all others: with 2,000 open ones the next 500 took 10
    seconds. With many open ones a new one is therefore followed by others that wait.
    """
    open_before = len(server.active_channels)
    wasyncore.loop(timeout=seconds, use_poll=True, map=server._map, count=1)
    if open_before > _MANY_CONNECTIONS:
        _accept_waiting(server, open_before)


def _accept_waiting(server: Any, open_before: int) -> None:
    while (
        open_before < (open_now := len(server.active_channels)) < open_before + _ACCEPTED_AT_ONCE and server.readable()
    ):
        server.handle_accept()
        if len(server.active_channels) == open_now:
            break


def close_stalled(server: Any, now: float, per_address: int = 0) -> None:
    """Close the connections that hold others up. To be called about once a second; ``now`` is monotonic, in seconds.

    ``per_address`` is how many a client address may have, 0 for any number.
    """
    channels = list(server.active_channels.values())
    excess = beyond_share(channels, per_address, lambda channel: channel.address, _since_last_activity)
    for channel in [*excess, *(channel for channel in channels if channel.is_stalled(now))]:
        channel.handle_close()
    idle = [channel for channel in channels if not is_busy(channel)]
    for channel in to_make_room(idle, len(channels), server.adj.connection_limit, _since_last_activity):
        channel.handle_close()
    waiting = sum(channel.total_outbufs_len for channel in channels)
    for channel in sorted(channels, key=lambda channel: -int(channel.total_outbufs_len)):
        if waiting <= _MAX_WAITING_BYTES:
            break
        waiting -= channel.total_outbufs_len
        channel.handle_close()


def _since_last_activity(channel: Any) -> float:
    return -float(channel.last_activity)


def is_busy(channel: Any) -> bool:
    """Whether a request is arriving, in work, or its answer not yet sent."""
    return bool(channel.requests or channel.total_outbufs_len or channel.request is not None)


class _NoRoom(Error):
    """Answers a body for which the temporary folder has no room."""

    code = 503
    reason = "Service Unavailable"


class _Parser(HTTPRequestParser):
    """Parses one request; passes bytes that follow it to ``keep``."""

    def __init__(self, keep: Callable[[bytes], None], adj: Any) -> None:
        super().__init__(adj)
        self._keep = keep
        self._to_drop = 0
        self.began = time.monotonic()

    def received(self, data: bytes) -> int:
        if self._to_drop:
            return self._drop(data)
        try:
            taken = super().received(data)
        except ValueError:  # of urllib for `http://[::1`; waitress hangs up and says nothing
            self.error = BadRequest("Bad URI")
            self.completed = True
            return len(data)
        except OSError as error:  # of the temporary file that has what does not fit into inbuf_overflow
            self._refuse_for_room(error)
            return self._drop(data)
        if self.chunked and not self.completed:
            chunks: Any = self.body_rcv
            if len(chunks.control_line) > _MAX_CHUNK_LINE or len(chunks.trailer) > _MAX_CHUNK_LINE:
                self.error = BadRequest("Chunk size or trailer too long")
                self.completed = True
        if self.completed and taken < len(data):
            self._keep(data[taken:])
            return len(data)
        return taken

    def _refuse_for_room(self, error: OSError) -> None:
        note_no_room(error)
        self.error = _NoRoom(NO_ROOM)
        self._to_drop = self.content_length - self.body_bytes_received  # a client that still sends reads no answer
        received: Any = self.body_rcv
        with suppress(OSError):  # closing writes what could not be written
            received.getbuf().close()

    def _drop(self, data: bytes) -> int:
        self._to_drop -= len(data)
        self.completed = self._to_drop <= 0
        return len(data)


class _Refused(ErrorTask):
    """Answers a request that waitress refuses, with the JSON of the application's refusals."""

    def execute(self) -> None:
        request: Any = self.request
        error = request.error
        self.status = f"{error.code} {error.reason}"
        detail = f"{error.reason}: {error.body}" if error.code < 500 else error.reason
        body = orjson.dumps({"detail": error.body if isinstance(error, _NoRoom) else detail})
        self.response_headers = [("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff")]
        if isinstance(error, _NoRoom):
            self.response_headers.append(("Retry-After", str(NO_ROOM_SECONDS)))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Dispatcher(ThreadedTaskDispatcher):
    """Passes requests to threads, except short ones, which the reading thread answers.

    A client address has at most ``share`` threads, or any number if that is 0; its other requests wait.
    """

    def __init__(self, share: int, is_short: IsShort = never_short) -> None:
        super().__init__()
        self._is_short_request = is_short
        self._reading_thread = threading.get_ident()
        self._shares: AddressShares[Any] = AddressShares(share)  # of channels, which waitress calls tasks

    def add_task(self, task: Any) -> None:
        """Take a channel whose first request has arrived."""
        if threading.get_ident() == self._reading_thread and self._is_short(task.requests[0]):
            task.answer_next = True
        elif self._shares.begin(task.address, task):
            super().add_task(task)

    def _is_short(self, request: Any) -> bool:
        """Whether a parsed request has no body and a short answer."""
        if request.error or request.body_rcv is not None:
            return False
        header = request.headers.get
        return self._is_short_request(
            request.command, request.path, request.query, header("ACCEPT", ""), header("ACCEPT_ENCODING", "")
        )

    def end(self, address: str) -> None:
        """A thread has answered a request of this address."""
        if (waiting := self._shares.end(address)) is not None:
            super().add_task(waiting)


class _Task(WSGITask):
    """Answers a request by the application."""

    def finish(self) -> None:
        super().finish()
        channel: Any = self.channel
        channel.send_headers()  # they still wait if the answer has no body


class Channel(HTTPChannel):
    """A connection with one request in work at a time."""

    task_class = _Task
    error_task_class = _Refused

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._kept = b""
        self._headers: bytes | None = b""  # wait for the first piece of the body; None until an answer has any
        self.answer_next = False
        parser: Any = partial(_Parser, self._keep)
        self.parser_class = parser
        self._taken, self._mark, self._marked_at = 0, 0, time.monotonic()
        super().__init__(*arguments, **more)
        self.address = str(self.addr[0]) if self.addr else ""

    def service(self) -> None:
        """Answer the request that waits. Called by a thread of the dispatcher."""
        dispatcher: Any = self.server.task_dispatcher
        try:
            self._answer()
        finally:
            dispatcher.end(self.address)

    def _answer(self) -> None:
        self._headers = None
        super().service()

    def write_soon(self, data: Any) -> int:
        """Take a piece of an answer: bytes, or a file. The headers come first, and wait for the first piece of the body.

        So they are one packet and one system call: a tenth more POSTs, with 8 connections.
        """
        if self._headers is None:
            self._headers = data
            return len(data)
        if self._headers and isinstance(data, bytes):
            self._headers, data = b"", self._headers + data
        self.send_headers()
        written: int = super().write_soon(data)
        return written

    def send_headers(self) -> None:
        """Send headers that wait."""
        if self._headers:
            headers, self._headers = self._headers, b""
            super().write_soon(headers)

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent: int = super().send(data, do_close=do_close)
        self._taken += sent
        return sent

    def is_stalled(self, now: float) -> bool:
        """Whether an answer waits, and the client has taken less than WRITE_BYTES of it in WRITE_SECONDS."""
        if not self.total_outbufs_len or self._taken - self._mark >= WRITE_BYTES:
            self._mark, self._marked_at = self._taken, now
        return now - self._marked_at > WRITE_SECONDS

    def _keep(self, data: bytes) -> None:
        self._kept = data

    def writable(self) -> bool:
        # The first line is waitress's own method; calling it for each connection in each loop took 4 % of all time.
        waiting = self.total_outbufs_len or self.will_close or self.close_when_flushed
        return bool(waiting) or self._has_next()

    def _has_next(self) -> bool:
        return self._kept != b"" and self.readable()

    def handle_write(self) -> None:
        if self._has_next():
            kept, self._kept = self._kept, b""
            self.received(kept)
            self._answer_short()
        else:
            super().handle_write()

    def handle_read(self) -> None:
        if self._kept:  # requests are answered in the order they came
            return
        super().handle_read()
        self._answer_short()
        request: Any = self.request
        if request is not None and time.monotonic() - request.began > REQUEST_SECONDS:
            self.will_close = True

    def _answer_short(self) -> None:
        if self.answer_next:
            self.answer_next = False
            self._answer()
