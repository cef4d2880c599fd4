"""One JSON object from hash to text: go-ethereum's 4byte.json and similar files for topics.

A value may also be a list of texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.formats.hashes import entry_with_hash, parse_hash
from sigdir.pipeline.json_document import members
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack


def looks_like(source: Source) -> bool:
    return is_document(source, "{") and is_map(source.document())


def is_map(value: Any) -> bool:
    """Whether a JSON value is an object whose first members are hashes with texts. The number of a chain may look
    like a hash, so the texts count too."""
    first = list(islice(members(value), 8)) if isinstance(value, dict) else []
    return bool(first) and all(parse_hash(key) for key, _ in first) and not any(_holds_more(text) for _, text in first)


def _holds_more(text: Any) -> bool:
    """Whether it is no text and no list of texts, but an object or a list of objects."""
    return isinstance(text, dict) or (isinstance(text, list) and any(isinstance(item, dict | list) for item in text))


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not isinstance(document, dict):
        raise BadInput(source.name, "not a JSON object from hash to text")
    return pack(entries(document), source.number)


def entries(document: dict[str, Any]) -> Iterator[Entry]:
    """The candidates of a map, numbered from 1."""
    number = 0
    for key, value in members(document):
        declared = parse_hash(key)
        for text in value if isinstance(value, list) else [value]:
            number += 1
            if declared is None or not isinstance(text, str):
                yield rejected_entry({key: text}, number)
            else:
                yield entry_with_hash(encoded(text), number, declared)
