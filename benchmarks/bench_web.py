"""HTML pages a second beside the same server answering a ready body of the page's size.

The first page and a fragment's results are requested again and again, and after a while the pages of 2,000 selectors
are all cached. Pages of 20,000 other selectors are mostly requested once, so those lines measure rendering. All pages
are checked first. The statistics are counted before the measurement starts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks import servers
from benchmarks.bench_serve import _RANDOM, _beside, _get, _wrk, warehouse_of
from benchmarks.measure import Figure
from benchmarks.servers import Server
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths

_KEPT, _HASHES = 2_000, 22_000
_SAMPLES = 50
_WANTED = 0.5
_STATISTICS = "/statistics/"
_WORDS = f"{1:064x}{2:064x}"
_COUNTED_SECONDS = 120


def figures(rows: int, rounds: int, server: str) -> list[Figure]:
    if shutil.which("wrk") is None:
        print("wrk is not installed; the figures of the pages are left out", file=sys.stderr)
        return []
    warehouse = warehouse_of(rows)
    with tempfile.TemporaryDirectory() as name, servers.ours(warehouse, server) as ours:
        known = _check(ours, warehouse)
        fragment = "/search/?q=transfer"
        paths = {
            "home": (["/"], _get('"/"')),
            "results of a fragment": ([fragment], _get(f'"{fragment}"')),
            "results of 2,000 selectors": _random(known[:_KEPT], "/search/?q=0x", ""),
            "records of 2,000 selectors": _random(known[:_KEPT], "/selector/0x", "/"),
            "results of 20,000 selectors": _random(known[_KEPT:], "/search/?q=0x", ""),
            "records of 20,000 selectors": _random(known[_KEPT:], "/selector/0x", "/"),
            "two words decoded, of 20,000 selectors": _random(known[_KEPT:], "/decode/?data=0x", _WORDS),
            "statistics": ([_STATISTICS], _get(f'"{_STATISTICS}"')),
        }
        _count_statistics(ours)
        sizes = {title: _size(ours, sample[:_SAMPLES]) for title, (sample, _) in paths.items()}
        folder = Path(name)
        with servers.ceiling(folder, server, tuple(sizes.values())) as ceiling:
            return [
                _beside(
                    f"{server}: page: {title}", partial(_wrk, folder, ours, script),
                    partial(_wrk, folder, ceiling, _get(f'"/{sizes[title]}"')), _WANTED, rounds, ours,
                )
                for title, (_, script) in paths.items()
            ]  # fmt: skip


def _random(known: list[str], prefix: str, suffix: str) -> tuple[list[str], str]:
    """Paths, and a script that requests them at random."""
    hashes = "{" + ",".join(f'"{value}"' for value in known) + "}"
    paths = [f"{prefix}{value}{suffix}" for value in known]
    return paths, _RANDOM + f"local known = {hashes}\n" + _get(
        f'"{prefix}" .. known[math.random(#known)] .. "{suffix}"'
    )


def _count_statistics(server: Server) -> None:
    """Wait for the statistics, which a separate process counts after the first request for them."""
    deadline = time.monotonic() + _COUNTED_SECONDS
    while b"<figure" not in server.body(_STATISTICS):
        assert time.monotonic() < deadline, "no statistics were counted"
        time.sleep(0.5)


def _size(server: Server, paths: list[str]) -> int:
    return round(mean(len(server.body(path)) for path in paths))


def _check(server: Server, warehouse: Path) -> list[str]:
    """Hashes of existing rows; the pages of some are checked for their text."""
    paths = Paths(warehouse)
    (file, *_) = read_snapshot(paths).files[SIGNATURES]
    segment: Segment = segment_of(paths, file)
    picked = np.random.default_rng(5).integers(0, segment.rows, _HASHES).tolist()
    known = [segment.hash[row].tobytes().hex() for row in picked]
    for row, hash in zip(picked[:_SAMPLES], known, strict=False):
        page = server.body(f"/selector/0x{hash}/").decode().replace("<wbr>", "")
        assert segment.text_at(row) in page, f"{segment.text_at(row)} is not on its page"
    return known
