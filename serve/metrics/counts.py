"""What the processes of a server count, by prometheus_client; and the middleware that counts answers and writes the log.

Where PROMETHEUS_MULTIPROC_DIR names a folder, each process writes its counts into files there, and a scrape of any of
them adds all up, with those of processes that have ended. `sigdir serve` makes such a folder; the operator of another
server names one.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Any

import falcon
import orjson
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.multiprocess import MultiProcessCollector

from sigdir.serve.core.decodings import DECODED
from sigdir.serve.core.settings import COUNTS_FOLDER
from sigdir.serve.http.routing import ROUTE
from sigdir.serve.http.streams import Stream

OTHER = "other"
"""The method or route of a request that is none of the known ones."""

_METHODS = frozenset(("GET", "HEAD", "POST", "OPTIONS"))
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Counts:
    """The counts of this process. Threads may share one."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "sigdir_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "sigdir_http_request_duration_seconds", "Time until the answer began.", ("method", "route"),
            registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip
        self._bytes = Counter(
            "sigdir_http_response_bytes",
            "Bytes of bodies that were sent.",
            ("method", "route"),
            registry=self._registry,
        )
        lookups = Counter(
            "sigdir_page_cache_lookups",
            "Looks into the caches of rendered pages.",
            ("result",),
            registry=self._registry,
        )
        self._hits, self._misses = lookups.labels("hit"), lookups.labels("miss")
        self._posts = Counter(
            "sigdir_posts", "POSTs that ask to store something.", ("route", "outcome"), registry=self._registry
        )
        self._decodings = Counter(
            "sigdir_decodings", "Inputs that were decoded, by how that ended.", ("outcome",), registry=self._registry
        )
        self._starts = Counter("sigdir_worker_starts", "Workers that were started.", registry=self._registry)

    def count_start(self) -> None:
        """Count this process: what is above the number of workers are restarts."""
        self._starts.inc()

    def count_post(self, route: str, outcome: str) -> None:
        """Count a POST of a resource that stores: ``stored``, a reject reason, or the status in digits."""
        self._posts.labels(route, outcome).inc()

    def count_decoding(self, outcome: str) -> None:
        """Count an input that was decoded, by how that ended (``serve/core/decodings.py``)."""
        self._decodings.labels(outcome).inc()

    def count_request(self, method: str, route: str, status: int, seconds: float, size: int) -> None:
        """Count an answer: its status, the time until it began, and the bytes of its body."""
        method = method if method in _METHODS else OTHER
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).observe(seconds)
        self._bytes.labels(method, route).inc(size)

    def count_cached(self, hit: bool) -> None:
        """Count a look into a cache of pages."""
        (self._hits if hit else self._misses).inc()

    def of_all_processes(self) -> CollectorRegistry:
        """The counts of all processes that share the folder; without one those of this process."""
        if COUNTS_FOLDER not in os.environ:
            return self._registry
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return registry


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
