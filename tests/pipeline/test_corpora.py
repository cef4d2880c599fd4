"""The grammar on real data.

The corpora (``../shared/corpora``) are not part of the project; each test is skipped without them.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest

from sigdir.signatures.candidates import Entry, pack
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.signatures.grammar import REASONS
from tests.pipeline.support import canonicalised, corpus


def declared(name: str) -> list[tuple[bytes, bytes]]:
    """The declared hash and the text of each line of a CSV file, or of each member of a JSON object from hash to text."""
    data = gzip.decompress(corpus(name).read_bytes())
    if name.endswith(".csv.gz"):
        pairs = (line.split(b",", 1) for line in data.splitlines())
        return [(bytes.fromhex(digits[2:].decode()), text) for digits, text in pairs]
    return [(bytes.fromhex(digits), text.encode()) for digits, text in json.loads(data).items()]


@pytest.mark.parametrize(
    ("name", "collection", "count", "reasons"),
    [
        ("openchain-export.csv.gz", SIGNATURES, 132_284, {}),
        ("topic0.json.gz", EVENT_SIGNATURES, 19_312, {}),
        ("4byte.json.gz", SIGNATURES, 121_136, {"library_type": 376, "unknown_type": 1}),
    ],
)
def test_canonical_corpora_are_accepted(name: str, collection: Collection, count: int, reasons: dict[str, int]) -> None:
    """Texts are canonical and have their declared hashes, to the last byte, except types of libraries or contracts."""
    pairs = declared(name)
    entries = (Entry(text, line, collection.code, digest) for line, (digest, text) in enumerate(pairs, 1))
    accepted: list[str] = []
    refused: dict[str, str] = {}
    for found in canonicalised(pack(entries, 0)):
        assert found.accepted.keys() <= {collection}
        accepted += [text for rows in found.accepted.values() for text in rows.text.to_pylist()]
        why = [REASONS[code] for code in found.rejected.reasons.tolist()]
        refused |= dict(zip(found.rejected.text.to_pylist(), why, strict=True))
    assert (len(pairs), Counter(refused.values())) == (count, reasons)
    assert accepted == [text.decode() for _, text in pairs if text.decode() not in refused]
