"""Absolute addresses, as the client has them."""

from __future__ import annotations

import falcon


def base_url(req: falcon.Request, trust_proxy: bool) -> str:
    """Scheme and host of a request, by the proxy's headers only where the proxy is trusted."""
    if trust_proxy:
        return f"{req.forwarded_scheme}://{req.forwarded_host}"
    return f"{req.scheme}://{req.netloc}"
