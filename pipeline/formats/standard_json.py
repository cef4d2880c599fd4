"""solc's standard JSON output: ``contracts[file][name]`` with ``abi`` and ``evm.methodIdentifiers``.

Entries are numbered through the whole document, contract by contract, the ABI before the identifiers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.abi import is_abi
from sigdir.pipeline.formats.artifact import contract_entries
from sigdir.pipeline.formats.documents import is_document
from sigdir.pipeline.json_document import members
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, Entry, pack


def looks_like(source: Source) -> bool:
    """Whether a contract has an ABI or identifiers. The output selection of solc decides which it has."""
    if not is_document(source, "{"):
        return False
    return any(is_abi(abi) or isinstance(identifiers, dict) for abi, identifiers in _contracts(source.document()))


def read(source: Source) -> Iterator[Candidates]:
    document = source.document()
    if not isinstance(document, dict) or not isinstance(document.get("contracts"), dict):
        raise BadInput(source.name, "no object under contracts")
    return pack(_entries(document), source.number)


def _contracts(document: Any) -> Iterator[tuple[Any, Any]]:
    """The ABI and the identifiers of each contract, of any type."""
    for _, file in _members_of(document.get("contracts") if isinstance(document, dict) else None):
        for _, contract in _members_of(file):
            if isinstance(contract, dict):
                evm = contract.get("evm")
                yield contract.get("abi"), evm.get("methodIdentifiers") if isinstance(evm, dict) else None


def _members_of(value: Any) -> Any:
    return members(value) if isinstance(value, dict) else ()


def _entries(document: dict[str, Any]) -> Iterator[Entry]:
    before = 0
    for abi, identifiers in _contracts(document):
        abi = abi if isinstance(abi, list) else []
        for entry in contract_entries(abi, identifiers):
            yield entry._replace(line=before + entry.line)
        before += len(abi) + len(_members_of(identifiers))
