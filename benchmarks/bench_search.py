"""Searches: names by their grams, texts by their parameters, a pattern over HTTP."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import corpus, servers
from benchmarks.bench_serve import _get, _wrk, rates, real_warehouse
from benchmarks.measure import Figure
from sigdir.serve.pages.search import find
from sigdir.serve.pages.search_query import parse_search
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.types import split_types
from sigdir.warehouse.evidence.summaries import COUNTS, LISTED, Summaries, weights
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.grams import build_grams
from sigdir.warehouse.index.parameter_lists import build_lists
from sigdir.warehouse.index.search import rows_with_text
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.template import render_rows
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.publish.batch import FILE_ROWS
from sigdir.warehouse.table.paths import Paths


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    """Each on one core, but for that over HTTP."""
    if corpora is None:
        return []
    warehouse = real_warehouse(corpora)
    many = _segments_of(_real(warehouse), rows)
    return [_names("names", many), _structure(many), *_over_http(warehouse, rounds)]


def large(rows: int, corpora: Path | None) -> list[Figure]:
    """Names in ten times the rows, on one core."""
    return [] if corpora is None else [_names("names 10x", _segments_of(_real(real_warehouse(corpora)), 10 * rows))]


def _real(warehouse: Path) -> list[Segment]:
    """The segments of a warehouse's functions."""
    paths = Paths(warehouse)
    return [segment_of(paths, file) for file in read_snapshot(paths).files[SIGNATURES]]


_BY_STRUCTURE = "(address,uint256,*)"


def _structure(segments: list[Segment]) -> Figure:
    """A search by parameters: its first page and exact count."""
    built = [
        replace(one, lists=build_lists(one.text, one.offsets, one.rows), summaries=_any_summaries(one.rows))
        for one in segments
    ]
    view = View(Snapshot(), {SIGNATURES: tuple(built), EVENT_SIGNATURES: ()}, "", b"")
    query = parse_search(_BY_STRUCTURE)
    expected = sum(
        ",".join(split_types(segment.text_at(row).partition("(")[2][:-1])[:2]) == "address,uint256"
        for segment in segments for row in range(0, segment.rows, 9973)
    )  # fmt: skip
    found = sum(int((s.with_shape(query.terms.shape) % 9973 == 0).sum()) for s in built if query.terms)
    assert found == expected, f"{found} rows, not {expected}"
    return Figure("structure", _best(lambda: find(view, SIGNATURES, query, 0, 20)) * 1000)


def _any_summaries(rows: int) -> Summaries:
    """Counts as a compiler's and a list's texts have them, in no order."""
    counts = np.full(rows, np.array(LISTED, COUNTS))
    random = np.random.default_rng(34)
    declared = random.random(rows) < 0.5
    counts["witness"][declared], counts["contracts"][declared] = 2, random.zipf(1.5, int(declared.sum())) & 0xFFFFF
    return Summaries(counts, np.empty(0, np.int64), pa.nulls(0, pa.large_string()), weights(counts))


_NAMES = 100
_MATCHES = 10_000
_PAGE = 100


def _segments_of(real: list[Segment], rows: int) -> list[Segment]:
    """So many rows with real names, in files as an import writes them."""
    texts = pa.concat_arrays([
        pa.LargeStringArray.from_buffers(s.rows, pa.py_buffer(s.offsets), pa.py_buffer(s.text)) for s in real
    ]).cast(pa.string())  # fmt: skip
    segments: list[Segment] = []
    parts: list[pa.StringArray] = []
    made = 0
    for part in corpus.real_names(texts, rows):
        parts.append(part)
        made += len(part)
        if sum(map(len, parts)) >= FILE_ROWS or made == rows:
            segments.append(_segment(pa.concat_arrays(parts)))
            parts = []
    return segments


def _segment(texts: pa.StringArray) -> Segment:
    rows = len(texts)
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1].astype(np.int64)
    text = np.frombuffer(texts.buffers()[2], np.uint8)
    numbers = as_readonly(np.arange(rows))
    return Segment.of(rows, numbers, numbers, offsets, text, np.zeros((rows, 4), np.uint8), {})


def _indexed(segments: list[Segment]) -> list[Segment]:
    return [replace(each, grams=build_grams(each.text, each.offsets, each.rows)) for each in segments]


def _has_list(segment: Segment, name: str) -> bool:
    return segment.grams is not None and segment.grams.candidates(name) is not None


def _names(goal: str, segments: list[Segment]) -> Figure:
    """The slowest of a hundred names of random rows, of at most 10,000 matches. One in ten is checked beside the scan."""
    indexed = _indexed(segments)
    random = np.random.default_rng(18)
    seconds: list[float] = []
    while len(seconds) < _NAMES:
        segment = indexed[int(random.integers(len(indexed)))]
        name = segment.text_at(int(random.integers(segment.rows))).partition("(")[0]
        if not all(_has_list(each, name) for each in indexed):
            continue
        found = _page(indexed, name)
        if found > _MATCHES:
            continue
        assert len(seconds) % 10 or found == _scanned(indexed, name), name
        seconds.append(_best(partial(_page, indexed, name), 3))
    return Figure(goal, max(seconds) * 1000)


def _page(indexed: list[Segment], fragment: str) -> int:
    """Find all rows, render the newest page; how many there are."""
    found = [segment.with_text(fragment) for segment in indexed]
    wanted = _PAGE
    for segment, rows in zip(reversed(indexed), reversed(found), strict=True):
        if wanted and len(rows):
            render_rows(segment, np.ascontiguousarray(rows[::-1][:wanted]))
            wanted -= min(wanted, len(rows))
    return sum(map(len, found))


_HTTP = "/signature-database/v1/search?query=*balanceOf*"


def _over_http(warehouse: Path, rounds: int) -> Iterator[Figure]:
    """OpenChain's search by Sourcify's pattern."""
    if shutil.which("wrk") is None:
        return
    with tempfile.TemporaryDirectory() as name, servers.ours(warehouse, "waitress") as ours:
        folder, size = Path(name), len(ours.body(_HTTP))
        found = ours.json(_HTTP)["result"]["function"]
        assert all("balanceOf" in each["name"] for texts in found.values() for each in texts)
        assert found
        with servers.ceiling(folder, "waitress", (size,)) as ceiling:
            mine, theirs = (
                partial(_wrk, folder, ours, _get(f'"{_HTTP}"')),
                partial(_wrk, folder, ceiling, _get(f'"/{size}"')),
            )
            yield rates("pattern", mine, theirs, rounds, ours)


def _best(work: Callable[[], object], times: int = 15) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def _scanned(segments: list[Segment], fragment: str) -> int:
    return sum(
        len(piece)
        for segment in segments
        for piece in rows_with_text(segment.text, segment.offsets, segment.rows, fragment)
    )
