"""Searches for fragments of text: the scan beside bytes.find over the same bytes, and names by their grams."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks import corpus, servers
from benchmarks.bench_serve import _beside, _get, _lua_list, _wrk
from benchmarks.measure import Figure, sigdir
from sigdir.serve.pages.ranking import find
from sigdir.serve.pages.search_query import parse_search
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.signatures.columns import as_readonly
from sigdir.signatures.types import split_types
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.grams import build_grams
from sigdir.warehouse.index.parameter_lists import build_lists
from sigdir.warehouse.index.records import render_rows
from sigdir.warehouse.index.search import rows_with_text
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.view import View
from sigdir.warehouse.log.snapshot import Snapshot, read_snapshot
from sigdir.warehouse.publish.batch import FILE_ROWS
from sigdir.warehouse.table.paths import Paths

_FRAGMENTS = ["balanceOf", "transfer(", "Uint256[]", "nosuchsignature", "owner", "zzqx", "setFee"]
_SHORT = ["e", "Z", "of", "ab", "_1", "$"]


def figures(rows: int, rounds: int, corpora: Path | None) -> list[Figure]:
    """Each on one core, but for those over HTTP. bytes.find is case-sensitive and counts no rows."""
    if corpora is None:
        return []
    warehouse, segments = _real(corpora)
    many = _segments_of(segments, rows)
    found = [_scan(segments), *_names(many), *_structure(many)]
    return [*found, *_over_http(warehouse, segments, rounds)]


def large(rows: int, corpora: Path | None) -> list[Figure]:
    """Names in ten times the rows beside the rows, on one core. They may take twice what is wanted of the rows."""
    if corpora is None:
        return []
    _, segments = _real(corpora)
    little = _timed_names(_indexed(_segments_of(segments, rows)))
    many = _timed_names(_indexed(_segments_of(segments, 10 * rows)))
    about = f"in {10 * rows:,} texts, its page and count, beside {rows:,}"
    median, slowest = many.median / little.median, many.slowest / little.slowest
    return [
        Figure(f"a name of at most 10,000 matches {about}, median of 200", f"{many.median * 1000:.2f} ms",
               f"{little.median * 1000:.2f} ms", median, "<= 4 ms", many.median <= 0.004),
        Figure(f"the slowest of a hundred of them {about}", f"{many.slowest * 1000:.2f} ms",
               f"{little.slowest * 1000:.2f} ms", slowest, "<= 10 ms", many.slowest <= 0.01),
    ]  # fmt: skip


def _real(corpora: Path) -> tuple[Path, list[Segment]]:
    """A warehouse of the real corpora, and the segments of its functions."""
    warehouse = corpus.CACHE / "real"
    if not (warehouse / "table").is_dir():
        sigdir("import", str(corpora), "--warehouse", str(warehouse), "--quiet")
    paths = Paths(warehouse)
    files = read_snapshot(paths).files[SIGNATURES]
    return warehouse, [segment_of(paths, file) for file in files]


def _scan(segments: list[Segment]) -> Figure:
    text = b"".join(segment.text.tobytes() for segment in segments)
    rows = sum(segment.rows for segment in segments)
    mine, theirs = [], []
    for fragment in _FRAGMENTS:
        needle = fragment.lower()
        expected = sum(
            needle in segment.text_at(row).lower() for segment in segments for row in range(0, segment.rows, 97)
        )
        found = sum(int((piece % 97 == 0).sum()) for segment in segments for piece in _scanned(segment, fragment))
        assert found == expected, f"{fragment}: {found} rows, not {expected}"
        mine.append(_best(partial(_scan_all, segments, fragment)))
        theirs.append(_best(partial(_find_all, text, fragment.encode())))
    ratio = sum(mine) / sum(theirs)
    return Figure(
        f"{len(_FRAGMENTS)} fragments in {rows:,} real texts scanned, one core, beside bytes.find",
        f"{sum(mine) / len(mine) * 1000:.2f} ms", f"{sum(theirs) / len(theirs) * 1000:.2f} ms", ratio,
        "<= 0.5x", ratio <= 0.5,
    )  # fmt: skip


_BY_STRUCTURE = "(address,uint256,*)"


def _structure(segments: list[Segment]) -> list[Figure]:
    """A search by parameters: its first page and exact count; how fast its index is built, and what it takes."""
    rows = sum(segment.rows for segment in segments)
    build_lists(segments[0].text, segments[0].offsets, 1)  # compiles
    began = time.perf_counter()
    built = [replace(one, lists=build_lists(one.text, one.offsets, one.rows)) for one in segments]
    seconds = time.perf_counter() - began
    size = sum(
        array.nbytes
        for s in built
        if s.lists
        for array in (s.lists.text, s.lists.offsets, s.lists.starts, s.lists.rows)
    )
    view = View(Snapshot(), {SIGNATURES: tuple(built), EVENT_SIGNATURES: ()}, "", b"")
    query = parse_search(_BY_STRUCTURE)
    count = find(view, SIGNATURES, query, 0, 20).count
    expected = sum(
        ",".join(split_types(segment.text_at(row).partition("(")[2][:-1])[:2]) == "address,uint256"
        for segment in segments for row in range(0, segment.rows, 9973)
    )  # fmt: skip
    found = sum(int((s.with_shape(query.terms.shape) % 9973 == 0).sum()) for s in built if query.terms)
    assert found == expected, f"{found} rows, not {expected}"
    best = _best(lambda: find(view, SIGNATURES, query, 0, 20))
    return [
        Figure(f"{_BY_STRUCTURE} in {rows:,} texts, its page and count of {count:,}", f"{best * 1000:.1f} ms", "20 ms",
               best / 0.02, "<= 1x", best <= 0.02),
        Figure("dictionary of parameter lists at rest", f"{size / rows:.1f} bytes a row", "", 0.0, "<= 8 bytes", size <= 8 * rows),
        Figure("dictionary of parameter lists built on one core", f"{rows / seconds / 1e6:.1f} M rows/s", "", 0.0,
               ">= 1.5 M rows/s", rows / seconds >= 1.5e6),
    ]  # fmt: skip


_NAMES = 200
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


class _Names(NamedTuple):
    """Seconds for names of at most 10,000 matches, with a page and the exact number; ``scan`` is that of the scan."""

    median: float
    slowest: float
    """Of a hundred."""
    scan: float


def _indexed(segments: list[Segment]) -> list[Segment]:
    return [replace(each, grams=build_grams(each.text, each.offsets, each.rows)) for each in segments]


def _has_list(segment: Segment, name: str) -> bool:
    return segment.grams is not None and segment.grams.candidates(name) is not None


def _timed_names(indexed: list[Segment]) -> _Names:
    """Names of random rows. One in ten is checked beside the scan."""
    random = np.random.default_rng(18)
    mine: list[float] = []
    scans: list[float] = []
    while len(mine) < _NAMES:
        segment = indexed[int(random.integers(len(indexed)))]
        name = segment.text_at(int(random.integers(segment.rows))).partition("(")[0]
        if not all(_has_list(each, name) for each in indexed):
            continue
        found = _page(indexed, name)
        if found > _MATCHES:
            continue
        if len(mine) % 10 == 0:
            assert found == _scan_all(indexed, name), name
            scans.append(_best(partial(_scan_all, indexed, name), 1))
        mine.append(_best(partial(_page, indexed, name), 3))
    return _Names(sorted(mine)[_NAMES // 2], max(mine[:100]), sorted(scans)[len(scans) // 2])


def _names(segments: list[Segment]) -> list[Figure]:
    """Names beside the scan, one or two letters, and what the grams take."""
    rows = sum(segment.rows for segment in segments)
    build_grams(segments[0].text, segments[0].offsets, 1)
    began = time.perf_counter()
    indexed = _indexed(segments)
    building = time.perf_counter() - began
    names = _timed_names(indexed)
    size = sum(each.grams.lists.nbytes + each.grams.starts.nbytes for each in indexed if each.grams) / rows
    return [
        Figure(f"a name of at most 10,000 matches in {rows:,} texts, its page and count, median of 200, beside the scan",
               f"{names.median * 1000:.2f} ms", f"{names.scan * 1000:.2f} ms", names.median / names.scan, "<= 2 ms",
               names.median <= 0.002),
        Figure(f"the slowest of a hundred of them in {rows:,} texts", f"{names.slowest * 1000:.2f} ms", "", 0, "<= 5 ms",
               names.slowest <= 0.005),
        _short(indexed, rows),
        Figure("4-grams at rest", f"{size:.1f} bytes a row", "", 0, "<= 24 bytes", size <= 24),
        Figure("4-grams built on one core", f"{rows / building / 1e6:.1f} M rows/s", "", 0, ">= 1.5 M rows/s",
               rows / building >= 1.5e6),
    ]  # fmt: skip


def _short(indexed: list[Segment], rows: int) -> Figure:
    """One or two letters, where the index is there and where it is not."""
    mine, theirs = [], []
    scanned = [replace(each, grams=None) for each in indexed]
    for fragment in _SHORT:
        found = _page(indexed, fragment)
        mine.append(_best(partial(_page, indexed, fragment), 3))
        assert found == _page(scanned, fragment)
        theirs.append(_best(partial(_page, scanned, fragment), 3))
    ratio = sum(mine) / sum(theirs)
    return Figure(
        f"one or two letters in {rows:,} texts, beside the scan", f"{sum(mine) / len(mine) * 1000:.1f} ms",
        f"{sum(theirs) / len(theirs) * 1000:.1f} ms", ratio, "<= 1.1x", ratio <= 1.1,
    )  # fmt: skip


def _page(indexed: list[Segment], fragment: str) -> int:
    """Find all rows, render the newest page; how many there are."""
    found = [segment.with_text(fragment) for segment in indexed]
    wanted = _PAGE
    for segment, rows in zip(reversed(indexed), reversed(found), strict=True):
        if wanted and len(rows):
            render_rows(segment, np.ascontiguousarray(rows[::-1][:wanted]))
            wanted -= min(wanted, len(rows))
    return sum(map(len, found))


_HTTP = "/signature-database/v1/search?query=*"


def _over_http(warehouse: Path, segments: list[Segment], rounds: int) -> Iterator[Figure]:
    """OpenChain's search: Sourcify's pattern, and 2,000 names, which are not all in the cache of pages."""
    if shutil.which("wrk") is None:
        return
    random = np.random.default_rng(7)
    [*names] = {
        segment.text_at(int(random.integers(segment.rows))).partition("(")[0]
        for segment in segments
        for _ in range(2000)
    }
    scripts = {
        "texts with balanceOf": _get(f'"{_HTTP}balanceOf*"'),
        f"texts with one of {len(names):,} names": f"local names = {_lua_list(names)}\n"
        + _get(f'"{_HTTP}" .. names[math.random(#names)] .. "*"'),
    }
    with tempfile.TemporaryDirectory() as folder, servers.ours(warehouse, "waitress") as ours:
        found = ours.json(f"{_HTTP}balanceOf*")["result"]["function"]
        assert all("balanceOf" in each["name"] for texts in found.values() for each in texts)
        assert found
        size = len(ours.body(f"{_HTTP}balanceOf*"))
        small = int(np.mean([len(ours.body(f"{_HTTP}{name}*")) for name in names[:100]]))
        with servers.ceiling(Path(folder), "waitress", (size, small)) as ceiling:
            for (title, script), length in zip(scripts.items(), (size, small), strict=True):
                mine = partial(_wrk, Path(folder), ours, script)
                static = partial(_wrk, Path(folder), ceiling, _get(f'"/{length}"'))
                yield _beside(
                    f"waitress: OpenChain's search of the real texts for {title}", mine, static, 0.5, rounds, ours
                )


def _scanned(segment: Segment, fragment: str) -> list[np.ndarray]:
    return list(rows_with_text(segment.text, segment.offsets, segment.rows, fragment))


def _best(work: Callable[[], object], times: int = 15) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def _scan_all(segments: list[Segment], fragment: str) -> int:
    return sum(len(piece) for segment in segments for piece in _scanned(segment, fragment))


def _find_all(text: bytes, needle: bytes) -> int:
    count, at = 0, text.find(needle)
    while at >= 0:
        count += 1
        at = text.find(needle, at + len(needle))
    return count
