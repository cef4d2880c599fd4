"""The grammar on real data.

The corpora (``../shared/corpora``) are not part of the project; each test is skipped without them.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.grammar import REASONS
from tests.pipeline.support import CORPORA


def corpus(name: str) -> Path:
    """The path of a corpus; skips the test if it does not exist."""
    path = CORPORA / name
    if not path.exists():
        pytest.skip(f"no real data: {path} is not there")
    return path


def openchain() -> list[tuple[bytes, bytes]]:
    """The OpenChain export: declared hash and text."""
    lines = gzip.decompress(corpus("openchain-export.csv.gz").read_bytes()).splitlines()
    pairs = (line.split(b",", 1) for line in lines)
    return [(bytes.fromhex(declared[2:].decode()), text) for declared, text in pairs]


def hash_map(name: str) -> list[tuple[bytes, bytes]]:
    """A JSON object from hash to text: declared hash and text."""
    document = json.loads(gzip.decompress(corpus(name).read_bytes()))
    return [(bytes.fromhex(declared), text.encode()) for declared, text in document.items()]


def result(pairs: list[tuple[bytes, bytes]], declared_kind: int) -> tuple[list[str], list[tuple[str, str]]]:
    """The accepted texts of the collection, and the rejects as (reason, text)."""
    accepted: list[str] = []
    rejected: list[tuple[str, str]] = []
    entries = (Entry(text, line, declared_kind, declared) for line, (declared, text) in enumerate(pairs, 1))
    for batch in pack(entries, 0):
        found = canonicalise(batch)
        for collection, rows in found.accepted.items():
            assert collection.code == declared_kind
            accepted += rows.text.to_pylist()
        reasons = [REASONS[code] for code in found.rejected.reasons.tolist()]
        rejected += zip(reasons, found.rejected.text.to_pylist(), strict=True)
    return accepted, rejected


@pytest.mark.parametrize(
    ("name", "kind", "count"), [("openchain-export.csv.gz", FUNCTIONS, 132_284), ("topic0.json.gz", EVENTS, 19_312)]
)
def test_canonical_corpora_are_accepted_whole(name: str, kind: int, count: int) -> None:
    """Every text of the export and of the topic map is canonical and has its declared hash, to the last byte."""
    pairs = openchain() if kind == FUNCTIONS else hash_map(name)
    accepted, rejected = result(pairs, kind)
    assert (len(pairs), rejected) == (count, [])
    assert accepted == [text.decode() for _, text in pairs]


def test_4byte_map_is_accepted_except_library_functions() -> None:
    """Texts of go-ethereum's map hash to their keys; all rejects have types of libraries or contracts."""
    pairs = hash_map("4byte.json.gz")
    accepted, rejected = result(pairs, FUNCTIONS)
    assert len(pairs) == 121_136
    assert Counter(reason for reason, _ in rejected) == {"library_type": 376, "unknown_type": 1}
    assert [text for reason, text in rejected if reason == "unknown_type"] == [
        "getDArbitraryData(IxIface,bytes32,bytes)"
    ]
    refused = {text for _, text in rejected}
    assert accepted == [text.decode() for _, text in pairs if text.decode() not in refused]
