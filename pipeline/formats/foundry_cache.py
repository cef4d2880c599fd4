"""Foundry's cache of signatures, ``~/.foundry/cache/signatures``.

It has three objects, functions, errors and events, each from 0x hash to text. An empty text marks a
hash that Foundry could not resolve; it is not a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.json_document import members
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack

_SECTIONS = {"functions": 4, "errors": 4, "events": 32}
"""The length of each section's hashes in bytes. Older caches have no errors. Foundry looks a selector up in both of its
sections and writes the text where it was asked, so they do not tell functions and errors apart."""


def looks_like(source: Source) -> bool:
    return is_document(source, "{") and _is_cache(source.document())


def _is_cache(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and document.keys() >= {"functions", "events"}
        and document.keys() <= _SECTIONS.keys()
        and all(isinstance(section, dict) for section in document.values())
    )


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not _is_cache(document):
        raise BadInput(source.name, "not a JSON object of functions, errors and events")
    return pack(_entries(document), source.number)


def _entries(document: dict[str, Any]) -> Iterator[Entry]:
    number = 0
    for name, section in members(document):
        size = _SECTIONS[name]
        for key, text in members(section):
            number += 1
            declared = parse_hash(key)
            if declared is None or len(declared) != size or not isinstance(text, str):
                yield rejected_entry({key: text}, number)
            elif text:
                yield entry_with_hash(encoded(text), number, declared)
