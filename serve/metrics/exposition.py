"""The counts of all workers and the state of the warehouse as Prometheus' text, by its client library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sigdir.serve.metrics.counts import (
    BUCKETS,
    FIRST_STATUS,
    HITS,
    MILLISECONDS,
    MISSES,
    ROW,
    SLOT_BYTES,
    STATUSES,
    Counts,
)
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.fold_mark import last_fold
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View
from sigdir.warehouse.paths import Paths

CONTENT_TYPE = CONTENT_TYPE_LATEST

_LE = [*(str(bound / 1000) for bound in MILLISECONDS), "+Inf"]


def exposition(counts: Counts, view: View, paths: Paths) -> bytes:
    """The text of one scrape: the sums of all workers' counts, whichever worker makes it."""
    registry = CollectorRegistry()
    registry.register(_Requests(counts))
    registry.register(_Warehouse(view, paths))
    return generate_latest(registry)


@dataclass(frozen=True, slots=True)
class _Requests(Collector):
    counts: Counts

    def collect(self) -> Iterator[Metric]:
        totals = _totals(self.counts)
        requests = CounterMetricFamily(
            "sigdir_http_requests", "Requests that were answered.", labels=["method", "route", "status"]
        )
        seconds = HistogramMetricFamily(
            "sigdir_http_request_duration_seconds", "Time until the answer began.", labels=["method", "route"]
        )
        sent = CounterMetricFamily(
            "sigdir_http_response_bytes", "Bytes of bodies that were sent.", labels=["method", "route"]
        )
        for method, route, start in self.counts.rows():
            row = totals[start : start + ROW]
            buckets = row[STATUSES : STATUSES + BUCKETS].cumsum().tolist()
            if buckets[-1]:
                for status in row[:STATUSES].nonzero()[0].tolist():
                    requests.add_metric([method, route, str(FIRST_STATUS + status)], int(row[status]))
                seconds.add_metric([method, route], list(zip(_LE, buckets, strict=True)), int(row[-2]) / 1e9)
                sent.add_metric([method, route], int(row[-1]))
        cache = CounterMetricFamily(
            "sigdir_page_cache_lookups", "Looks into the caches of rendered pages.", labels=["result"]
        )
        cache.add_metric(["hit"], int(totals[HITS]))
        cache.add_metric(["miss"], int(totals[MISSES]))
        yield from (requests, seconds, sent, cache)


def _totals(counts: Counts) -> npt.NDArray[np.int64]:
    """A slot with the sums of all slots that have this layout."""
    slots = np.frombuffer(counts.memory, np.int64).reshape(-1, SLOT_BYTES // 8)
    totals: npt.NDArray[np.int64] = slots[slots[:, 0] == counts.layout].sum(axis=0)
    return totals


@dataclass(frozen=True, slots=True)
class _Warehouse(Collector):
    view: View
    paths: Paths

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "sigdir_warehouse_version", "The newest version; -1 before the first.", value=self.view.snapshot.version
        )
        rows = GaugeMetricFamily("sigdir_rows", "Rows, with the staged ones.", labels=["collection"])
        staged = GaugeMetricFamily("sigdir_staged_rows", "Rows that are not folded yet.", labels=["collection"])
        for collection in COLLECTIONS:
            rows.add_metric([collection], self.view.count(collection))
            staged.add_metric([collection], sum(segment.rows for segment in _staged(self.view, collection)))
        yield from (rows, staged)
        yield GaugeMetricFamily(
            "sigdir_fold_lag_seconds", "Age of the oldest row that is not folded yet; 0 without one.", value=self._lag()
        )
        folded = last_fold(self.paths)
        if folded is not None:
            name = "sigdir_last_fold_timestamp_seconds"
            yield GaugeMetricFamily(name, "When folding last succeeded, in seconds since 1970.", value=folded)

    def _lag(self) -> float:
        times = [
            int(segment.created_at[0])
            for collection in COLLECTIONS
            for segment in _staged(self.view, collection)
            if segment.rows
        ]
        return max(0.0, time.time() - min(times) / 1e6) if times else 0.0


def _staged(view: View, collection: Collection) -> list[Segment]:
    return [segment for segment in view.segments[collection] if segment.is_staged]
