"""The supervisor's own requests, which find out when a worker answers. They are neither logged nor counted."""

from __future__ import annotations

from typing import Any

PATH = "/readyz"
HEADERS = {"User-Agent": "sigdir-supervisor"}


def is_probe(environ: dict[str, Any]) -> bool:
    return environ.get("HTTP_USER_AGENT") == HEADERS["User-Agent"] and environ.get("PATH_INFO") == PATH
