"""Politely asking another server: so many requests a second, patience with one that is busy, nothing unbounded.

Only http and https, and redirects only to where the question went: a directory must not send us elsewhere.
Proxies are the environment's (``HTTPS_PROXY``). Every answer is read up to a limit of bytes and of time.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
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

_ANSWER_SECONDS = 300.0
_LONGEST_WAIT = 600.0
_PIECE_BYTES = 1 << 20
_REDIRECTS = 5


class FetchError(PipelineError):
    """The other server cannot be asked, or answers with something else than was asked for."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url}: {reason}")


class NotThere(FetchError):
    """The answer is 404."""


class TooLarge(FetchError):
    """The answer is larger than it may be."""


class _Busy(Exception):
    """Worth another try, not before ``wait`` seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def checked_base(url: str) -> str:
    """The URL of a directory without its last slash; raises FetchError where it is none."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError as error:
        raise FetchError(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits:
        raise FetchError(url, "not a URL that begins with http:// or https://")
    if parts.username is not None or parts.query or parts.fragment:
        raise FetchError(f"{parts.scheme}://{parts.hostname}", "a URL without name, query and fragment, please")
    if not re.fullmatch(r"[!-~]+", url):
        raise FetchError(ascii(url), "a URL has no such characters")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _told(text: str) -> str:
    """What a server says, as it can be shown."""
    return ascii(text[:200])[1:-1]


def _origin(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc.lower()


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    location: str


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How to ask: ``rate`` requests a second; ``tries`` before giving up, the second one after ``delay``
    seconds and each one after twice as long; ``timeout`` seconds of silence."""

    rate: float = 2.0
    tries: int = 8
    delay: float = 1.0
    timeout: float = 30.0


class Fetcher:
    """Asks one server, one question at a time."""

    def __init__(self, manners: RetryPolicy, say: Callable[[str], None] = lambda _: None) -> None:
        self._manners = manners
        self._say = say
        self._next = 0.0
        self.requests = 0
        # Not build_opener: that one opens files and FTP as well.
        self._opener = OpenerDirector()
        for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    def get(self, url: str, limit: int, accept: str = "application/json") -> bytes:
        """The body of the answer, at most ``limit`` bytes; raises NotThere, TooLarge or FetchError."""
        delay = self._manners.delay
        for left in range(self._manners.tries - 1, -1, -1):
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + 1 / self._manners.rate
            self.requests += 1
            try:
                return self._ask(url, limit, accept)
            except _Busy as busy:
                if not left:
                    raise FetchError(url, f"{busy}, {self._manners.tries} times") from None
                wait = min(max(delay, busy.wait), _LONGEST_WAIT)
                self._say(f"{url}: {busy}; again in {wait:g} s")
                time.sleep(wait)
                delay *= 2
        raise AssertionError

    def _ask(self, url: str, limit: int, accept: str) -> bytes:
        asked = url
        for _ in range(_REDIRECTS + 1):
            answer = self._ask_once(asked, limit, accept)
            if isinstance(answer, bytes):
                return answer
            if _origin(answer.location) != _origin(url):
                raise FetchError(url, f"redirects to {_told(answer.location)}; name that, if it is meant")
            asked = answer.location
        raise FetchError(url, f"over {_REDIRECTS} redirects")

    def _ask_once(self, url: str, limit: int, accept: str) -> bytes | _Elsewhere:
        request = Request(url, headers={"Accept": accept, "User-Agent": "signature-directory (sigdir mirror)"})  # noqa: S310 - by checked_base
        try:
            with self._opener.open(request, timeout=self._manners.timeout) as answer:
                return _body(url, answer, limit)
        except HTTPError as error:
            with error:  # whose body nobody reads
                return _refused(url, error)
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise FetchError(url, str(error.reason)) from None
            raise _Busy(str(error.reason)) from None
        except TimeoutError:
            raise _Busy(f"no answer in {self._manners.timeout:g} s") from None
        except (OSError, HTTPException) as error:
            raise _Busy(str(error) or type(error).__name__) from None


def _body(url: str, answer: Any, limit: int) -> bytes:
    """Read to the end. Not by ``read``, which a server could keep waiting for ever, byte by byte."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    size: int | None = answer.length
    body = bytearray()
    while size is None or len(body) < size:
        piece = answer.read1(_PIECE_BYTES)
        if not piece and size is not None:
            raise _Busy("the answer is cut short")
        if not piece:
            break
        body += piece
        if len(body) > limit:
            raise TooLarge(url, f"an answer of over {limit:,} bytes")
        if time.monotonic() > deadline:
            raise _Busy(f"no end of the answer in {_ANSWER_SECONDS:g} s")
    return bytes(body)


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:  # brackets that are no address
        raise FetchError(url, f"redirects to {_told(location)}") from None


def _refused(url: str, error: HTTPError) -> _Elsewhere:
    if error.code in (301, 302, 303, 307, 308) and "Location" in error.headers:
        return _Elsewhere(_joined(url, error.headers["Location"]))
    if error.code == 404:
        raise NotThere(url, "404 Not Found") from None
    reason = f"{error.code} {_told(str(error.reason))}"
    if error.code == 429 or error.code >= 500:
        wait = error.headers.get("Retry-After", "")
        raise _Busy(reason, float(wait) if re.fullmatch(r"[0-9]{1,6}", wait) else 0.0) from None
    raise FetchError(url, reason) from None
