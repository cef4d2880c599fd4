"""Answers that are written while they are sent, and how many of them a worker sends at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import falcon

from sigdir.serve.http.codings import packed
from sigdir.serve.http.errors import unavailable

WHOLE_BYTES = 1 << 20
"""The longest answer that is put together in memory; a longer one is a stream."""


class StreamLimit:
    """Permits for streaming answers: a client that reads slowly holds a thread of the worker.

    One object serves all streaming routes.
    """

    def __init__(self, most: int) -> None:
        self._permits = threading.BoundedSemaphore(most)

    def stream(self, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that holds a permit until it ends or is closed; raises HttpError, 503."""
        if not self._permits.acquire(blocking=False):
            raise unavailable("Too many downloads at once.")
        return Stream(self._permits.release, chunks)

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
    """An iterator that returns its permit once, at its end, at an error, or when it is closed."""

    def __init__(self, release: Callable[[], None], chunks: Iterator[bytes]) -> None:
        self._release: Callable[[], None] | None = release
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()

    __del__ = close  # for servers that do not close what they were given
