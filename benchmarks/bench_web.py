"""HTML pages a second beside the same server answering a ready body of the page's size.

Pages of random hashes are asked for, of so many that hardly one is asked for twice: what is measured is making
them. The first page and a fragment's results are the same ones again, as kept pages are. Checked before they are timed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks import servers
from benchmarks.bench_serve import _RANDOM, _beside, _get, _wrk, warehouse_of
from benchmarks.measure import Figure
from benchmarks.servers import Server
from warehouse.mapped import Segment, segment_of
from warehouse.paths import Paths
from warehouse.snapshot import read_snapshot

_HASHES = 20_000
_SAMPLES = 50
_WANTED = 0.5


def figures(rows: int, rounds: int, server: str) -> list[Figure]:
    if shutil.which("wrk") is None:
        print("wrk is not installed; the figures of the pages are left out", file=sys.stderr)
        return []
    house = warehouse_of(rows)
    with tempfile.TemporaryDirectory() as name, servers.ours(house, server) as ours:
        known = _check(ours, house)
        fragment = "/search/?q=transfer"
        paths = {
            "home": (["/"], _get('"/"')),
            "results of a fragment": ([fragment], _get(f'"{fragment}"')),
            "results of random selectors": ([f"/search/?q=0x{k}" for k in known], _random(known, "/search/?q=0x", "")),
            "random records": ([f"/selector/0x{k}/" for k in known], _random(known, "/selector/0x", "/")),
        }
        sizes = {title: _size(ours, sample[:_SAMPLES]) for title, (sample, _) in paths.items()}
        folder = Path(name)
        with servers.ceiling(folder, server, tuple(sizes.values())) as ceiling:
            return [
                _beside(
                    f"{server}: page: {title}, {sizes[title] / 1000:.1f} kB", partial(_wrk, folder, ours, script),
                    partial(_wrk, folder, ceiling, _get(f'"/{sizes[title]}"')), _WANTED, rounds,
                )
                for title, (_, script) in paths.items()
            ]  # fmt: skip


def _random(known: list[str], before: str, behind: str) -> str:
    hashes = "{" + ",".join(f'"{value}"' for value in known) + "}"
    return _RANDOM + f"local known = {hashes}\n" + _get(f'"{before}" .. known[math.random(#known)] .. "{behind}"')


def _size(server: Server, paths: list[str]) -> int:
    return round(mean(len(server.body(path)) for path in paths))


def _check(server: Server, house: Path) -> list[str]:
    """Hashes that are there; some are asked for, and their page must have their text."""
    paths = Paths(house)
    (file, *_) = read_snapshot(paths).files["signatures"]
    segment: Segment = segment_of(paths.cache, "signatures", file.path, file.rows)
    picked = np.random.default_rng(5).integers(0, segment.rows, _HASHES).tolist()
    known = [segment.hash[row].tobytes().hex() for row in picked]
    for row, hash in zip(picked[:_SAMPLES], known, strict=False):
        page = server.body(f"/selector/0x{hash}/").decode().replace("<wbr>", "")
        assert segment.text_at(row) in page, f"{segment.text_at(row)} is not on its page"
    return known
