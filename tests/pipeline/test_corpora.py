"""The grammar and the keccak kernel on real data.

The corpora (``../shared/corpora``) are not part of the project; each test is skipped without them.
"""

from __future__ import annotations

import gzip
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from sigdir.pipeline.formats import panoramix
from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.grammar import REASONS, GrammarError, normalise
from sigdir.signatures.grammar_rows import normalise_rows
from sigdir.signatures.keccak_rows import keccak256_rows
from tests.pipeline.support import CORPORA, keccak256


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


def test_openchain_export_is_accepted_whole() -> None:
    """Every text of the export is canonical and hashes to its declared hash."""
    pairs = openchain()
    accepted, rejected = result(pairs, FUNCTIONS)
    assert len(pairs) == 132_284
    assert rejected == []
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


def test_topic_map_is_accepted_whole() -> None:
    """Every text of the topic map is canonical and hashes to all 32 bytes of its key."""
    pairs = hash_map("topic0.json.gz")
    accepted, rejected = result(pairs, EVENTS)
    assert len(pairs) == 19_312
    assert rejected == []
    assert accepted == [text.decode() for _, text in pairs]


def panoramix_entries(every: int, most: int) -> list[Entry]:
    """At most ``most`` candidates of the dump, read from one line in ``every``."""
    with lzma.open(corpus("abi_dump.jsonl.xz")) as dump:
        lines: Iterator[tuple[int, bytes]] = islice(enumerate(dump, 1), 0, None, every)
        return list(islice(panoramix.entries_of(lines), most))


@pytest.mark.long
def test_both_executions_of_the_grammar_agree_on_the_dump() -> None:
    """The scalar and the batch grammar give the same result for 20,000 texts of the Panoramix dump."""
    entries = panoramix_entries(every=76, most=20_000)
    assert len(entries) == 20_000
    (batch,) = pack(entries, 0)
    for kinds in (
        np.array([entry.declared_kind for entry in entries], np.uint8),
        np.full(len(entries), UNKNOWN, np.uint8),
    ):
        result = normalise_rows(batch.data, batch.starts, batch.ends, kinds)
        text, bounds = result.data.tobytes(), result.offsets.tolist()
        columns, collections = result.columns.tolist(), result.collections.tolist()
        reasons = [REASONS[code] for code in result.reasons.tolist()]
        assert 0 < reasons.count("") <= len(entries)
        for row, (entry, kind) in enumerate(zip(entries, kinds.tolist(), strict=True)):
            found: tuple[object, ...] = (reasons[row], columns[row])
            expected: tuple[object, ...]
            try:
                signature = normalise(entry.text, kind)
                found += (text[bounds[row] : bounds[row + 1]].decode(), collections[row])
                expected = ("", 0, signature.text, signature.collection)
            except GrammarError as error:
                expected = (error.reason, error.column)
            assert found == expected, entry


def test_kernel_agrees_with_pycryptodome_on_real_texts() -> None:
    """The kernel hashes 100,000 real texts as pycryptodome does."""
    texts = [text for _, text in openchain()][:100_000]
    offsets = np.cumsum([0, *map(len, texts)])
    found = keccak256_rows(np.frombuffer(b"".join(texts), np.uint8), offsets)
    assert len(found) == 100_000
    expected = b"".join(keccak256(text.decode()) for text in texts)
    assert found.tobytes() == expected
