"""``/metrics``: the counts of all workers and the state of the warehouse as Prometheus' text, by its client library."""

from __future__ import annotations

import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import falcon
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sigdir.serve.core.openapi import package_version
from sigdir.serve.http.codings import packed
from sigdir.serve.metrics.counts import Counts
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.log.history import newest_import
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.files import marked_at
from sigdir.warehouse.table.paths import Paths


class MetricsResource:
    """The counts of all workers, and the state of the warehouse, in Prometheus' text format."""

    def __init__(self, counts: Counts, reader: Reader, paths: Paths) -> None:
        self._counts, self._reader, self._paths = counts, reader, paths
        self._import: dict[str, Any] = {}
        self._looked_up_to = -1

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        view, state = self._reader.current(), CollectorRegistry()
        state.register(_Gauges(view, self._paths, self._last_import(view.snapshot.version)))
        ProcessCollector(registry=state)
        resp.content_type = CONTENT_TYPE_LATEST
        resp.set_header("Cache-Control", "no-store")
        resp.data = packed(req, resp, generate_latest(self._counts.of_all_processes()) + generate_latest(state))

    def _last_import(self, newest: int) -> dict[str, Any]:
        """The summary of the newest import, empty before the first. An entry of the log is read once.

        Where the log cannot be read, it is that of the last scrape.
        """
        with suppress(UnreadableWarehouse):
            self._import = newest_import(self._paths, newest, self._looked_up_to) or self._import
            self._looked_up_to = newest
        return self._import


class _Gauges(Collector):
    def __init__(self, view: View, paths: Paths, last_import: dict[str, Any]) -> None:
        self._view, self._paths, self._import = view, paths, last_import

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("sigdir_build_info", "The program that answers.", labels=["version", "python"])
        build.add_metric([package_version(), platform.python_version()], 1)
        yield build
        yield _gauge(
            "sigdir_warehouse_version", "The newest version; -1 before the first.", self._view.snapshot.version
        )
        yield from self._rows()
        yield _gauge(
            "sigdir_fold_lag_seconds", "Age of the oldest row that is not folded yet; 0 without one.", self._lag()
        )
        with suppress(FileNotFoundError):  # the folder was moved away: /readyz says so
            free = shutil.disk_usage(self._paths.root).free
            yield _gauge("sigdir_disk_free_bytes", "Free bytes of the warehouse's file system.", free)
        folded, pulled = marked_at(self._paths.last_fold), marked_at(self._paths.last_pull)
        if folded is not None:
            yield _gauge("sigdir_last_fold_timestamp_seconds", "When folding last succeeded, since 1970.", folded)
        if pulled is not None:
            lag = max(0.0, time.time() - pulled)
            yield _gauge("sigdir_replica_lag_seconds", "Time since the copy was last as its store is.", lag)
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
        yield _gauge("sigdir_last_import_timestamp_seconds", "When the newest import was committed, since 1970.", at)
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


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, value=value)


def _staged(view: View, collection: Collection) -> list[Segment]:
    return [segment for segment in view.segments[collection] if segment.is_staged]
