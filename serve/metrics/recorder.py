"""Counts each answer and writes its line of the log: middleware, so every server has both."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import falcon
import orjson

from sigdir.serve.core.decodings import DECODED
from sigdir.serve.http.routing import ROUTE
from sigdir.serve.http.streams import Stream
from sigdir.serve.metrics.counts import OTHER, Counts

_MAX_PATH = 200
_WITHOUT_BODY = (204, 304)


class AnswerRecorder:
    """To be added before all other middleware: it then sees the answers as the others leave them.

    The time of an answer ends where its body begins. The bytes of a streamed body are those that the server took.
    """

    def __init__(self, counts: Counts, *, log: bool) -> None:
        self._counts, self._log = counts, log

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        req.context.began = time.perf_counter()

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        now = time.perf_counter()
        if req.method == "POST" and getattr(resource, "stores", False):
            self._counts.count_post(req.env.get(ROUTE, OTHER), _outcome(resp))
        for ended in req.env.get(DECODED, ()):
            self._counts.count_decoding(ended)
        end = partial(self._record, req, resp.status_code, now - getattr(req.context, "began", now))
        if req.method == "HEAD" or resp.status_code in _WITHOUT_BODY:
            end(0)
        elif (body := resp.render_body()) is not None or resp.stream is None:
            end(len(body or b""))
        elif hasattr(resp.stream, "read"):  # a file, which the server may send by itself
            end(int(resp.get_header("Content-Length") or 0))
        else:
            resp.stream = Stream(resp.stream, end)

    def _record(self, req: falcon.Request, status: int, seconds: float, size: int) -> None:
        self._counts.count_request(req.method, req.env.get(ROUTE, OTHER), status, seconds, size)
        if self._log:
            _write_line(req, status, seconds, size)


def _outcome(resp: falcon.Response) -> str:
    """What became of a POST. A form is answered by a redirect to the page of what it stored."""
    reason = resp.get_header("Reject-Reason")
    return str(reason or ("stored" if resp.status_code < 400 else resp.status_code))


def _write_line(req: falcon.Request, status: int, seconds: float, size: int) -> None:
    """One JSON line on standard output; no query values, no bodies."""
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "method": req.method,
        "path": req.env.get("PATH_INFO", "")[:_MAX_PATH],
        "status": status,
        "bytes": size,
        "ms": round(1000 * seconds, 2),
    }
    sys.stdout.buffer.write(orjson.dumps(entry) + b"\n")
    sys.stdout.buffer.flush()
