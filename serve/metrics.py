"""What the processes of a server count, by prometheus_client; the middleware that counts answers and writes the log; /metrics.

Where PROMETHEUS_MULTIPROC_DIR names a folder, each process writes its counts into files there, and a scrape of any of
them adds all up, with those of processes that have ended. `sigdir serve` makes such a folder; the operator of another
server names one.
"""

from __future__ import annotations

import os
import platform
import select
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import falcon
import orjson
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from sigdir.serve.core.decodings import DECODED
from sigdir.serve.core.openapi import package_version
from sigdir.serve.core.settings import COUNTS_FOLDER
from sigdir.serve.http.answers import packed
from sigdir.serve.http.bodies import Stream
from sigdir.serve.http.routing import METHODS, ROUTE
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.manifest import newest_import
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import marked_at
from sigdir.warehouse.table.paths import Paths

OTHER = "other"
"""The method or route of a request that is none of the known ones."""

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Counts:
    """The counts of this process. Threads may share one."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "sigdir_http_requests",
            "Requests that were answered.",
            ("method", "route", "status"),
            registry=self._registry,
        )
        self.seconds = Histogram(
            "sigdir_http_request_duration_seconds", "Time until the answer began.", ("method", "route"),
            registry=self._registry, buckets=_SECONDS,
        )  # fmt: skip
        self.bytes = Counter(
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
        self.cache_lookups = {True: lookups.labels("hit"), False: lookups.labels("miss")}
        self.posts = Counter(
            "sigdir_posts", "POSTs that ask to store something.", ("route", "outcome"), registry=self._registry
        )
        """The outcome is ``stored``, a reject reason, or the status in digits."""
        self.decodings = Counter(
            "sigdir_decodings", "Inputs that were decoded, by how that ended.", ("outcome",), registry=self._registry
        )
        self.starts = Counter("sigdir_worker_starts", "Workers that were started.", registry=self._registry)
        self.lost_lines = Counter(
            "sigdir_log_lines_lost", "Lines of the request log that could not be written.", registry=self._registry
        )

    def of_all_processes(self) -> CollectorRegistry:
        """The counts of all processes that share the folder; without one those of this process."""
        if (folder := os.environ.get(COUNTS_FOLDER)) is None:
            return self._registry
        registry = CollectorRegistry()
        registry.register(_CountsInFiles(Path(folder)))
        return registry


@dataclass(frozen=True)
class _CountsInFiles(Collector):
    """The sums of all files of counts. A file that a starting process has just made is still empty: it is left out, and
    prometheus_client's own collector would raise.
    """

    _folder: Path

    def collect(self) -> Iterable[Metric]:
        written = [str(file) for file in self._folder.iterdir() if file.suffix == ".db" and file.stat().st_size]
        merged: Iterable[Metric] = MultiProcessCollector.merge(written)
        return merged


_MAX_PATH = 200
_LOG_MILLISECONDS = 1000
"""How long a line waits for the reader of a pipe that is full, `less` for example."""
_WITHOUT_BODY = (204, 304)


@dataclass
class AnswerRecorder:
    """To be added before all other middleware: it then sees the answers as the others leave them.

    The time of an answer ends where its body begins. The bytes of a streamed body are those that the server took.
    """

    _counts: Counts
    _log: bool
    _wait_ms: int = 0

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        req.context.began = time.perf_counter()

    def process_response(self, req: falcon.Request, resp: falcon.Response, resource: Any, req_succeeded: bool) -> None:
        now = time.perf_counter()
        if req.method == "POST" and getattr(resource, "stores", False):
            self._counts.posts.labels(req.env.get(ROUTE, OTHER), _outcome(resp)).inc()
        if (was_kept := getattr(req.context, "was_kept", None)) is not None:
            self._counts.cache_lookups[was_kept].inc()
        for ended in req.env.get(DECODED, ()):
            self._counts.decodings.labels(ended).inc()
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
        method, route = req.method if req.method in METHODS else OTHER, req.env.get(ROUTE, OTHER)
        self._counts.requests.labels(method, route, status).inc()
        self._counts.seconds.labels(method, route).observe(seconds)
        self._counts.bytes.labels(method, route).inc(size)
        if self._log:
            try:
                _write_line(req, status, seconds, size, self._wait_ms)
                self._wait_ms = _LOG_MILLISECONDS
            except OSError:  # a full disk, a closed pipe, or one that nobody reads: the request has its answer
                self._wait_ms = 0  # until a line is written again
                self._counts.lost_lines.inc()


def _outcome(resp: falcon.Response) -> str:
    """What became of a POST. A form is answered by a redirect to the page of what it stored."""
    reason = resp.get_header("Reject-Reason")
    return str(reason or ("stored" if resp.status_code < 400 else resp.status_code))


def _write_line(req: falcon.Request, status: int, seconds: float, size: int, wait_ms: int) -> None:
    """One JSON line on standard output; no query values, no bodies. Raises OSError, after ``wait_ms`` if nobody reads it.

    A buffer would keep the lines that could not be written, and fail again with each line that comes.
    """
    entry = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "method": req.method,
        "path": req.env.get("PATH_INFO", "")[:_MAX_PATH],
        "status": status,
        "bytes": size,
        "ms": round(1000 * seconds, 2),
    }
    line, output = orjson.dumps(entry) + b"\n", sys.stdout.fileno()
    waiting = select.poll()
    waiting.register(output, select.POLLOUT)
    if not waiting.poll(wait_ms):
        raise OSError("nobody reads the pipe or the terminal")
    if os.write(output, line) < len(line):
        raise OSError("the disk is full: the line is cut")


# /metrics: the counts of all workers and the state of the warehouse as Prometheus' text, by its client library.


class MetricsResource:
    """The counts of all workers, and the state of the warehouse, in Prometheus' text format."""

    def __init__(self, counts: Counts, reader: Reader) -> None:
        self._counts, self._reader = counts, reader
        self._import: dict[str, Any] = {}
        self._looked_up_to = -1

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view, state = self._reader.current(), CollectorRegistry()
        state.register(_Gauges(view, self._reader.paths, self._last_import(view.snapshot.version)))
        ProcessCollector(registry=state)
        resp.content_type = CONTENT_TYPE_LATEST
        resp.set_header("Cache-Control", "no-store")
        resp.data = packed(req, resp, generate_latest(self._counts.of_all_processes()) + generate_latest(state))

    def _last_import(self, newest: int) -> dict[str, Any]:
        """The summary of the newest import, empty before the first. An entry of the log is read once.

        Where the log cannot be read, it is that of the last scrape.
        """
        with suppress(UnreadableWarehouse):
            self._import = newest_import(self._reader.paths, newest, self._looked_up_to) or self._import
            self._looked_up_to = newest
        return self._import


@dataclass(eq=False)
class _Gauges(Collector):
    _view: View
    _paths: Paths
    _import: dict[str, Any]

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("sigdir_build_info", "The program that answers.", labels=["version", "python"])
        build.add_metric([package_version(), platform.python_version()], 1)
        yield build
        version = self._view.snapshot.version
        yield GaugeMetricFamily("sigdir_warehouse_version", "The newest version; -1 before the first.", version)
        yield from self._rows()
        about = "Age of the oldest row that is not folded yet; 0 without one."
        yield GaugeMetricFamily("sigdir_fold_lag_seconds", about, self._lag())
        with suppress(FileNotFoundError):  # the folder was moved away: /readyz says so
            free = shutil.disk_usage(self._paths.root).free
            yield GaugeMetricFamily("sigdir_disk_free_bytes", "Free bytes of the warehouse's file system.", free)
        folded, pulled = marked_at(self._paths.last_fold), marked_at(self._paths.last_pull)
        if folded is not None:
            about = "When folding last succeeded, since 1970."
            yield GaugeMetricFamily("sigdir_last_fold_timestamp_seconds", about, folded)
        if pulled is not None:
            lag = max(0.0, time.time() - pulled)
            yield GaugeMetricFamily("sigdir_replica_lag_seconds", "Time since the copy was last as its store is.", lag)
        yield from self._of_import()

    def _rows(self) -> Iterator[Metric]:
        rows = GaugeMetricFamily("sigdir_rows", "Rows, with the staged ones.", labels=["collection"])
        staged = GaugeMetricFamily("sigdir_staged_rows", "Rows that are not folded yet.", labels=["collection"])
        for collection in COLLECTIONS:
            rows.add_metric([collection], self._view.count(collection))
            staged.add_metric([collection], sum(segment.rows for segment in _staged(self._view, collection)))
        yield from (rows, staged)

    def _of_import(self) -> Iterator[Metric]:
        if not self._import:
            return
        at = self._import["committed_at"].timestamp()
        about = "When the newest import was committed, since 1970."
        yield GaugeMetricFamily("sigdir_last_import_timestamp_seconds", about, at)
        found = GaugeMetricFamily("sigdir_last_import_candidates", "Its candidates.", labels=["outcome"])
        for outcome in ("imported", "duplicate", "rejected"):
            found.add_metric([outcome], self._import["totals"][outcome])
        yield found

    def _lag(self) -> float:
        times = [
            int(segment.created_at[0])
            for collection in COLLECTIONS
            for segment in _staged(self._view, collection)
            if segment.rows
        ]
        return max(0.0, time.time() - min(times) / 1e6) if times else 0.0


def _staged(view: View, collection: Collection) -> list[Segment]:
    return [segment for segment in view.segments[collection] if segment.is_staged]
