"""One JSON line a request on standard output: method, path, status, bytes and time; no query values, no bodies."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

_MAX_PATH = 200


@dataclass(frozen=True, slots=True)
class AccessLog:
    """A WSGI application that logs each request of ``app``; the time ends where a streamed body begins."""

    app: Any

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.perf_counter()
        status, length = "", "0"

        def start(line: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            nonlocal status, length
            status = line[:3]
            length = next((value for name, value in headers if name.lower() == "content-length"), "0")
            return start_response(line, headers, exc_info) if exc_info else start_response(line, headers)

        parts: Iterable[bytes] = self.app(environ, start)
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "method": environ["REQUEST_METHOD"],
            "path": environ.get("PATH_INFO", "")[:_MAX_PATH],
            "status": int(status),
            "bytes": int(length),
            "ms": round((time.perf_counter() - began) * 1000, 2),
        }
        sys.stdout.buffer.write(orjson.dumps(entry) + b"\n")
        sys.stdout.buffer.flush()
        return parts
