"""Foundry's cache of signatures (``~/.foundry/cache/signatures``): functions, errors and events, each
an object from 0x hash to text.

An empty text is Foundry's note that nobody knew the hash. It holds no signature, so it is no candidate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.documents import is_document, pairs
from sigdir.pipeline.formats.hashes import parse_hash
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.collections import EVENTS, FUNCTIONS

_SECTIONS = {"functions": (FUNCTIONS, 4), "errors": (FUNCTIONS, 4), "events": (EVENTS, 32)}
"""The collection of each section, and how many bytes its hashes have. Older caches lack the errors."""


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
    for name, section in pairs(document):
        collection, size = _SECTIONS[name]
        for key, text in pairs(section):
            number += 1
            declared = parse_hash(key)
            if declared is None or len(declared) != size or not isinstance(text, str):
                yield rejected_entry({key: text}, number)
            elif text:
                yield Entry(encoded(text), number, collection, declared)
