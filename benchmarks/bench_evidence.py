"""Artifacts with bytecode, compared with parsing their JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import corpus
from benchmarks.measure import Figure, compared
from sigdir.pipeline.formats import json_contracts
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.evidence import Witness

_CONTRACTS = 20_000


def figures(rounds: int, corpora: Path | None) -> list[Figure]:
    """Empty without the real corpora."""
    return [] if corpora is None else [_artifacts(corpora, rounds)]


def _artifacts(corpora: Path, rounds: int) -> Figure:
    """Contracts a second, from lines of JSON to candidates with witness, hashed; one core."""
    path = _lines(corpora)
    assert _read(path) == _CONTRACTS  # warm, and checked
    return compared(
        "import artifacts",
        lambda _: _timed(lambda: _read(path)),
        lambda: _timed(lambda: [json.loads(line) for line in path.read_bytes().splitlines()]),
        rounds,
    )


def _lines(corpora: Path) -> Path:
    """The artifacts that have runtime code, one on each line, repeated."""
    path = corpus.CACHE / "artifacts.jsonl"
    if not path.exists():
        documents = [json.loads(file.read_bytes()) for file in sorted((corpora / "artifacts").glob("*.json"))]
        lines = [json.dumps(document) for document in documents if document["deployedBytecode"] != "0x"]
        path.write_text("".join(lines[number % len(lines)] + "\n" for number in range(_CONTRACTS)))
    return path


def _read(path: Path) -> int:
    """Read the file as an import does; the number of contracts whose bytecode was read."""
    source = Source(str(path), explicit=True)
    compiled = 0
    with source.open(lambda _: None):
        for task in json_contracts.read(source):
            for batch in [task] if isinstance(task, Candidates) else task():
                for rows in canonicalise(batch).accepted.values():
                    if rows.sightings is not None:
                        is_compiled = np.array([one.witness is Witness.COMPILED for one in rows.sightings.bases])
                        compiled += int(np.count_nonzero(is_compiled[rows.sightings.base_of]))
    assert compiled == source.bytecode.compiled > 0
    return source.bytecode.contracts


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
