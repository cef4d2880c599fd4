"""ABIs: a JSON list of entries, or of declarations in words. ``sigdir.signatures.abi`` reads one entry.

Lists of other things look alike. The tools of language models are `{"type": "function", "name": ...}`, so a list
is an ABI only if an entry has all fields that the specification demands. The ABIs of Starknet and of ICON have these
fields too, but not Ethereum's selectors, so their entries are rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from sigdir.pipeline.formats.human_readable import declaration_entry, is_declaration, structs_of
from sigdir.signatures.abi import abi_entry, has_no_selector, rejected_entry
from sigdir.signatures.candidates import Entry
from sigdir.signatures.evidence import Contract

_SAMPLE = 8
_KINDS = frozenset(["function", "event", "error"])
_FOREIGN_KINDS = frozenset(["struct", "interface", "impl", "l1_handler", "enum", "eventlog"])
_FOREIGN_TYPE = re.compile(r".*::|felt|(?:str|list|dict|Address)\Z|\[\]", re.DOTALL)


def is_abi(value: Any) -> bool:
    """Whether a JSON value is a list of objects or declarations, and one of them is surely an entry of an ABI."""
    if not isinstance(value, list):
        return False
    return all(isinstance(item, dict) or is_declaration(item) for item in value[:_SAMPLE]) and any(map(is_entry, value))


def is_labelled_abi(value: Any) -> bool:
    """The same for a list that the document calls an ABI: it may be empty, and its entries may lack fields."""
    return isinstance(value, list) and (any(map(is_entry, value)) or all(map(_has_fields, value[:_SAMPLE])))


def is_entry(value: Any) -> bool:
    """Whether a JSON value is an entry of an ABI, and can be nothing else."""
    if not isinstance(value, dict):
        return is_declaration(value)
    kind, inputs = value.get("type"), value.get("inputs")
    if has_no_selector(kind):
        return _are_parameters(inputs) or (inputs is None and ("stateMutability" in value or "payable" in value))
    # An old ABI may have no types, but says whether a function is constant.
    is_kind = "constant" in value if kind is None else isinstance(kind, str) and kind in _KINDS
    return is_kind and isinstance(value.get("name"), str) and _are_parameters(inputs)


def _are_parameters(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_parameter, value))


def _has_fields(value: Any) -> bool:
    return isinstance(value, dict) and ("type" in value or "inputs" in value) and "text_signature" not in value


def _is_parameter(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def is_foreign(entry: Any) -> bool:
    """Whether an entry of an ABI is another chain's: a kind or a type that Ethereum does not have."""
    if not isinstance(entry, dict):
        return False
    kind = entry.get("type")
    if isinstance(kind, str) and kind in _FOREIGN_KINDS:
        return True
    for parameters in (entry.get("inputs"), entry.get("outputs")):
        if isinstance(parameters, list):
            for item in parameters:
                if _is_parameter(item) and _is_foreign_type(item["type"]):
                    return True
    return False


@lru_cache(maxsize=4096)
def _is_foreign_type(word: str) -> bool:
    return _FOREIGN_TYPE.match(word) is not None


def entries_of(abi: list[Any], contract: Contract | None = None) -> Iterator[Entry]:
    """The candidates of an ABI, numbered from 1; ``contract`` is the one whose ABI it is."""
    if any(map(is_foreign, abi)):
        yield from (rejected_entry(item, number) for number, item in enumerate(abi, 1))
        return
    structs = structs_of(abi)
    for number, item in enumerate(abi, 1):
        if is_declaration(item):
            entry = declaration_entry(item, number, structs, contract)
            if entry is not None:
                yield entry
        elif not (isinstance(item, dict) and has_no_selector(item.get("type"))):
            yield abi_entry(item, number, contract=contract)
