"""Searches for fragments of text in the real corpora, compared with bytes.find over the same bytes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import corpus
from benchmarks.measure import Figure, sigdir
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.segment import Segment
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
    text = b"".join(segment.text.tobytes() for segment in segments)
    rows = sum(segment.rows for segment in segments)
    mine, theirs = [], []
    for fragment in _FRAGMENTS:
        needle = fragment.lower()
        expected = sum(
            needle in segment.text_at(row).lower() for segment in segments for row in range(0, segment.rows, 97)
        )
        found = sum(int((segment.with_text(fragment) % 97 == 0).sum()) for segment in segments)
        assert found == expected, f"{fragment}: {found} rows, not {expected}"
        mine.append(_best(partial(_search_all, segments, fragment)))
        theirs.append(_best(partial(_find_all, text, fragment.encode())))
    ratio = sum(mine) / sum(theirs)
    return [
        Figure(
            f"{len(_FRAGMENTS)} fragments in {rows:,} real texts, one core, beside bytes.find",
            f"{sum(mine) / len(mine) * 1000:.2f} ms", f"{sum(theirs) / len(theirs) * 1000:.2f} ms", ratio,
            "<= 0.5x", ratio <= 0.5, mine, theirs,
        )
    ]  # fmt: skip


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(15):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def _search_all(segments: list[Segment], fragment: str) -> int:
    return sum(len(segment.with_text(fragment)) for segment in segments)


def _find_all(text: bytes, needle: bytes) -> int:
    count, at = 0, text.find(needle)
    while at >= 0:
        count += 1
        at = text.find(needle, at + len(needle))
    return count
