"""The WSGI application as an RSGI one, for granian.

A request goes one of three ways:
    short (``is_short``): answered on the event loop. Handing it to a thread and back costs 100 us, the answer 40.
    any other: its body is awaited first, bounded in time and size; a thread then runs the application.
    a streamed answer: a thread makes the parts, the event loop sends them as the client takes them.
So a client that sends or reads slowly holds a connection, never a thread and never the loop.

RSGI's own stream queues without a bound (300 MB for a client that read nothing, granian 2.8), so a streamed
answer goes through a pipe that granian reads as a file: the pipe is full while the client does not read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Any

import orjson

from sigdir.serve.http.addresses import AddressShares
from sigdir.serve.lists.short_requests import IsShort, never_short
from sigdir.serve.servers.limits import NO_ROOM, NO_ROOM_SECONDS, WRITE_BYTES, WRITE_SECONDS, note_no_room
from sigdir.serve.settings import Settings

REQUEST_SECONDS = 300
"""Time limit for a body: 16 MiB at 450 kbit/s."""

_BODY_IN_MEMORY = 65_536  # of each body that is on its way; the rest goes to disk
_OPEN_SECONDS = 10.0
_PART_BYTES = WRITE_BYTES  # more than a pipe holds: once a first part is written, granian has opened the pipe

Environ = dict[str, Any]
Headers = list[tuple[str, str]]


class RsgiApp:
    """The RSGI application over a WSGI ``app``. All methods but ``_answer`` run on the event loop."""

    def __init__(
        self, app: Callable[..., Iterable[bytes]], settings: Settings, is_short: IsShort = never_short
    ) -> None:
        self._app, self._is_short = app, is_short
        self._threads = ThreadPoolExecutor(settings.threads, "request")
        self._shares: AddressShares[asyncio.Future[None]] = AddressShares(
            max(1, settings.threads // 2) if settings.limits_addresses else 0
        )
        self._max_body = max(settings.max_body, settings.max_import_body)
        self._constants: Environ = {
            "SCRIPT_NAME": "",
            "SERVER_NAME": settings.host,
            "SERVER_PORT": str(settings.port),
            "wsgi.version": (1, 0),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": True,
            "wsgi.run_once": False,
            "wsgi.input": BytesIO(),
        }

    async def __rsgi__(self, scope: Any, protocol: Any) -> None:
        environ = self._constants | environ_of(scope)
        if self._is_short(
            environ["REQUEST_METHOD"], environ["PATH_INFO"], environ["QUERY_STRING"],
            environ.get("HTTP_ACCEPT", ""), environ.get("HTTP_ACCEPT_ENCODING", ""),
        ):  # fmt: skip
            stream = self._answer(environ, protocol)
            if stream is not None:
                await stream.send(protocol, self._in_thread)
            return
        try:
            if environ["REQUEST_METHOD"] == "POST":
                await self._receive(environ, protocol)
        except TimeoutError:
            _refuse(protocol, 408, f"Request body took longer than {REQUEST_SECONDS} seconds.", ("connection", "close"))
            return
        except OSError as error:
            note_no_room(error)
            _refuse(protocol, 503, NO_ROOM, ("retry-after", str(NO_ROOM_SECONDS)))
            return
        address = environ["REMOTE_ADDR"]
        await self._turn(address)
        try:
            stream = await self._in_thread(self._answer, environ, protocol)
        finally:
            self._end_turn(address)
        if stream is not None:
            await stream.send(protocol, self._in_thread)

    async def _turn(self, address: str) -> None:
        """Wait until the address has fewer than its share of the threads."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._shares.begin(address, turn):
            return
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # cancelled between being given its turn and taking it
                self._end_turn(address)
            raise

    def _end_turn(self, address: str) -> None:
        while (turn := self._shares.end(address)) is not None and turn.done():  # its request was cancelled
            pass
        if turn is not None:
            turn.set_result(None)

    def _in_thread(self, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _answer(self, environ: Environ, protocol: Any) -> Stream | None:
        """Run the application and send its answer; a streamed one is returned instead."""
        status, headers = 500, []

        def start_response(line: str, given: Headers, exc_info: Any = None) -> None:
            nonlocal status, headers
            status, headers = int(line[:3]), given

        parts = self._app(environ, start_response)
        if isinstance(parts, list):
            protocol.response_bytes(status, headers, b"".join(parts))
            return None
        stream = Stream(status, headers, parts)
        if stream.fits:
            stream.close()
            protocol.response_bytes(status, headers, stream.part)
            return None
        return stream

    async def _receive(self, environ: Environ, protocol: Any) -> None:
        """Await the body and put it into ``environ``; raises TimeoutError.

        A body over the largest limit is not read to its end: the application sees its length and refuses it.
        """
        announced = environ.get("CONTENT_LENGTH")
        if announced is None and "HTTP_TRANSFER_ENCODING" not in environ:
            return
        if announced is not None and int(announced) > self._max_body:
            return
        async with asyncio.timeout(REQUEST_SECONDS):
            body, size = await _read(protocol, self._max_body)
        environ["wsgi.input"] = body
        if announced is None:
            environ["CONTENT_LENGTH"] = str(size)


async def _read(protocol: Any, limit: int) -> tuple[IO[bytes], int]:
    """The body up to just over ``limit`` bytes, and its length.

    RSGI ends a body with an empty chunk; a broken body and one with trailers have another in front of it (granian
    2.8). Those are given a length of one byte more than came: the application refuses them as cut short.
    """
    body = SpooledTemporaryFile(_BODY_IN_MEMORY)  # noqa: SIM115 - closed with the request
    size = empty = 0
    failure: OSError | None = None
    async for chunk in protocol:
        failure = failure or _append(chunk, body)
        size += len(chunk)
        empty += not chunk
        if size > limit:
            break
    if failure:
        raise failure
    body.seek(0)
    return body, size + (empty > 1)


def _append(chunk: bytes, body: IO[bytes]) -> OSError | None:
    """Append to a body. Where the disk has no room, close it and give the error: a client that still sends reads no answer."""
    try:
        body.write(chunk)
        return None
    except OSError as error:
        with suppress(OSError):  # closing writes what could not be written
            body.close()
        return error


class Stream:
    """A streamed answer: its first part, and an iterator over the others."""

    def __init__(self, status: int, headers: Headers, parts: Iterable[bytes]) -> None:
        self._status, self._headers = status, headers
        self._source, self._parts = parts, iter(parts)
        try:
            self.part = self._next()
        except BaseException:
            self.close()
            raise

    @property
    def fits(self) -> bool:
        """Whether the first part is all."""
        return len(self.part) < _PART_BYTES

    def _next(self) -> bytes:
        """The next part of at least _PART_BYTES bytes; a shorter one is the last."""
        return _joined(self._parts, _PART_BYTES)

    def close(self) -> None:
        """Close the iterator, which frees what it holds."""
        _close(self._source)

    async def send(self, protocol: Any, in_thread: Callable[..., asyncio.Future[Any]]) -> None:
        """Send the parts as fast as the client takes them, and no further once it is gone or too slow.

        granian takes the end of the pipe for the end of the answer. One that cannot be finished is therefore left
        open until the client hangs up: cut short, it would look complete.
        """
        reading, writing = os.pipe()
        pipe = _Pipe(reading)
        is_whole = False
        try:
            await asyncio.get_running_loop().connect_write_pipe(lambda: pipe, os.fdopen(writing, "wb", 0))
            protocol.response_file(self._status, self._headers, f"/dev/fd/{reading}")
            while self.part and await pipe.write(self.part):
                self.part = b"" if self.fits else await in_thread(self._next)
            is_whole = not self.part
        except asyncio.CancelledError:  # the worker ends, and hangs up
            is_whole = True
            raise
        finally:
            self.part = b""
            await in_thread(self.close)
            if not is_whole:
                await pipe.lost()
            pipe.close()


def _close(parts: Iterable[bytes]) -> None:
    close = getattr(parts, "close", None)
    if close is not None:
        close()


def _joined(parts: Iterator[bytes], least: int) -> bytes:
    taken, size = [], 0
    for part in parts:
        taken.append(part)
        size += len(part)
        if size >= least:
            break
    return b"".join(taken)


class _Pipe(asyncio.BaseProtocol):
    """The writing end of a pipe on the event loop. The reading end is held until granian has opened its own."""

    def __init__(self, reading: int) -> None:
        self._reading: int | None = reading
        self._transport: Any = None
        self._empty = asyncio.Event()
        self._empty.set()
        self._lost = False
        self._hung_up = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        transport.set_write_buffer_limits(high=0)
        self._transport = transport

    def pause_writing(self) -> None:
        self._empty.clear()

    def resume_writing(self) -> None:
        self._empty.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._empty.set()
        self._hung_up.set()

    async def write(self, part: bytes) -> bool:
        """Whether the part went out; False if the client is gone or slow. Slices of it, because the transport copies."""
        for first in range(0, len(part), _PART_BYTES):
            self._transport.write(memoryview(part)[first : first + _PART_BYTES])
            if self._reading is not None:
                await self._room(_OPEN_SECONDS)
                self._release()
            await self._room(WRITE_SECONDS)
            if self._lost or not self._empty.is_set():
                return False
        return True

    async def _room(self, seconds: float) -> None:
        """Wait until the pipe has room or is lost, at most so long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), seconds)

    async def lost(self) -> None:
        """Wait until the client has hung up."""
        await self._hung_up.wait()

    def _release(self) -> None:
        if self._reading is not None:
            os.close(self._reading)
            self._reading = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort() if self._lost else self._transport.close()
        self._release()


def environ_of(scope: Any) -> Environ:
    """What WSGI calls the parts of an RSGI scope. Text is bytes as Latin-1, repeated headers are joined."""
    environ: Environ = {
        "REQUEST_METHOD": scope.method,
        "PATH_INFO": _latin(scope.path),
        "QUERY_STRING": _latin(scope.query_string),
        "SERVER_PROTOCOL": "HTTP/1.1" if scope.http_version == "1.1" else "HTTP/1.0",
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "wsgi.url_scheme": scope.scheme,
    }
    for name, value in scope.headers.items():
        key = _key(name)
        if key in environ:
            environ[key] += (";" if key == "HTTP_COOKIE" else ",") + value
        elif key:
            environ[key] = value
    return environ


def _latin(text: str) -> str:
    return text if text.isascii() else text.encode().decode("latin-1")


@lru_cache(256)
def _key(name: str) -> str:
    """The WSGI name of a header; empty for one with an underscore, which could pass for another header."""
    if "_" in name:
        return ""
    key = name.upper().replace("-", "_")
    return key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"


def _refuse(protocol: Any, status: int, problem: str, header: tuple[str, str]) -> None:
    headers = [("content-type", "application/json"), ("x-content-type-options", "nosniff"), header]
    protocol.response_bytes(status, headers, orjson.dumps({"detail": problem}))
