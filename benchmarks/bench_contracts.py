"""Contracts and usage: a million deployments imported, what they take at rest, coverage of a million selectors."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import corpus
from benchmarks.measure import Figure, sigdir

_ROWS = 1_000_000
_INTERFACES = 5_000
_CHAINS = (1, 10, 56, 137, 8453)


def figures(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=corpus.CACHE) as name:
        folder = Path(name)
        return [*_deployments(folder, rounds), _coverage(folder, rounds)]


def _deployments(folder: Path, rounds: int) -> list[Figure]:
    chance = np.random.default_rng(1)
    codes = chance.bytes(32 * _INTERFACES)
    of_row = chance.zipf(1.3, _ROWS) % _INTERFACES
    table = pa.table({
        "chain": np.array(_CHAINS)[chance.integers(0, len(_CHAINS), _ROWS)],
        "address": pa.array([chance.bytes(20) for _ in range(_ROWS)], pa.binary()),
        "code_hash": pa.array([codes[32 * n : 32 * n + 32] for n in of_row.tolist()], pa.binary()),
    })  # fmt: skip
    pq.write_table(table, source := folder / "deployments.parquet")
    seconds, size = [], 0
    for number in range(rounds):
        warehouse = folder / f"warehouse-{number}"
        report = json.loads(sigdir("import", str(source), "--warehouse", str(warehouse), "--json").output)
        assert report["deployments"] == _ROWS
        seconds.append(sum(report["stages"].values()))
        size = sum(file.stat().st_size for file in (warehouse / "evidence" / "contracts").iterdir())
    return [Figure("deployments", _ROWS / min(seconds)), Figure("deployment size", size / _ROWS)]


def _coverage(folder: Path, rounds: int) -> Figure:
    chance = np.random.default_rng(2)
    hashes = [chance.bytes(4) for _ in range(_ROWS)]
    pq.write_table(
        pa.table({"selector": pa.array(hashes, pa.binary()), "count": chance.integers(1, 10_000, _ROWS)}),
        source := folder / "selectors.parquet",
    )
    (texts := folder / "texts.txt").write_text("transfer(address,uint256)\n")
    sigdir("import", str(texts), "--warehouse", str(folder / "texts"))
    runs = [
        sigdir("coverage", str(source), "--warehouse", str(folder / "texts"), "--json")
        for _ in range(rounds + 1)  # the first one builds the index
    ][1:]
    assert json.loads(runs[0].output)["rows"] == _ROWS
    return Figure("coverage", min(run.seconds for run in runs))
