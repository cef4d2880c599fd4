"""HttpError, and the one mapping of errors to statuses."""

from __future__ import annotations

import errno
from typing import Any

import falcon

from sigdir.signatures.decode_input import BadInput
from sigdir.warehouse.table.errors import WarehouseError

_RETRY_SECONDS = 10


class HttpError(Exception):
    """An answer other than success. ``body`` is its JSON."""

    def __init__(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers = headers or {}


def detail(status: int, text: str, headers: dict[str, str] | None = None) -> HttpError:
    """An error with one sentence."""
    return HttpError(status, {"detail": text}, headers)


def sentence(body: dict[str, Any]) -> str:
    """What an error's body says, without the name of the field at fault."""
    (text, *_) = body.values()
    return text if isinstance(text, str) else " ".join(text)


def field_error(name: str, text: str) -> HttpError:
    """A 400 that names the parameter or field at fault."""
    return HttpError(400, {name: [text]})


def reject(status: int, body: dict[str, Any], reason: str, headers: dict[str, str] | None = None) -> HttpError:
    """A POST that stores nothing: the header Reject-Reason has the reason as one word, for programs."""
    return HttpError(status, body, {"Reject-Reason": reason} | (headers or {}))


def not_found() -> HttpError:
    return detail(404, "Not found.")


def method_not_allowed(method: str, allow: str) -> HttpError:
    return detail(405, f'Method "{method}" not allowed.', {"Allow": allow})


def unavailable(text: str, retry_seconds: int = _RETRY_SECONDS) -> HttpError:
    """A 503 with a Retry-After."""
    return detail(503, text, {"Retry-After": str(retry_seconds)})


def http_error_of(error: Exception) -> HttpError:
    """The answer to an error of any kind.

    A storage error, as of a full disk or a damaged file, is a 503, because it may be mended when the client
    comes again. An unknown error is a 500 that tells the client nothing.
    """
    if isinstance(error, HttpError):
        return error
    if isinstance(error, BadInput):
        return field_error(error.field, error.problem)
    if isinstance(error, falcon.HTTPError):
        status = falcon.http_status_to_code(error.status)
        return detail(status, error.description or error.title or "", dict(error.headers or {}))
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return detail(413, "This request needs more memory than it may have. Send less at once.")
    if isinstance(error, OSError | WarehouseError):
        return unavailable("The directory's storage cannot be used at the moment.")
    return detail(500, "Internal error.")
