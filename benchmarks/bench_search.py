"""Searches for fragments of text: the scan beside bytes.find over the same bytes, and names by their trigrams."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import corpus
from benchmarks.measure import Figure, sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.search import rows_among, rows_with_text
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.trigrams import Trigrams, build
from sigdir.warehouse.paths import Paths
from sigdir.warehouse.snapshot import read_snapshot

_FRAGMENTS = ["balanceOf", "transfer(", "Uint256[]", "nosuchsignature", "owner", "zzqx", "setFee"]


def figures(corpora: Path | None) -> list[Figure]:
    """Each on one core. bytes.find is case-sensitive and counts no rows."""
    if corpora is None:
        return []
    warehouse = corpus.CACHE / "real"
    if not (warehouse / "table").is_dir():
        sigdir("import", str(corpora), "--warehouse", str(warehouse), "--quiet")
    paths = Paths(warehouse)
    segments = [
        segment_of(paths.cache, SIGNATURES, file.path, file.rows) for file in read_snapshot(paths).files[SIGNATURES]
    ]
    return [_scan(segments), *_names(segments)]


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
        "<= 0.5x", ratio <= 0.5, mine, theirs,
    )  # fmt: skip


_NAMES = 200
_MATCHES = 10_000


def _names(segments: list[Segment]) -> list[Figure]:
    """Names of random rows, with at most 10,000 matches: the rows, and so their exact number, beside the scan."""
    rows = sum(segment.rows for segment in segments)
    began = time.perf_counter()
    indexed = [(segment, build(segment.text, segment.offsets, segment.rows)) for segment in segments]
    building = time.perf_counter() - began
    random = np.random.default_rng(18)
    mine: list[float] = []
    theirs: list[float] = []
    while len(mine) < _NAMES:
        segment = segments[int(random.integers(len(segments)))]
        name = segment.text_at(int(random.integers(segment.rows))).partition("(")[0]
        if any(trigrams.candidates(name) is None for _, trigrams in indexed):
            continue
        expected = _scan_all(segments, name)
        assert _among_all(indexed, name) == expected, name
        if expected <= _MATCHES:
            mine.append(_best(partial(_among_all, indexed, name), 3))
            theirs.append(_best(partial(_scan_all, segments, name), 1))
    median, slowest = sorted(mine)[_NAMES // 2], max(mine[:100])
    size = sum(len(trigrams.lists) + trigrams.starts.nbytes for _, trigrams in indexed) / rows
    scan = sorted(theirs)[_NAMES // 2]
    return [
        Figure(f"a name of at most 10,000 matches in {rows:,} texts by trigrams, median of 200, beside the scan",
               f"{median * 1000:.2f} ms", f"{scan * 1000:.2f} ms", median / scan, "<= 2 ms", median <= 0.002, mine, theirs),
        Figure("the slowest of a hundred of them", f"{slowest * 1000:.2f} ms", "", 0, "<= 5 ms", slowest <= 0.005),
        Figure("trigrams at rest", f"{size:.1f} bytes a row", "", 0, "<= 24 bytes", size <= 24),
        Figure("trigrams built on one core", f"{rows / building / 1e6:.1f} M rows/s", "", 0, ">= 1.5 M rows/s",
               rows / building >= 1.5e6),
    ]  # fmt: skip


def _among_all(indexed: list[tuple[Segment, Trigrams]], fragment: str) -> int:
    count = 0
    for segment, trigrams in indexed:
        candidates = trigrams.candidates(fragment)
        assert candidates is not None
        count += len(rows_among(segment.text, segment.offsets, candidates, fragment))
    return count


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
