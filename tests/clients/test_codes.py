"""Real contracts from npm, code by code: creation and runtime code give what the ABI beside them declares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sigdir.signatures.bytecode import analyse, bytes_of_hex
from sigdir.signatures.contract import interface_of, read_contract
from sigdir.signatures.keccak import keccak256
from tests.clients.support import MODULES, need
from tests.clients.test_projects import canonical

PACKAGES = {
    "@aave/core-v3": 85,
    "@openzeppelin/contracts-3.4.2": 41,
    "@openzeppelin/contracts-4.8.0": 53,
    "@openzeppelin/contracts-5.4.0": 64,
    "@safe-global/safe-contracts": 26,
    "@safe-global/safe-smart-account": 42,
}
"""The distinct runtime codes of each. The versions of OpenZeppelin's package are installed under names of their own."""

_ANSWERED = {"SafeProxy": keccak256(b"masterCopy()")[:4]}
"""What a contract answers in assembly, beside its ABI."""
_LIBRARY = b"\x73"
"""A library's code begins with its address. Its ABI lacks functions whose types only libraries have."""
_NOT_NAMED = ("Admin", "Factory", "Beacon")
"""A contract with Proxy in its name is one, unless it ends so: it serves proxies."""


class Artifact(NamedTuple):
    name: str
    abi: list[dict[str, Any]]
    runtime: str
    creation: str


def artifacts(package: Path) -> Iterator[Artifact]:
    """Those with code, one for each runtime code."""
    seen = set()
    for file in sorted(package.glob("**/*.json")):
        document = json.loads(file.read_text()) if "node_modules" not in file.relative_to(package).parts else None
        if isinstance(document, dict) and len(document.get("deployedBytecode", "")) > 2:
            one = Artifact(
                document["contractName"], document["abi"], document["deployedBytecode"], document["bytecode"]
            )
            if one.runtime not in seen:
                seen.add(one.runtime)
                yield one


def selectors(entries: list[dict[str, Any]]) -> set[bytes]:
    return {
        keccak256(f"{one['name']}({','.join(map(canonical, one['inputs']))})".encode())[:4]
        for one in entries
        if one["type"] == "function"
    }


def payable(abi: list[dict[str, Any]]) -> set[bytes]:
    return selectors([one for one in abi if one.get("stateMutability") == "payable"])


@pytest.mark.parametrize("package", list(PACKAGES))
def test_codes_give_what_their_abi_declares(package: str) -> None:
    """Both codes of each contract give the runtime code with all functions and none too many, those that take ether,
    and every proxy has a name.
    """
    need(MODULES / package)
    count = 0
    for one in artifacts(MODULES / package):
        count += 1
        wanted = analyse(bytes_of_hex(one.runtime)[0]).code
        for text, is_creation in ((one.runtime, False), (one.creation, True)):
            found = read_contract(text)
            assert (found.runtime.code, found.is_creation) == (wanted, is_creation), one.name
        if wanted[:1] == _LIBRARY:
            assert {function.takes_ether for function in found.functions} <= {None}
            continue
        functions = [function for function in found.functions if function.selector != _ANSWERED.get(one.name)]
        assert {function.selector for function in functions} == selectors(one.abi), one.name
        assert {function.selector for function in functions if function.takes_ether} == payable(one.abi), one.name
        if "Proxy" in one.name and not one.name.endswith(_NOT_NAMED):
            assert interface_of(found, {}).proxies, one.name
    assert count == PACKAGES[package]
