"""Panoramix ABI dump: JSON lines of a selector and one ABI entry.

The decompiler names a function that it does not know ``unknown<selector>``: a placeholder. Any
other name that begins so is a name; the selector tells whether it is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.candidates import Candidates, Entry, pack
from pipeline.formats.abi import WITHOUT_SELECTOR, abi_entry
from pipeline.formats.documents import entry_fault, is_json
from pipeline.formats.hashes import parse_hash
from pipeline.formats.json_lines import first_object, lines_of_json
from pipeline.grammar import PLACEHOLDER
from pipeline.source import Source


def looks_like(source: Source) -> bool:
    first = first_object(source) if is_json(source, "{") else None
    return first is not None and "selector" in first and isinstance(first.get("abi"), dict)


def read(source: Source) -> Iterator[Candidates]:
    return pack(_entries(source), source.number)


def _entries(source: Source) -> Iterator[Entry]:
    for number, value in lines_of_json(source):
        if isinstance(value, Entry):
            yield value
            continue
        try:
            item, selector = value["abi"], value["selector"]
            declared = parse_hash(selector)
            kind = item.get("type")
        except (TypeError, KeyError, AttributeError):
            yield entry_fault(value, number)
            continue
        if declared is None:
            yield entry_fault(value, number)
        elif kind not in WITHOUT_SELECTOR:
            entry = abi_entry(item, number, declared)
            if item.get("name") == "unknown" + selector[2:]:
                entry = entry._replace(fault=PLACEHOLDER)
            yield entry
