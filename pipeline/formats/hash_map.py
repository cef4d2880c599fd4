"""One JSON object from hash to text: go-ethereum's 4byte.json and similar files for topics.

A value may also be a list of texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.formats.hashes import collection_of, parse_hash
from sigdir.pipeline.json_document import members
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack


def looks_like(source: Source) -> bool:
    if not is_document(source, "{"):
        return False
    document = source.document()
    return bool(document) and all(parse_hash(key) for key in islice(document, 8))


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not isinstance(document, dict):
        raise BadInput(source.name, "not a JSON object from hash to text")
    return pack(_entries(document), source.number)


def _entries(document: dict[str, Any]) -> Iterator[Entry]:
    number = 0
    for key, value in members(document):
        declared = parse_hash(key)
        for text in value if isinstance(value, list) else [value]:
            number += 1
            if declared is None or not isinstance(text, str):
                yield rejected_entry({key: text}, number)
            else:
                yield Entry(encoded(text), number, collection_of(declared), declared)
