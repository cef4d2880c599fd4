"""Lists of texts in JSON, most of them with their hashes.

::

    ["transfer(address,uint256)", "event Paid()"]                       no hashes
    {"a9059cbb": "transfer(address,uint256)"}                           4byte.json and maps of topics
    {"transfer(address,uint256)": "a9059cbb"}                           identifiers, as compilers write them
    {"functions": {"0xa9059cbb": "..."}, "errors": {}, "events": {}}    Foundry's cache
    {"function": ["transfer(address,uint256)"], "event": []}            what OpenChain's import is sent,
    {"function": {"imported": {"f(uint256)": "0x..."}, "duplicated": {}, "invalid": ["g(uint7)"]}, "event": ...}
    {"function": {"0xa9059cbb": [{"name": "transfer(address,uint256)", "filtered": false}]}, "event": {}}

The last two are answers of OpenChain, which stand under ``result``. For each shape there is a function that recognises
it, and one that gives its items. The hash of an item is compared with its text's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

from sigdir.pipeline.formats.hash_lines import entry_with_hash
from sigdir.pipeline.formats.json_reader import members
from sigdir.signatures.abi import encoded, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN, parse_hash
from sigdir.signatures.grammar import is_signature

_SAMPLE = 8


class ListItem(NamedTuple):
    """A text of a list and its hash, as they are written."""

    text: Any
    digits: Any
    """None where the list has no hashes."""
    shown: Any
    """What a reject shows."""
    collection: int = UNKNOWN
    """What the list says beside the hash."""


def entries(items: Iterable[ListItem]) -> Iterator[Entry]:
    """The candidates of a list, numbered from 1."""
    for number, (text, digits, shown, collection) in enumerate(items, 1):
        declared = b"" if digits is None else parse_hash(digits) if isinstance(digits, str) else None
        if declared is None or not isinstance(text, str):
            yield rejected_entry(shown, number)
        else:
            yield entry_with_hash(encoded(text), number, declared, collection)


# Texts alone.


def is_list_of_signatures(value: Any) -> bool:
    """Whether a JSON value is a list whose first items are texts, at least half of them signatures."""
    first = value[:_SAMPLE] if isinstance(value, list) else []
    if not all(isinstance(text, str) for text in first):
        return False
    return 0 < len(first) <= 2 * sum(is_signature(encoded(text)) for text in first)


def text_items(texts: list[Any]) -> Iterator[ListItem]:
    return (ListItem(text, None, text) for text in texts)


# From hash to text.


def is_map(value: Any) -> bool:
    """Whether a JSON value is an object whose first members are hashes with texts. The number of a chain may look
    like a hash, so the texts count too."""
    first = list(islice(members(value), _SAMPLE)) if isinstance(value, dict) else []
    return (
        bool(first) and all(parse_hash(key) for key, _ in first) and not any(holds_objects(text) for _, text in first)
    )


def holds_objects(text: Any) -> bool:
    """Whether it is no text and no list of texts, but an object or a list of objects."""
    return isinstance(text, dict) or (isinstance(text, list) and any(isinstance(item, dict | list) for item in text))


def is_map_of_signatures(value: Any) -> bool:
    """The same for an object inside a document, which may be anything."""
    if not is_map(value):
        return False
    texts = [item.text for item in islice(map_items(value), _SAMPLE)]
    return bool(texts) and all(map(is_text, texts))


def is_text(value: Any) -> bool:
    """Whether a JSON value is written like a signature."""
    return isinstance(value, str) and "(" in value and value.endswith(")")


def map_items(document: dict[str, Any]) -> Iterator[ListItem]:
    """A value may also be a list of texts."""
    for key, value in members(document):
        for text in value if isinstance(value, list) else [value]:
            yield ListItem(text, key, {key: text})


# From text to hash.


def is_identifiers(value: Any) -> bool:
    """Whether a JSON value is an object whose first members are texts with hashes."""
    first = list(islice(members(value), _SAMPLE)) if isinstance(value, dict) else []
    return bool(first) and all(
        is_text(text) and isinstance(digits, str) and parse_hash(digits) for text, digits in first
    )


def identifier_items(document: dict[str, Any]) -> Iterator[ListItem]:
    return (ListItem(text, digits or "", {text: digits}) for text, digits in members(document))  # null is no hash


# Foundry's cache of signatures, ``~/.foundry/cache/signatures``.

_SECTIONS = {"functions": 4, "errors": 4, "events": 32}
"""The length of each section's hashes in bytes. Older caches have no errors. Foundry looks a selector up in both of its
sections and writes the text where it was asked, so they do not tell functions and errors apart."""


def is_foundry_cache(document: Any) -> bool:
    return (
        isinstance(document, dict)
        and document.keys() >= {"functions", "events"}
        and document.keys() <= _SECTIONS.keys()
        and all(isinstance(section, dict) for section in document.values())
    )


def foundry_entries(document: dict[str, Any]) -> Iterator[Entry]:
    """The candidates; an empty text marks a hash that Foundry could not resolve, and is none."""
    items = (
        ListItem(text, key if len(parse_hash(key) or b"") == _SECTIONS[name] else "", {key: text})
        for name, section in members(document)
        for key, text in members(section)
    )
    return (entry for entry in entries(items) if entry.text)


# OpenChain.

_OPENCHAIN = {"function": FUNCTIONS, "event": EVENTS}
_IMPORTED = {"imported", "duplicated", "invalid"}


def is_openchain(value: Any) -> bool:
    """Whether a JSON value is an object of functions and events as OpenChain writes them."""
    if not (isinstance(value, dict) and value and value.keys() <= _OPENCHAIN.keys()):
        return False
    if not any(value.values()):
        return value.keys() == _OPENCHAIN.keys()
    return all(not section or _is_texts(section) or _is_answer(section) for section in value.values())


def _is_texts(section: Any) -> bool:
    if not (isinstance(section, list) and all(isinstance(text, str) for text in section)):
        return False
    return any("(" in text for text in section)


def _is_answer(section: Any) -> bool:
    if not isinstance(section, dict):
        return False
    return section.keys() <= _IMPORTED or all(map(parse_hash, section))


def openchain_items(document: dict[str, Any]) -> Iterator[ListItem]:
    for kind, section in members(document):
        for text, digits in _texts(section):
            yield ListItem(text, digits, {digits: text} if isinstance(digits, str) else text, _OPENCHAIN[kind])


def _texts(section: Any) -> Iterator[tuple[Any, Any]]:
    """Text and hash of each candidate; the hash is None where the section has none."""
    if isinstance(section, list):
        yield from ((text, None) for text in section)
    elif isinstance(section, dict) and section.keys() <= _IMPORTED:
        for _, texts in members(section):
            yield from members(texts) if isinstance(texts, dict) else _texts(texts if isinstance(texts, list) else [])
    elif isinstance(section, dict):
        for digits, found in members(section):
            for item in found if isinstance(found, list) else [found] if found else []:
                yield item.get("name") if isinstance(item, dict) else item, digits
