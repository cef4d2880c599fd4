"""Hash-named files, as in ethereum-lists/4bytes and topic0: a folder of files named by their text's hash.

A file holds one text, or several separated by `;`. Some files hold texts with parameter names
(``with_parameter_names/``), which are read like any other. The source has one line `name,content`
for each file: see ``hash_named.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sigdir.pipeline.formats.hashes import entry_with_hash, is_hash_of, parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.grammar import BAD_ENTRY

_SAMPLE_FILES = 8


def looks_like(source: Source) -> bool:
    """Whether at least half of the first files have a text that hashes to their name."""
    if source.file_names is None:
        return False
    lines = [line.partition(b",") for line in source.head.split(b"\n")[:_SAMPLE_FILES] if line]
    matching = sum(hashes_to_name(name.decode("latin-1"), content) for name, _, content in lines)
    return 0 < len(lines) <= 2 * matching


def hashes_to_name(name: str, content: bytes) -> bool:
    """Whether one of the texts in a file hashes to its name."""
    declared = parse_hash(name)
    return declared is not None and any(is_hash_of(declared, text) for text in _texts(content))


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
        for text in _texts(content):
            yield entry_with_hash(text, number, declared)
