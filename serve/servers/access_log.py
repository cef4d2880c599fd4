"""One JSON line a request on standard output: method, path, status, bytes and time; no query values, no bodies."""

from __future__ import annotations

import sys
import time
from typing import Any

import orjson

_MAX_PATH = 200


def log_request(environ: dict[str, Any], status: int, nanoseconds: int, size: int) -> None:
    """Write the line of an answer: the time until it began, and the bytes of its body."""
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "method": environ["REQUEST_METHOD"],
        "path": environ.get("PATH_INFO", "")[:_MAX_PATH],
        "status": status,
        "bytes": size,
        "ms": round(nanoseconds / 1e6, 2),
    }
    sys.stdout.buffer.write(orjson.dumps(entry) + b"\n")
    sys.stdout.buffer.flush()
