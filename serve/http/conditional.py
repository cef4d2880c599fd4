"""ETag and If-None-Match (RFC 9110, 8.8.3 and 13.1.2): the one comparison, made before anything is rendered."""

from __future__ import annotations

import falcon


def weak(tag: str) -> str:
    """The ETag of a state that may be written in more than one way, as packed and unpacked."""
    return f'W/"{tag}"'


def strong(tag: str) -> str:
    """The ETag of these very bytes."""
    return f'"{tag}"'


def is_current(req: falcon.Request, etag: str) -> bool:
    """Whether the client has this state already, by its If-None-Match.

    Weak comparison: ``W/`` does not count, as the RFC wants it for If-None-Match.
    """
    known = req.env.get("HTTP_IF_NONE_MATCH")  # get_header takes half a microsecond more
    if not known:
        return False
    tag = etag.removeprefix("W/")
    return known.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in known.split(","))


def set_validators(resp: falcon.Response, etag: str, cache_control: str = "no-cache") -> None:
    resp.set_header("ETag", etag)
    resp.set_header("Cache-Control", cache_control)


def not_modified(req: falcon.Request, resp: falcon.Response, etag: str, cache_control: str = "no-cache") -> bool:
    """Set the validators; True, and status 304, where the client has this state already."""
    set_validators(resp, etag, cache_control)
    if not is_current(req, etag):
        return False
    resp.status = falcon.HTTP_304
    return True
