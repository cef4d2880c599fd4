"""HTML pages a second beside the same server answering a ready body of the page's size.

Pages of 20,000 selectors are mostly requested once, so this measures rendering. All pages are checked first.
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
from benchmarks.bench_serve import _RANDOM, _get, _wrk, rates, warehouse_of
from benchmarks.measure import Figure
from benchmarks.servers import Server
from sigdir.signatures.collections import SIGNATURES
from sigdir.warehouse.index.build import segment_of
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths

_HASHES = 20_000
_SAMPLES = 50
_WORDS = f"{1:064x}{2:064x}"


def figures(rows: int, rounds: int) -> list[Figure]:
    if shutil.which("wrk") is None:
        print("wrk is not installed; the figures of the pages are left out", file=sys.stderr)
        return []
    warehouse = warehouse_of(rows)
    with tempfile.TemporaryDirectory() as name, servers.ours(warehouse, "waitress") as ours:
        known = _check(ours, warehouse)
        paths = {
            "record pages": _random(known, "/selector/0x", "/"),
            "decoded pages": _random(known, "/decode/?data=0x", _WORDS),
        }
        sizes = {goal: _size(ours, sample[:_SAMPLES]) for goal, (sample, _) in paths.items()}
        folder = Path(name)
        with servers.ceiling(folder, "waitress", tuple(sizes.values())) as ceiling:
            return [
                rates(
                    goal, partial(_wrk, folder, ours, script),
                    partial(_wrk, folder, ceiling, _get(f'"/{sizes[goal]}"')), rounds, ours,
                )
                for goal, (_, script) in paths.items()
            ]  # fmt: skip


def _random(known: list[str], prefix: str, suffix: str) -> tuple[list[str], str]:
    """Paths, and a script that requests them at random."""
    hashes = "{" + ",".join(f'"{value}"' for value in known) + "}"
    paths = [f"{prefix}{value}{suffix}" for value in known]
    return paths, _RANDOM + f"local known = {hashes}\n" + _get(
        f'"{prefix}" .. known[math.random(#known)] .. "{suffix}"'
    )


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
