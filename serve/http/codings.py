"""Content codings: which one a client gets by its Accept-Encoding (RFC 9110, 12.5.3), and packing a body in it, as JSON or not.

zstd comes first where a client takes both: it is faster and smaller. ``docs/decisions/serving.md`` has the figures,
and why there is no brotli. Clients keep a window of at most 8 MiB (RFC 9659); level 1 needs 512 KiB.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

import falcon
import orjson
from backports import zstd

from sigdir.serve.http.negotiate import JSON, MAX_CHARACTERS, quality_parameter

ZSTD, GZIP = "zstd", "gzip"

CODINGS = (ZSTD, GZIP)
"""Among codings that a client takes equally well, the first one is used."""

_MIN_BYTES = 1024  # a smaller body fits into one packet as it is


def coding_for(accept_encoding: str) -> str:
    """The coding that a client prefers; empty if it names none of ours with a quality above zero."""
    qualities = {}
    for part in accept_encoding[:MAX_CHARACTERS].split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        qualities[name.lower()] = quality_parameter(parameters)
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
