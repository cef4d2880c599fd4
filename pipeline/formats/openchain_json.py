"""OpenChain's JSON: what its import is sent and answers, and what a look-up or a search answers.

::

    {"function": ["transfer(address,uint256)"], "event": []}
    {"function": {"imported": {"f(uint256)": "0x..."}, "duplicated": {}, "invalid": ["g(uint7)"]}, "event": ...}
    {"function": {"0xa9059cbb": [{"name": "transfer(address,uint256)", "filtered": false}]}, "event": {}}

The answers stand under ``result``. The hash of an answer is compared with its text's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.formats.hashes import parse_hash
from sigdir.pipeline.json_document import members
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import LISTED, LISTED_EVENT

_KINDS = {"function": FUNCTIONS, "event": EVENTS}
_IMPORTED = {"imported", "duplicated", "invalid"}


def is_openchain(value: Any) -> bool:
    """Whether a JSON value is an object of functions and events as OpenChain writes them."""
    if not (isinstance(value, dict) and value and value.keys() <= _KINDS.keys()):
        return False
    if not any(value.values()):
        return value.keys() == _KINDS.keys()
    return all(not section or _is_texts(section) or _is_answer(section) for section in value.values())


def _is_texts(section: Any) -> bool:
    if not (isinstance(section, list) and all(isinstance(text, str) for text in section)):
        return False
    return any("(" in text for text in section)


def _is_answer(section: Any) -> bool:
    if not isinstance(section, dict):
        return False
    return section.keys() <= _IMPORTED or all(map(parse_hash, section))


def entries(value: dict[str, Any]) -> Iterator[Entry]:
    """The candidates, numbered from 1."""
    for number, (kind, text, digits) in enumerate(_texts(value), 1):
        declared = parse_hash(digits) if isinstance(digits, str) else None
        if isinstance(text, str) and (declared is not None or digits is None):
            sighting = LISTED_EVENT if kind == "event" else LISTED
            yield Entry(encoded(text), number, _KINDS[kind], declared or b"", sighting=sighting)
        else:
            yield rejected_entry({digits: text} if isinstance(digits, str) else text, number)


def _texts(value: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Kind, text and hash of each candidate; the hash is None where the document has none."""
    for kind, section in members(value):
        if isinstance(section, list):
            yield from ((kind, text, None) for text in section)
        elif isinstance(section, dict) and section.keys() <= _IMPORTED:
            yield from _imported(kind, section)
        elif isinstance(section, dict):
            for digits, found in members(section):
                for item in found if isinstance(found, list) else [found] if found else []:
                    yield kind, item.get("name") if isinstance(item, dict) else item, digits


def _imported(kind: str, section: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for _, texts in members(section):
        if isinstance(texts, dict):
            yield from ((kind, text, digits) for text, digits in members(texts))
        elif isinstance(texts, list):
            yield from ((kind, text, None) for text in texts)
