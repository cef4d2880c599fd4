"""Which contract an ABI in a document belongs to.

Tools name it in the document (`contractName`, `compilationTarget`), or by the key of its object, under a key that is
the path of its source. An ABI alone in a file is named by the file. Where none of these is there, the contract stays
unknown. What lies inside of an object that is a contract belongs to that contract.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable
from typing import Any

from sigdir.pipeline.source import STDIN, Source, without_packing
from sigdir.signatures.evidence import Contract, Deployed
from sigdir.warehouse.table.stores import is_url

ABI_KEYS = frozenset(["abi", "ABI", "interface", "json-abi", "humanReadableAbi"])
IDENTIFIER_KEYS = frozenset(["methodIdentifiers", "method_identifiers", "hashes", "functionHashes"])
_NAME_KEYS = ("contractName", "ContractName")
_PATH_KEYS = ("sourceName", "sourcePath")
_OF_CONTRACTS = ABI_KEYS | IDENTIFIER_KEYS | {"evm"}
"""An object with one of these keys is a contract."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
_CHAIN = re.compile(r"[1-9][0-9]{0,18}")
_NAME = re.compile(r"(?:(?P<path>.+):)?(?P<name>[A-Za-z_$][\w$]*|0x[0-9a-fA-F]{40})", re.DOTALL)
_NO_NAMES = ABI_KEYS | IDENTIFIER_KEYS | {
    "abis", "compilerOutput", "contract", "contractTypes", "contracts", "data", "errors", "events", "evm", "functions",
    "input", "items", "metadata", "output", "outputs", "result", "results", "sources", "value", "values",
}  # fmt: skip
"""Keys of documents that name no contract."""
_SOURCE_ENDINGS = (".sol", ".vy", ".vyi")
_FILE_ENDINGS = (".json", ".abi", ".huff", ".ts", ".d")


def contract_of_file(source: Source) -> Contract | None:
    """The contract whose ABI a file is, named by the file, or by the address of its folder where the file's name says
    nothing, as in `1/0x.../abi.json`; None for standard input, and where neither names it.
    """
    if source.path == STDIN:
        return None
    name = without_packing(posixpath.basename(source.path))
    for ending in _FILE_ENDINGS:
        name = name.removesuffix(ending)
    deployed = deployed_at(source.below)
    if not name or name in _NO_NAMES:
        if deployed is None:
            return None
        name = f"0x{deployed.address.hex()}"
    return Contract.at(source.below, name)._replace(deployed=deployed)


def deployed_at(path: str) -> Deployed | None:
    """The address that a path names, as `1/0x....json` and `full_match/1/0x.../metadata.json` do, with the chain before it."""
    parts = path.split("/")
    for at in range(len(parts) - 1, -1, -1):
        address = address_of(parts[at].partition(".")[0])
        if address:
            chains = (part for part in reversed(parts[:at]) if _CHAIN.fullmatch(part))
            return Deployed(int(next(chains, 0)), address)
    return None


def address_of(text: Any) -> bytes:
    """The 20 bytes of an address as explorers write it; empty for anything else."""
    return bytes.fromhex(text[2:]) if isinstance(text, str) and _ADDRESS.fullmatch(text) else b""


def absolute_path(path: str) -> str:
    """The absolute path of a source. That of an object in a store does not depend on the folder of the process."""
    return posixpath.normpath(f"/{path}") if is_url(path) else os.path.abspath(path)


def path_below(path: str, roots: Iterable[str], document: str | None = None) -> str:
    """The absolute path of a source, below the path that the user named; that of a source in a document as it stands
    there. So a contract has one key wherever its folder lies.
    """
    if document is not None:
        return path.removeprefix(document).lstrip("/")
    for root in roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return posixpath.basename(root) + path[len(root) :]
    return posixpath.basename(path)


class ContractNames:
    """Names the contracts of one document."""

    def __init__(self, path: str, contract_of_file: Contract | None = None) -> None:
        """``path`` is the document's; ``contract_of_file`` is for an ABI that nothing inside names."""
        self._path = path
        self.contract_of_file = contract_of_file
        """The one that the file's name names."""
        self._deployed = contract_of_file.deployed if contract_of_file is not None else None

    def of_object(self, value: dict[str, Any], key: str, above: str, is_whole: bool) -> Contract | None:
        """The contract that an object is; None if it is none. ``key`` is the object's, ``above`` that of the object
        around it; ``is_whole`` says that it is the whole document.
        """
        target = _compilation_target(value)
        if target is not None:
            return self._placed(Contract.at(*target), value)
        name = _text(value, _NAME_KEYS)
        if name:
            return self._placed(Contract.at(_text(value, _PATH_KEYS) or self._path_above(above), name), value)
        if _OF_CONTRACTS.isdisjoint(value):
            return None
        return self.contract_of_file if is_whole else self.of_key(key, above)

    def of_key(self, key: str, above: str) -> Contract | None:
        """The contract that a key names; None if it names none."""
        found = _NAME.fullmatch(key)
        if found is None or key in _NO_NAMES:
            return None
        return self._placed(Contract.at(found["path"] or self._path_above(above), found["name"]), {})

    def _placed(self, contract: Contract, value: dict[str, Any]) -> Contract:
        """A contract at the address that the file names, with the implementation that Etherscan names beside its ABI."""
        if self._deployed is None:
            return contract
        target = address_of(value.get("Implementation"))
        return contract._replace(deployed=self._deployed._replace(target=target))

    def _path_above(self, above: str) -> str:
        return above if above.endswith(_SOURCE_ENDINGS) else self._path


def _text(value: dict[str, Any], keys: Collection[str]) -> str:
    """The first of the members that is a text."""
    return next((text for key in keys if isinstance(text := value.get(key), str) and text), "")


def _compilation_target(value: dict[str, Any]) -> tuple[str, str] | None:
    """The source and the contract that solc's metadata is about; an artifact of Foundry holds the metadata."""
    metadata = value.get("metadata")
    for holder in (value, metadata):
        settings = holder.get("settings") if isinstance(holder, dict) else None
        target = settings.get("compilationTarget") if isinstance(settings, dict) else None
        if isinstance(target, dict) and len(target) == 1:
            ((path, name),) = target.items()
            if isinstance(name, str) and name:
                return path, name
    return None
