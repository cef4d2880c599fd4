"""The two kernels on one core: keccak-256 compared with pycryptodome, the grammar with itself one text at a time."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks import corpus
from benchmarks.measure import Figure, machine
from sigdir.pipeline.formats.text import candidate_lines
from sigdir.signatures.grammar import normalise
from sigdir.signatures.grammar_rows import normalise_rows
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import keccak256_rows

_ROWS = 1_000_000
_ORACLE_ROWS = 20_000
_LOOP_ROWS = 200_000


def _columns(path: Any) -> tuple[Any, Any, Any, Any]:
    data = np.fromfile(path, np.uint8)
    starts, ends, _ = candidate_lines(data, 1)
    return data, starts[:_ROWS], ends[:_ROWS], np.zeros(min(_ROWS, len(starts)), np.uint8)


def _best(work: Any, times: int = 5) -> float:
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


def figures() -> list[Figure]:
    canonical = normalise_rows(*_columns(corpus.lines(_ROWS)))
    data, offsets = canonical.data, canonical.offsets
    raw = data.tobytes()
    bounds = offsets.tolist()
    texts = [raw[a:b] for a, b in pairwise(bounds)]

    digests = keccak256_rows(data, offsets)
    assert all(digests[i].tobytes() == keccak256(texts[i]) for i in range(_ORACLE_ROWS)), "the kernel is wrong"
    ours = len(texts) / _best(lambda: keccak256_rows(data, offsets))
    sample = texts[:_LOOP_ROWS]
    loop = len(sample) / _best(lambda: [keccak256(text) for text in sample], 3)
    wanted = 40.0 if machine()["avx512"] else 15.0
    found = [_rates(f"keccak-256, mean {bounds[-1] / len(texts):.0f} bytes, one core", ours, loop, wanted)]

    for name, path in (("canonical lines", corpus.lines(_ROWS)), ("declarations", corpus.declarations(_ROWS))):
        columns = _columns(path)
        result = normalise_rows(*columns)
        _check_grammar(columns, result)
        raw_columns = columns[0].tobytes()
        rows = [raw_columns[a:b] for a, b in zip(columns[1][:2000].tolist(), columns[2][:2000].tolist(), strict=True)]
        fast = len(columns[1]) / _best(lambda c=columns: normalise_rows(*c), 3)
        slow = len(rows) / _best(lambda r=rows: [normalise(text) for text in r], 3)
        found.append(_rates(f"grammar, {name}, one core, beside one text at a time", fast, slow, 1.0))
    return found


def _rates(name: str, ours: float, theirs: float, at_least: float) -> Figure:
    ratio = ours / theirs
    return Figure(
        name, f"{ours / 1e6:.2f} M/s", f"{theirs / 1e6:.3f} M/s", ratio, f">= {at_least:g}x", ratio >= at_least
    )


def _check_grammar(columns: Any, result: Any) -> None:
    data, starts, ends, _ = columns
    for row in range(0, len(starts), max(1, len(starts) // _ORACLE_ROWS)):
        expected = normalise(data[starts[row] : ends[row]].tobytes())
        found = result.data[result.offsets[row] : result.offsets[row + 1]].tobytes().decode()
        assert (found, result.collections[row]) == (expected.text, expected.collection), "the grammar kernel is wrong"
