"""The two kernels on one core: keccak-256 compared with pycryptodome, the grammar checked beside one text at a time."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks import corpus
from benchmarks.measure import Figure
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
    for path in (corpus.lines(_ROWS), corpus.declarations(_ROWS)):
        columns = _columns(path)
        _check_grammar(columns, normalise_rows(*columns))
    return [Figure("keccak", ours / loop, [ours], [loop])]


def _check_grammar(columns: Any, result: Any) -> None:
    data, starts, ends, _ = columns
    for row in range(0, len(starts), max(1, len(starts) // _ORACLE_ROWS)):
        expected = normalise(data[starts[row] : ends[row]].tobytes())
        found = result.data[result.offsets[row] : result.offsets[row + 1]].tobytes().decode()
        assert (found, result.collections[row]) == (expected.text, expected.collection), "the grammar kernel is wrong"
