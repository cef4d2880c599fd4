"""Short summaries of the evidence of texts, by their ids: for views over many rows, and for queries that choose a few.

Summaries are made a window of ids at a time, 30 ms for 131,072 texts, and the last windows are kept. So a query that
finds two texts reads the row groups of two windows, and one that scans the table reads each row group about once.
The reasons of a window's texts are made together, a list for each different one: 131,072 texts have about a hundred.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sigdir.signatures.arrow import numbers, string_lists, values
from sigdir.signatures.collections import Collection
from sigdir.signatures.rank import Summary, noted_reasons, plain_reasons
from sigdir.warehouse.evidence.declarations import DECLARING, commonest
from sigdir.warehouse.evidence.manifest import Manifest
from sigdir.warehouse.evidence.sums import SUMMED, Sums, sightings_between

Array = npt.NDArray[Any]

_WINDOW_BITS = 17
_IN_WINDOW = (1 << _WINDOW_BITS) - 1
_KEPT_WINDOWS = 32
"""Of 131,072 texts each: 4 MB, and their declarations."""
_KEPT_DAYS = 64

FIELDS = ("witness", "kinds", "sources", "contracts", "compiled", "verified", "declaration")
SQL_TYPE = (
    "STRUCT(witness UTINYINT, kinds UTINYINT, sources BIGINT, contracts BIGINT, compiled BIGINT, verified BOOLEAN,"
    " declaration VARCHAR)"
)
"""The type of a summary: as ``Sums`` has the columns, and the commonest declaration."""

RANKED_FIELDS = ("witness", "sources", "contracts", "verified", "declaration", "reasons")
RANKED_SQL_TYPE = "STRUCT(witness UTINYINT, sources BIGINT, contracts BIGINT, verified BOOLEAN, declaration VARCHAR, reasons VARCHAR[])"
"""The type of a summary with reasons."""

_DAY = 86_400_000_000
_FIRST_DAY = datetime(1970, 1, 1, tzinfo=UTC)


class Summaries:
    """The summaries of one collection's texts in one version. Safe for threads."""

    def __init__(self, manifest: Manifest, collection: Collection) -> None:
        self._manifest, self._collection = manifest, collection
        self._windows: OrderedDict[int, _Window] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, ids: Array) -> pa.StructArray:
        """The summary of each of these texts, with FIELDS; raises UnreadableWarehouse."""
        parts = [(here, self._window(number).taken(at, FIELDS)) for number, here, at in _by_window(ids)]
        return _in_order([(here, pa.StructArray.from_arrays(columns, FIELDS)) for here, columns in parts])

    def ranked(
        self, ids: Array, first_seen: Array, standards: pa.ChunkedArray, mined: pa.ChunkedArray
    ) -> pa.StructArray:
        """The summary and the reasons of each of these texts, with RANKED_FIELDS; raises UnreadableWarehouse.

        ``first_seen`` are their times in microseconds, ``standards`` and ``mined`` as in ``rank.noted_reasons``, null for
        "".
        """
        names = RANKED_FIELDS[:-1]
        parts, reasons = [], _Reasons(len(ids))
        for number, here, at in _by_window(ids):
            window = self._window(number)
            parts.append((here, pa.StructArray.from_arrays(window.taken(at, names), names)))
            reasons.set(here, *window.reasons(at, first_seen[here] // _DAY))
        if standards.null_count < len(ids) or mined.null_count < len(ids):
            reasons.note(standards, mined)
        return pa.StructArray.from_arrays([*_in_order(parts).flatten(), reasons.array()], RANKED_FIELDS)

    def _window(self, number: int) -> _Window:
        with self._lock:
            window = self._windows.setdefault(number, _Window())
            self._windows.move_to_end(number)
            if len(self._windows) > _KEPT_WINDOWS:
                self._windows.popitem(last=False)
        with window.lock:
            if not window.columns:
                window.columns = self._summed(number)
            return window

    def _summed(self, number: int) -> dict[str, pa.Array]:
        """The columns of a window, FIELDS, a row for each id."""
        first, last = number << _WINDOW_BITS, (number + 1 << _WINDOW_BITS) - 1
        sums, declared = Sums(np.arange(first, last + 1)), []
        for table in sightings_between(self._manifest, self._collection, first, last, (*SUMMED, "declaration")):
            sums.add(table)
            if table["declaration"].null_count < table.num_rows:
                declared.append(table.select(DECLARING))
        contracts, compiled = sums.contracts()
        counts = (sums.witness, sums.kinds, sums.sources(), contracts, compiled, sums.verified)
        columns = [*map(numbers, counts), _declarations(declared, first, last)]
        return dict(zip(FIELDS, columns, strict=True))


class _Window:
    """The summaries of adjacent ids. ``columns`` are empty until they are made, by who holds ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.columns: dict[str, pa.Array] = {}
        self._codes: Array | None = None
        self._summaries: list[Summary] = []
        """The different ones, as far as they have reasons; text ``i`` has number ``_codes[i]``."""
        self._lists: dict[int, pa.Array] = {}
        """The reasons of ``_summaries``, by the day on which their texts were first seen."""

    def taken(self, at: slice | Array, names: Iterable[str]) -> list[pa.Array]:
        """Columns of some of the texts."""
        if isinstance(at, slice):
            return [self.columns[name][at] for name in names]
        rows = numbers(at)
        return [self.columns[name].take(rows) for name in names]

    def reasons(self, at: slice | Array, days: Array) -> tuple[pa.ListArray, Array]:
        """Lists of reasons, and for some of the texts the number of theirs; they were first seen on these days since 1970."""
        with self.lock:
            if self._codes is None:
                self._codes, self._summaries = _different(self.columns)
            if len(self._lists) > _KEPT_DAYS:
                self._lists.clear()
            first = int(days[0])
            if (days == first).all():
                return self._reasons_of_day(first), self._codes[at]
            found, of_row = np.unique(days, return_inverse=True)
            lists = pa.concat_arrays([self._reasons_of_day(day) for day in found.tolist()])
            return lists, of_row * len(self._summaries) + self._codes[at]

    def _reasons_of_day(self, day: int) -> pa.Array:
        if day not in self._lists:
            time = _FIRST_DAY + timedelta(days=day)
            lists = [plain_reasons(replace(summary, first_seen=time)) for summary in self._summaries]
            self._lists[day] = string_lists(lists)
        return self._lists[day]


class _Reasons:
    """The reasons of some texts as a dictionary: most of them have the same few lists."""

    def __init__(self, rows: int) -> None:
        self._lists: list[pa.ListArray] = []
        self._known = 0
        self._of_row = np.empty(rows, np.int32)

    def set(self, here: Any, lists: pa.ListArray, of_row: Array) -> None:
        """Give the rows ``here`` these lists."""
        self._of_row[here] = of_row + self._known
        self._lists.append(lists)
        self._known += len(lists)

    def note(self, standards: pa.ChunkedArray, mined: pa.ChunkedArray) -> None:
        """Put the reasons of a standard's text, and of one that looks mined, in front of the others."""
        rows = np.flatnonzero(values(standards.is_valid()) | values(mined.is_valid()))
        plain = pa.chunked_array(self._lists).take(numbers(self._of_row[rows])).to_pylist()
        lists = [
            [*noted_reasons(standards[row].as_py() or "", mined[row].as_py() or ""), *reasons]
            for row, reasons in zip(rows.tolist(), plain, strict=True)
        ]
        self.set(rows, string_lists(lists), np.arange(len(rows)))

    def array(self) -> pa.DictionaryArray:
        lists = self._lists[0] if len(self._lists) == 1 else pa.concat_arrays(self._lists)
        return pa.DictionaryArray.from_arrays(numbers(self._of_row), lists)


def _different(columns: Mapping[str, pa.Array]) -> tuple[Array, list[Summary]]:
    """The different summaries of a window, as far as they have reasons, and the number of each text's."""
    names = ("sources", "contracts", "compiled", "verified")
    codes = np.zeros(len(columns["sources"]), np.int64)
    for name in names:
        encoded = columns[name].dictionary_encode()
        joined = numbers(codes * len(encoded.dictionary) + values(encoded.indices)).dictionary_encode()
        codes = values(joined.indices).astype(np.int64)
    firsts = np.empty(int(codes.max()) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]
    different = zip(*(columns[name].take(numbers(firsts)).to_pylist() for name in names), strict=True)
    return codes, [Summary(0, "", **dict(zip(names, counts, strict=True))) for counts in different]


def _by_window(ids: Array) -> Iterator[tuple[int, Any, slice | Array]]:
    """For each window that has some of the ids: its number, the places of these ids, and their rows in the window."""
    windows = ids >> _WINDOW_BITS
    if len(ids) and windows[0] == windows[-1] and (ids[1:] - ids[:-1] == 1).all():  # as in a scan of the table
        first = int(ids[0]) & _IN_WINDOW
        yield int(windows[0]), slice(None), slice(first, first + len(ids))
        return
    for number in sorted(set(windows.tolist())):
        here = np.flatnonzero(windows == number)
        yield number, here, ids[here] & _IN_WINDOW


def _in_order(parts: Sequence[tuple[Any, pa.StructArray]]) -> pa.StructArray:
    """Rows of several windows, in the order of their places."""
    if len(parts) == 1:
        return parts[0][1]
    places = np.argsort(np.concatenate([here for here, _ in parts]))
    return pa.concat_arrays([rows for _, rows in parts]).take(numbers(places))


def _declarations(tables: list[pa.Table], first: int, last: int) -> pa.Array:
    """The commonest declaration of each text of a window, null for none."""
    if not tables:
        return pa.nulls(last + 1 - first, pa.string())
    table = pa.concat_tables(tables)
    ids, rows = commonest(table)
    at, is_declared = np.zeros(last + 1 - first, np.int64), np.zeros(last + 1 - first, np.bool_)
    at[ids - first], is_declared[ids - first] = rows, True
    places = pa.Array.from_buffers(pa.int64(), len(at), [numbers(is_declared).buffers()[1], pa.py_buffer(at)])
    return table["declaration"].combine_chunks().take(places)
