"""HttpError, and the one mapping of errors to statuses.

Whether a request gets JSON or HTML, by the rules of 4byte.directory's API, and in which content coding.

The coding goes by Accept-Encoding (RFC 9110, 12.5.3). zstd comes first where a client takes both: it is faster and
smaller. ``docs/decisions/serving.md`` has the figures, and why there is no brotli. Clients keep a window of at most 8
MiB (RFC 9659); level 1 needs 512 KiB.
"""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import falcon
import orjson
from backports import zstd

from sigdir.signatures.decode_input import BadInput
from sigdir.warehouse.index.view import this_takes_long
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


def unsupported(content_type: str) -> HttpError:
    """A 415: the route reads no bodies of this type."""
    return detail(415, f'Unsupported media type "{content_type}" in request.')


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


JSON, HTML, NDJSON = "application/json", "text/html", "application/x-ndjson"


MAX_CHARACTERS = 1000
"""Of Accept and Accept-Encoding; what follows is not read. 60,000 commas took 0.1 s. Browsers send 200."""


def representation(accept: str, format: str) -> str:
    """JSON or HTML; raises HttpError, 404 for an unknown ``format`` and 406 for an ``Accept`` of neither.

    ``format=json`` rules out HTML. ``format=api`` gives HTML to a client that prefers it, and JSON to all others.
    """
    if format not in ("", "json", "api"):
        raise not_found()
    json_quality, html_quality = _quality(accept, JSON), _quality(accept, HTML)
    if format == "json":
        html_quality = 0.0
    elif format == "api" and html_quality <= json_quality:
        return JSON
    if json_quality <= 0 and html_quality <= 0:
        raise detail(406, "Could not satisfy the request Accept header.")
    return HTML if html_quality > json_quality else JSON


def is_list_wanted(accept: str, format: str) -> bool:
    """Whether an answer of lines shall be one JSON list; raises HttpError, 404 for an unknown ``format``.

    ``format`` decides, ``json`` or ``ndjson``; without it an ``Accept`` that prefers JSON to lines.
    """
    if format not in ("", "json", "ndjson"):
        raise not_found()
    return format == "json" or (not format and _quality(accept, JSON) > _quality(accept, NDJSON))


_CLOSENESS = {kind: {"*": 0, "*/*": 0, kind.partition("/")[0] + "/*": 1, kind: 2} for kind in (JSON, HTML, NDJSON)}
"""How exactly an Accept names each type of ours."""


def _quality(accept: str, kind: str) -> float:
    """The quality of a type (RFC 9110, 12.5.1), plus up to 2e-6 for how exactly Accept names it."""
    best, closeness_of = (-1, 0.0), _CLOSENESS[kind]
    for name, quality in _qualities(accept or "*/*"):
        closeness = closeness_of.get(name, -1)
        if closeness > best[0]:
            best = (closeness, quality)
    # At equal quality the exact name wins: a browser names text/html and takes anything else as */*.
    return best[1] + best[0] * 1e-6 if best[0] >= 0 and best[1] > 0 else 0.0


def _qualities(header: str) -> Iterator[tuple[str, float]]:
    """The names of a header in lower case, each with its quality."""
    for part in header[:MAX_CHARACTERS].split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        yield name.lower(), quality_parameter(parameters)


def quality_parameter(parameters: list[str]) -> float:
    """The value of ``q`` among the parameters of a type or coding, from 0 to 1; 1 without one, 0 for no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


# Content codings.

ZSTD, GZIP = "zstd", "gzip"

CODINGS = (ZSTD, GZIP)
"""Among codings that a client takes equally well, the first one is used."""

_MIN_BYTES = 1024  # a smaller body fits into one packet as it is
_SHORT_BYTES = 1 << 16  # to pack these takes up to 150 us


def coding_for(accept_encoding: str) -> str:
    """The coding that a client prefers; empty if it names none of ours with a quality above zero."""
    qualities = dict(_qualities(accept_encoding))
    best = max(CODINGS, key=lambda coding: qualities.get(coding, 0.0))
    return best if qualities.get(best, 0.0) > 0 else ""


def packed_in(coding: str, body: bytes) -> bytes:
    """The body in a coding, by the fastest level."""
    if coding == ZSTD:
        return zstd.compress(body, 1)
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(body) + packer.flush()


def packed(
    req: falcon.Request, resp: falcon.Response, body: bytes, pack: Callable[[str, bytes], bytes] = packed_in
) -> bytes:
    """The body, packed from 1 KiB on if the client takes a coding; sets Vary and Content-Encoding."""
    if len(body) < _MIN_BYTES:
        return body
    resp.append_header("Vary", "Accept-Encoding")
    coding = coding_for(req.env.get("HTTP_ACCEPT_ENCODING", ""))
    if not coding:
        return body
    if len(body) > _SHORT_BYTES:
        this_takes_long()
    resp.set_header("Content-Encoding", coding)
    return pack(coding, body)


_OPTIONS = orjson.OPT_NON_STR_KEYS  # collections are keys


def json_bytes(value: Any, *, indent: bool = False) -> bytes:
    try:
        return orjson.dumps(value, option=_OPTIONS | orjson.OPT_INDENT_2 if indent else _OPTIONS)
    except TypeError:  # half of a surrogate pair, which a client's JSON may have and UTF-8 may not: escape it
        return json.dumps(value, indent=2 if indent else None).encode()


def send_json(req: falcon.Request, resp: falcon.Response, body: bytes) -> None:
    """Answer with JSON that is dumped already."""
    resp.content_type = JSON
    resp.data = packed(req, resp, body)
