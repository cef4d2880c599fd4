"""Polite HTTP requests to one server: a rate limit, retries while the server is busy, everything bounded.

Only http and https. Redirects are followed within the same origin only, so a directory cannot send us to
another server. Proxies come from the environment (``HTTPS_PROXY``).

Every byte of an answer is read through ``_BoundedReader``. So the limits of bytes and time hold for the status line,
100 Continue, headers, chunk sizes and trailers too. http.client reads those in loops of its own, and its time-out
starts again with each byte.
"""

from __future__ import annotations

import io
import re
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from sigdir.pipeline.errors import PipelineError
from sigdir.signatures.interruption import waiting

MAX_REQUESTS = 1_000_000
"""The most requests of one Fetcher: six days at two a second."""
_LONGEST_WAIT = 600.0
_HEAD_BYTES = 1 << 20
"""The most bytes before a body: the status line, the headers, and any number of 100 Continue."""
_PIECE_BYTES = 1 << 20
_REDIRECTS = 5
_SHOWN = 200


class FetchError(PipelineError):
    """A request failed, or its answer is not what was requested."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")
        self.reason = reason


class NotFound(FetchError):
    """The answer has status 404."""


class TooLarge(FetchError):
    """The answer is larger than the limit."""


class TooSlow(FetchError):
    """The answer does not end within the deadline, although bytes arrive."""


class _Busy(Exception):
    """The request may be tried again, after ``wait`` seconds or more."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def checked_base(url: str) -> str:
    """The URL of a directory without its last slash. Raises FetchError if it is not such a URL."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError as error:
        raise FetchError(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
        raise FetchError(url, "not a URL that begins with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise FetchError(f"{parts.scheme}://{parts.hostname}", "the URL must have no user name, query or fragment")
    if not re.fullmatch(r"[!-~]+", url):
        raise FetchError(ascii(url), "the URL has characters that a URL cannot have")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _shown(text: str) -> str:
    """A server's text, shortened and escaped for a message."""
    return ascii(text[:_SHOWN])[1:-1]


def _origin(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc.lower()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The rate of requests, and when to try again."""

    rate: float = 2.0
    """Requests per second."""
    tries: int = 8
    """Tries of each request."""
    delay: float = 1.0
    """Seconds before the second try; doubled before each further try."""
    timeout: float = 30.0
    """Seconds without a byte after which a try has failed."""
    deadline: float = 300.0
    """Seconds for a whole try, from the connection to the last byte, redirects included."""


class _Budget:
    """The seconds and bytes that a try may still take."""

    def __init__(self, url: str, limit: int, policy: RetryPolicy) -> None:
        self._url = url
        self._limit = limit
        self._policy = policy
        self._ends = time.monotonic() + policy.deadline
        self._bytes = 0
        self._is_head = True

    def head_begins(self) -> None:
        self._is_head, self._bytes = True, _HEAD_BYTES

    def body_begins(self) -> None:
        """Chunk sizes and trailers may take as many bytes as the body."""
        self._is_head, self._bytes = False, 2 * self._limit + _PIECE_BYTES

    def seconds(self) -> float:
        """How long to wait for the next byte. Raises TooSlow after the deadline."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TooSlow(self._url, f"no end of the answer in {self._policy.deadline:g} s")
        return min(left, self._policy.timeout)

    def take(self, size: int) -> None:
        self._bytes -= size
        if self._bytes < 0 and self._is_head:
            raise FetchError(self._url, f"over {_HEAD_BYTES:,} bytes before the body of an answer")
        if self._bytes < 0:
            raise TooLarge(self._url, f"an answer of over {self._limit:,} bytes")


class _BoundedReader(io.RawIOBase):
    """The bytes of a socket, within a budget."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, budget: _Budget) -> None:
        self._raw, self._sock, self._budget = raw, sock, budget

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._budget.seconds())
        try:
            size: int | None = self._raw.readinto(buffer)
        except TimeoutError:
            self._budget.seconds()
            raise
        self._budget.take(size or 0)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _BoundedResponse(HTTPResponse):
    def __init__(self, budget: _Budget, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self._budget = budget
        self.fp = io.BufferedReader(_BoundedReader(self.fp.detach(), sock, budget))

    def begin(self) -> None:
        self._budget.head_begins()
        super().begin()
        self._budget.body_begins()


class _Handler(HTTPSHandler, HTTPHandler):
    """Opens both schemes, with the budget of the try."""

    budget: _Budget

    def do_open(self, http_class: Any, req: Request, **http_conn_args: Any) -> HTTPResponse:
        def connection(host: str, **more: Any) -> HTTPConnection:
            made: HTTPConnection = http_class(host, **more)
            made.response_class = partial(_BoundedResponse, self.budget)  # type: ignore[assignment]  # only called
            return made

        return super().do_open(connection, req, **http_conn_args)


@cache
def _tls() -> ssl.SSLContext:
    """The certificates of the system, read once in a process: that takes 20 ms, and a server asks its node often."""
    return ssl.create_default_context()


class Fetcher:
    """Sends requests to one server, one at a time."""

    def __init__(self, policy: RetryPolicy, note: Callable[[str], None] = lambda _: None) -> None:
        self._policy = policy
        self._note = note
        self._next = 0.0
        self.requests = 0
        # Not build_opener, which also opens files and FTP.
        self._opener = OpenerDirector()
        self._handler = _Handler(context=_tls())
        for handler in (ProxyHandler(), self._handler, HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    def get(self, url: str, limit: int, accept: str = "application/json", data: bytes | None = None) -> bytes:
        """The body of the answer, at most ``limit`` bytes; ``data`` is JSON to POST, by default it is a GET.

        Raises NotFound, TooLarge, TooSlow or FetchError.
        """
        delay = self._policy.delay
        for left in range(self._policy.tries - 1, -1, -1):
            if self.requests >= MAX_REQUESTS:
                raise FetchError(url, f"over {MAX_REQUESTS:,} requests in one run")
            with waiting():
                time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + 1 / self._policy.rate
            self.requests += 1
            try:
                with waiting():
                    return self._follow_redirects(url, limit, accept, data)
            except _Busy as busy:
                if not left:
                    tries = f", {self._policy.tries} times" if self._policy.tries > 1 else ""
                    raise FetchError(url, f"{busy}{tries}") from None
                wait = min(max(delay, busy.wait), _LONGEST_WAIT)
                self._note(f"{url}: {busy}; next try in {wait:g} s")
                with waiting():
                    time.sleep(wait)
                delay *= 2
        raise AssertionError

    def _follow_redirects(self, url: str, limit: int, accept: str, data: bytes | None) -> bytes:
        target = url
        budget = _Budget(url, limit, self._policy)
        for _ in range(_REDIRECTS + 1):
            answer = self._request(target, limit, accept, budget, data)
            if isinstance(answer, bytes):
                return answer
            if _origin(answer) != _origin(url):
                raise FetchError(url, f"redirects to {_shown(answer)}; mirror that URL if it is the right one")
            target = answer
        raise FetchError(url, f"over {_REDIRECTS} redirects")

    def _request(self, url: str, limit: int, accept: str, budget: _Budget, data: bytes | None) -> bytes | str:
        """The body of the answer, or where it redirects to."""
        headers = {"Accept": accept, "User-Agent": "signature-directory (sigdir mirror)"}
        if data is not None:
            headers |= {"Content-Type": "application/json", "User-Agent": "signature-directory (sigdir decode)"}
        try:
            self._handler.budget = budget
            request = Request(url, data, headers)  # noqa: S310 - checked_base checks the scheme
            with self._opener.open(request, timeout=budget.seconds()) as answer:
                return _body(url, answer, limit)
        except HTTPError as error:
            with error:  # closes its body
                return _error_answer(url, error, "" if data is None else _beginning(error))
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise FetchError(url, str(error.reason)) from None
            raise _Busy(str(error.reason)) from None
        except TimeoutError:
            raise _Busy(f"no answer in {self._policy.timeout:g} s") from None
        except (OSError, HTTPException) as error:
            raise _Busy(str(error) or type(error).__name__) from None


def _body(url: str, answer: Any, limit: int) -> bytes:
    """Read to the end, at most ``limit`` bytes."""
    size: int | None = answer.length
    body = io.BytesIO()  # getvalue() does not copy
    while size is None or body.tell() < size:
        piece = answer.read1(_PIECE_BYTES)
        if not piece and size is not None:
            raise _Busy("the answer is cut short")
        if not piece:
            break
        body.write(piece)
        if body.tell() > limit:
            raise TooLarge(url, f"an answer of over {limit:,} bytes")
    return body.getvalue()


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # brackets without an address
        raise FetchError(url, f"redirects to {_shown(location)}") from None


def _beginning(error: HTTPError) -> str:
    """The first characters of an error's body; "" where they do not come."""
    with suppress(OSError, HTTPException, FetchError):
        said: bytes = error.read1(_SHOWN)
        return said.decode("latin-1")
    return ""


def _error_answer(url: str, error: HTTPError, said: str) -> str:
    """Where an answer of 300 or more redirects to; ``said`` is the part of its body that a message shows."""
    if error.code in (301, 302, 303, 307, 308) and "Location" in error.headers:
        return _joined(url, error.headers["Location"])
    if error.code == 404:
        raise NotFound(url, "404 Not Found") from None
    reason = f"{error.code} {_shown(str(error.reason))}" + (f": {_shown(said)}" if said else "")
    if error.code == 429 or error.code >= 500:
        wait = error.headers.get("Retry-After", "")
        raise _Busy(reason, float(wait) if re.fullmatch(r"[0-9]{1,6}", wait) else 0.0) from None
    raise FetchError(url, reason) from None
