"""Answers that are written while they are sent, and how many of them a worker sends at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

import falcon

from sigdir.serve.http.errors import unavailable
from sigdir.serve.http.negotiate import packed
from sigdir.warehouse.index.view import this_takes_long

WHOLE_BYTES = 1 << 20
"""The longest answer that is put together in memory; a longer one is a stream."""
SHORT_BYTES = 1 << 18
"""A longer answer takes long to render, a millisecond or more: lookups of the longest texts have megabytes."""


class StreamLimit:
    """Permits for streaming answers: a client that reads slowly holds a thread of the worker.

    One object serves all streaming routes.
    """

    def __init__(self, most: int) -> None:
        self._permits = threading.BoundedSemaphore(most)

    def stream(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that holds a permit until it ends or is closed; raises HttpError, 503."""
        this_takes_long()
        if not self._permits.acquire(blocking=False):
            raise unavailable("Too many downloads at once.")
        return Stream(chunks, lambda _: self._permits.release())

    def send(self, req: falcon.Request, resp: falcon.Response, chunks: Iterator[bytes], size: int) -> None:
        """Answer with chunks of ``size`` bytes or fewer. Raises as ``stream``.

        Up to WHOLE_BYTES they are one body, packed as the client takes it; beyond they are a stream, which is not packed.
        """
        if req.method == "HEAD":
            resp.stream = ()
        elif size <= WHOLE_BYTES:
            resp.data = packed(req, resp, b"".join(chunks))
        else:
            resp.stream = self.stream(chunks)


class Stream:
    """A streamed body. ``end`` gets the bytes that were taken, once: at the end, at an error, or when it is closed."""

    def __init__(self, chunks: Iterable[bytes], end: Callable[[int], object]) -> None:
        self._chunks, self._source = iter(chunks), chunks
        self._end: Callable[[int], object] | None = end
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except BaseException:
            self.close()
            raise
        self._size += len(chunk)
        return chunk

    def close(self) -> None:
        end, self._end = self._end, None
        if end is None:
            return
        try:
            getattr(self._source, "close", tuple)()
        finally:
            end(self._size)

    __del__ = close  # for servers that do not close what they were given
