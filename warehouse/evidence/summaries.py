"""What is said of texts in short, by their ids: for views over many rows, and for queries that choose a few.

Summaries are made a window of ids at a time, 50 ms for 131,072 texts, and the last windows are kept. So a query that
finds two texts reads the row groups of two windows, and one that scans the table reads each row group about once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.collections import Collection
from sigdir.warehouse.evidence.manifest import Manifest
from sigdir.warehouse.evidence.sums import DECLARING, SUMMED, Sums, commonest, sightings_between

Array = npt.NDArray[Any]

_WINDOW_BITS = 17
_KEPT_WINDOWS = 32
"""Of 131,072 texts each: 3 MB, and their declarations."""

FIELDS = ("witness", "kinds", "sources", "contracts", "compiled", "verified", "declaration")
SQL_TYPE = (
    "STRUCT(witness UTINYINT, kinds UTINYINT, sources BIGINT, contracts BIGINT, compiled BIGINT, verified BOOLEAN,"
    " declaration VARCHAR)"
)
"""The type of a summary: as ``Sums`` has the columns, and the commonest declaration."""


@dataclass
class _Window:
    lock: threading.Lock = field(default_factory=threading.Lock)
    columns: list[pa.Array] | None = None


class Summaries:
    """The summaries of one collection's texts in one version. Safe for threads."""

    def __init__(self, manifest: Manifest, collection: Collection) -> None:
        self._manifest, self._collection = manifest, collection
        self._windows: OrderedDict[int, _Window] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, ids: Array) -> pa.StructArray:
        """The summary of each of these texts; raises UnreadableWarehouse."""
        numbers = ids >> _WINDOW_BITS
        parts, places = [], []
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            at = pa.array(ids[here] - (number << _WINDOW_BITS))
            columns = [column.take(at) for column in self._columns(number)]
            parts.append(pa.StructArray.from_arrays(columns, FIELDS))
            places.append(here)
        if len(parts) == 1:
            return parts[0]
        return pa.concat_arrays(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def _columns(self, number: int) -> list[pa.Array]:
        """The columns of a window, a row for each id."""
        with self._lock:
            window = self._windows.setdefault(number, _Window())
            self._windows.move_to_end(number)
            if len(self._windows) > _KEPT_WINDOWS:
                self._windows.popitem(last=False)
        with window.lock:
            if window.columns is None:
                window.columns = self._summed(number)
            return window.columns

    def _summed(self, number: int) -> list[pa.Array]:
        first, last = number << _WINDOW_BITS, (number + 1 << _WINDOW_BITS) - 1
        sums, declared = Sums(np.arange(first, last + 1)), []
        for table in sightings_between(self._manifest, self._collection, first, last, (*SUMMED, "declaration")):
            sums.add(table)
            if table["declaration"].null_count < table.num_rows:
                declared.append(table.select(DECLARING))
        contracts, compiled = sums.contracts()
        numbers = (sums.witness, sums.kinds, sums.sources(), contracts, compiled, sums.verified)
        return [*map(pa.array, numbers), _declarations(declared, first, last)]


def _declarations(tables: list[pa.Table], first: int, last: int) -> pa.Array:
    """The commonest declaration of each text of a window, null for none."""
    if not tables:
        return pa.nulls(last + 1 - first, pa.string())
    ids, texts = commonest(pa.concat_tables(tables))
    at = np.full(last + 1 - first, -1, np.int64)
    at[ids - first] = np.arange(len(ids))
    return texts.take(pa.array(at, mask=at < 0))
