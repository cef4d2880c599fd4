"""Which of the two representations a request gets, as the contract says; validators; packing; browsers' preflights.

What every request is looked at for is taken from the environment: by get_header it is half a microsecond a look.
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

    ``format=json`` leaves JSON alone; ``format=api`` gives HTML to who prefers it and JSON to others.
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
    """How much a type is wanted: its quality, and among equal ones how closely it is named."""
    best = (-1, 0.0)
    for part in (accept or "*/*").split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        closeness = {kind: 2, kind.split("/", maxsplit=1)[0] + "/*": 1, "*/*": 0, "*": 0}.get(name.lower(), -1)
        if closeness > best[0]:
            best = (closeness, _q(parameters))
    # Closeness decides between types of equal quality; a browser names HTML and takes anything else.
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
    """Whether gzip is named and not ruled out."""
    for part in accept_encoding.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name.lower() == "gzip":
            return _q(parameters) > 0
    return False


def packed(req: falcon.Request, resp: falcon.Response, body: bytes) -> bytes:
    """The body as the request wants it, gzipped or not; sets the headers that say so."""
    if len(body) < _GZIP_FROM_BYTES:
        return body
    resp.append_header("Vary", "Accept-Encoding")
    if not takes_gzip(req.env.get("HTTP_ACCEPT_ENCODING", "")):
        return body
    resp.set_header("Content-Encoding", "gzip")
    packer = zlib.compressobj(1, wbits=31)
    return packer.compress(body) + packer.flush()


def not_modified(req: falcon.Request, resp: falcon.Response, tag: str, keep: str = "no-cache") -> bool:
    """Set the validators; True where the client has this state already."""
    tag = f'"{tag}"'
    resp.set_header("ETag", "W/" + tag)
    resp.set_header("Cache-Control", keep)
    known = req.env.get("HTTP_IF_NONE_MATCH")
    if known and (known.strip() == "*" or tag in (t.strip().removeprefix("W/") for t in known.split(","))):
        resp.status = falcon.HTTP_304
        return True
    return False


def preflight(req: falcon.Request, resp: falcon.Response) -> None:
    """Tell a browser, where it asks, what a page of another origin may send."""
    if req.get_header("Access-Control-Request-Method"):
        resp.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS")
        resp.set_header("Access-Control-Allow-Headers", "Accept, Content-Type, If-None-Match")
        resp.set_header("Access-Control-Max-Age", "86400")
