"""The counts of all workers and the state of the warehouse as Prometheus' text, by its client library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sigdir.serve.metrics.counts import Counts
from sigdir.signatures.collections import COLLECTIONS, Collection
from sigdir.warehouse.fold_mark import last_fold
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View
from sigdir.warehouse.paths import Paths

CONTENT_TYPE = CONTENT_TYPE_LATEST


def exposition(counts: Counts, view: View, paths: Paths) -> bytes:
    """The text of one scrape: the sums of all workers' counts, whichever worker makes it."""
    warehouse = CollectorRegistry()
    warehouse.register(_Warehouse(view, paths))
    return generate_latest(counts.of_all_processes()) + generate_latest(warehouse)


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
