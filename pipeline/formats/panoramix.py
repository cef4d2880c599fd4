"""Panoramix's ABI dump: JSON lines with a selector and one ABI entry.

The decompiler names an unknown function ``unknown<selector>``: a placeholder. Any other name that begins
with `unknown` is a real name.

An entry has the ``outputs`` of a function where the dump took it from an ABI: it is declared. Where the decompiler
recovered a function, it took the name from a list, and the line counts as listed: its parameters are called
``_param1``, and its mutability is a guess. A line without a ``type`` does not say its kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.json_reader import first_object, first_values, is_json, values_of
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import abi_entry, has_no_selector, listed_entry, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.collections import parse_hash
from sigdir.signatures.grammar import PLACEHOLDER

_SAMPLE, _SHOWN_CHARACTERS = 64, 300


def looks_like(source: Source) -> bool:
    first = first_object(source) if is_json(source) else None
    return first is not None and "selector" in first and isinstance(first.get("abi"), dict)


def entries(source: Source) -> Iterator[Entry]:
    """Raises BadInput, which shows the first object, for objects of something else."""
    found = [value for value in first_values(source, _SAMPLE) if isinstance(value, dict) and value]
    if found and not any("selector" in value or "abi" in value for value in found):
        shown = rejected_entry(found[0], 1).text.decode()[:_SHOWN_CHARACTERS]
        raise BadInput(source.name, f"no JSON lines with selector and abi; the first object is {shown}")
    return entries_of(source.lines())


def entries_of(lines: Iterable[tuple[int, bytes]]) -> Iterator[Entry]:
    """The candidates of numbered lines."""
    for number, value in values_of(lines):
        if isinstance(value, Entry):
            yield value
            continue
        try:
            item, selector = value["abi"], value["selector"]
            declared = parse_hash(selector)
            kind = item.get("type")
        except (TypeError, KeyError, AttributeError):
            yield rejected_entry(value, number)
            continue
        if declared is None:
            yield rejected_entry(value, number)
        elif not has_no_selector(kind):
            entry = (abi_entry if _is_declared(item, kind) else listed_entry)(item, number, declared)
            if item.get("name") == "unknown" + selector[2:]:
                entry = entry._replace(reject_reason=PLACEHOLDER)
            yield entry


def _is_declared(item: dict[str, Any], kind: Any) -> bool:
    """Whether an entry is one of an ABI: events and errors are, and functions with what they return."""
    return kind in ("event", "error") or (kind == "function" and isinstance(item.get("outputs"), list))
