"""Whether a request gets JSON or HTML, by the rules of 4byte.directory's API, and whether the body is gzipped.

Headers that are read at every request come from the environment: get_header takes half a microsecond more.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import falcon

from sigdir.serve.http.errors import detail, not_found

JSON, HTML, NDJSON = "application/json", "text/html", "application/x-ndjson"

_GZIP_FROM_BYTES = 1024


@lru_cache(maxsize=1024)
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


def _quality(accept: str, kind: str) -> float:
    """The quality of a type (RFC 9110, 12.5.1), plus up to 2e-6 for how exactly Accept names it."""
    best = (-1, 0.0)
    for part in (accept or "*/*").split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        closeness = {kind: 2, kind.split("/", maxsplit=1)[0] + "/*": 1, "*/*": 0, "*": 0}.get(name.lower(), -1)
        if closeness > best[0]:
            best = (closeness, _q(parameters))
    # At equal quality the exact name wins: a browser names text/html and takes anything else as */*.
    return best[1] + best[0] * 1e-6 if best[0] >= 0 and best[1] > 0 else 0.0


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


@lru_cache(maxsize=256)
def takes_gzip(accept_encoding: str) -> bool:
    """Whether Accept-Encoding names gzip with a quality above zero."""
    for part in accept_encoding.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name.lower() == "gzip":
            return _q(parameters) > 0
    return False


def packed(req: falcon.Request, resp: falcon.Response, body: bytes) -> bytes:
    """The body, gzipped from 1 KiB on if the client accepts gzip; sets Vary and Content-Encoding."""
    if len(body) < _GZIP_FROM_BYTES:
        return body
    resp.append_header("Vary", "Accept-Encoding")
    if not takes_gzip(req.env.get("HTTP_ACCEPT_ENCODING", "")):
        return body
    resp.set_header("Content-Encoding", "gzip")
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(body) + packer.flush()
