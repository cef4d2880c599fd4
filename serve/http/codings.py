"""Content codings: which one a client gets by its Accept-Encoding (RFC 9110, 12.5.3), and packing a body in it.

zstd comes first where a client takes both: it is faster and smaller. ``docs/decisions/serving.md`` has the figures,
and why there is no brotli. Clients keep a window of at most 8 MiB (RFC 9659); level 1 needs 512 KiB.
"""

from __future__ import annotations

import zlib

import falcon
from backports import zstd

from sigdir.serve.http.negotiate import MAX_CHARACTERS, quality_parameter

ZSTD, GZIP = "zstd", "gzip"

CODINGS = (ZSTD, GZIP)
"""Among codings that a client takes equally well, the first one is used."""

_MIN_BYTES = 1024  # a smaller body fits into one packet as it is
_LEVELS = {ZSTD: (1, 19), GZIP: (1, 9)}


def coding_for(accept_encoding: str) -> str:
    """The coding that a client prefers; empty if it names none of ours with a quality above zero."""
    qualities = {}
    for part in accept_encoding[:MAX_CHARACTERS].split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        qualities[name.lower()] = quality_parameter(parameters)
    best = max(CODINGS, key=lambda coding: qualities.get(coding, 0.0))
    return best if qualities.get(best, 0.0) > 0 else ""


def packed_in(coding: str, body: bytes, *, once: bool = False) -> bytes:
    """The body in a coding. ``once`` is for what is packed once and sent often: small rather than fast."""
    level = _LEVELS[coding][once]
    if coding == ZSTD:
        return zstd.compress(body, level)
    packer = zlib.compressobj(level, wbits=31)
    return packer.compress(body) + packer.flush()


def packed(req: falcon.Request, resp: falcon.Response, body: bytes) -> bytes:
    """The body, packed from 1 KiB on if the client takes a coding; sets Vary and Content-Encoding."""
    if len(body) < _MIN_BYTES:
        return body
    resp.append_header("Vary", "Accept-Encoding")
    coding = coding_for(req.env.get("HTTP_ACCEPT_ENCODING", ""))
    if not coding:
        return body
    resp.set_header("Content-Encoding", coding)
    return packed_in(coding, body)
