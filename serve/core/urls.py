"""Absolute addresses, as the client has them."""

from __future__ import annotations

import falcon

from sigdir.serve.core.settings import HOST_PATTERN, SCHEMES, Settings


def base_url(req: falcon.Request, settings: Settings) -> str:
    """Scheme and host that links begin with: the public URL of the settings, else the client's request.

    Of a trusted proxy we read X-Forwarded-Proto and X-Forwarded-Host alone. Many proxies pass the client's own
    Forwarded header on, so it is not read. A value that is not a scheme or a host counts as not sent.
    """
    if settings.public_url:
        return settings.public_url
    if not settings.trust_proxy:
        return f"{req.scheme}://{req.netloc}"
    scheme = req.env.get("HTTP_X_FORWARDED_PROTO", "").lower()
    host = req.env.get("HTTP_X_FORWARDED_HOST", "")
    return f"{scheme if scheme in SCHEMES else req.scheme}://{host if HOST_PATTERN.fullmatch(host) else req.netloc}"
