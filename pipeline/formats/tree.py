"""Trees of files named by their hash, as ethereum-lists/4bytes and topic0 are.

A file holds a text, or several with `;` between them. Beside the canonical ones such trees have
texts with the names of parameters (``with_parameter_names/``), which are read like any other. What
is read here are lines `name,content`: see ``pipeline.source``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sigdir.pipeline.formats.hashes import collection_of, parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY, GrammarError, normalise
from sigdir.signatures.keccak import keccak256

_SAMPLE_FILES = 8


def looks_like(source: Source) -> bool:
    """Whether at least half of the first files have a text that hashes to their name."""
    if source.leaves is None:
        return False
    lines = [line.partition(b",") for line in source.head.split(b"\n")[:_SAMPLE_FILES] if line]
    right = sum(is_leaf_of(name.decode("latin-1"), content) for name, _, content in lines)
    return 0 < len(lines) <= 2 * right


def is_leaf_of(name: str, content: bytes) -> bool:
    """Whether a file's content has a text that hashes to its name."""
    declared = parse_hash(name)
    return declared is not None and any(_hashes_to(declared, text) for text in _texts(content))


def _hashes_to(declared: bytes, text: bytes) -> bool:
    try:
        signature = normalise(text, collection_of(declared))
    except GrammarError:
        return False
    return keccak256(signature.text.encode()).startswith(declared)


def _texts(content: bytes) -> Iterator[bytes]:
    return (text for part in content.split(b";") if (text := part.strip()))


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    for number, line in source.lines():
        name, comma, content = line.partition(b",")
        declared = parse_hash(name.decode("latin-1"))
        if not comma or declared is None:
            yield Entry(line, number, reject_reason=BAD_ENTRY)
            continue
        said = collection_of(declared)
        for text in _texts(content):
            yield Entry(text, number, said, declared)
