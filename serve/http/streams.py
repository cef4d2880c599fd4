"""Answers that are written while they are sent, and how many of them a worker sends at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import falcon

from sigdir.serve.http.addresses import AddressShares
from sigdir.serve.http.codings import packed
from sigdir.serve.http.errors import unavailable

WHOLE_BYTES = 1 << 20
"""The longest answer that is put together in memory; a longer one is a stream."""


class StreamLimit:
    """Permits for streaming answers: on waitress a client that reads slowly holds a thread of the worker.

    One object serves all streaming routes, on both servers. It has half of the threads, so slow clients leave the
    other half to short requests. Where addresses are limited, one client address has at most half of the permits.
    """

    def __init__(self, threads: int, *, limits_addresses: bool = False) -> None:
        permits = max(1, threads // 2)
        self._permits = threading.BoundedSemaphore(permits)
        self._shares: AddressShares[None] = AddressShares(max(1, permits // 2) if limits_addresses else 0)

    def stream(self, address: str, chunks: Iterator[bytes]) -> Stream:
        """The chunks as an answer that holds a permit until it ends or is closed; raises HttpError, 503.

        ``address`` is the client's.
        """
        if not self._shares.take(address):
            raise unavailable("Too many downloads at once from your address.")
        if not self._permits.acquire(blocking=False):
            self._shares.end(address)
            raise unavailable("Too many downloads at once.")
        return Stream(partial(self._release, address), chunks)

    def _release(self, address: str) -> None:
        self._shares.end(address)
        self._permits.release()

    def send(self, req: falcon.Request, resp: falcon.Response, chunks: Iterator[bytes], size: int) -> None:
        """Answer with chunks of ``size`` bytes or fewer. Raises as ``stream``.

        Up to WHOLE_BYTES they are one body, packed as the client takes it; beyond they are a stream, which is not packed.
        """
        if req.method == "HEAD":
            resp.stream = ()
        elif size <= WHOLE_BYTES:
            resp.data = packed(req, resp, b"".join(chunks))
        else:
            resp.stream = self.stream(req.remote_addr, chunks)


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
