"""Whether a request gets JSON or HTML, by the rules of 4byte.directory's API, and in which content coding.

The coding goes by Accept-Encoding (RFC 9110, 12.5.3). zstd comes first where a client takes both: it is faster and smaller.
``docs/decisions/serving.md`` has the figures, and why there is no brotli. Clients keep a window of at most 8 MiB (RFC 9659);
level 1 needs 512 KiB.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import falcon
import orjson
from backports import zstd

from sigdir.serve.http.errors import detail, not_found
from sigdir.warehouse.index.view import this_takes_long

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
