"""Compiler artifacts of Hardhat, Truffle and Foundry: an object with ``abi``.

Foundry's artifacts also have ``methodIdentifiers``, from text to selector. They are candidates too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.abi import is_abi
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.formats.hashes import parse_hash
from sigdir.pipeline.json_document import members
from sigdir.pipeline.source import Source
from sigdir.signatures.abi import abi_entries, encoded, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.collections import FUNCTIONS


def looks_like(source: Source) -> bool:
    return is_document(source, "{") and is_abi(_abi(source.document()))


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    abi = _abi(document)
    if not isinstance(abi, list):
        raise BadInput(source.name, "no list under abi")
    return pack(contract_entries(abi, document.get("methodIdentifiers")), source.number)


def _abi(document: Any) -> Any:
    """The ABI inside; some tools write it as a string of JSON."""
    abi = document.get("abi") if isinstance(document, dict) else None
    if isinstance(abi, str):
        try:
            return json.loads(abi)
        except (ValueError, RecursionError):
            return None
    return abi


def contract_entries(abi: list[Any], identifiers: Any) -> Iterator[Entry]:
    """The candidates of an ABI, then those of ``identifiers`` if that is an object from text to selector."""
    yield from abi_entries(abi)
    if not isinstance(identifiers, dict):
        return
    for number, (text, written) in zip(count(len(abi) + 1), members(identifiers)):
        declared = parse_hash(written) if isinstance(written, str) else None
        if declared is None:
            yield rejected_entry({text: written}, number)
        else:
            yield Entry(encoded(text), number, FUNCTIONS, declared)
