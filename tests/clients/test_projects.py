"""Three real projects from npm, declaration by declaration: their sources and build-infos give what solc made of them.

Each package has its own sources, and solc's output as its maintainers published it: Hardhat's build-infos with the
sources of all dependencies, or Foundry's artifacts. ABI and selectors are read from them here, not by the project's readers.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sigdir
from tests.clients.support import MODULES, need
from tests.conftest import import_files
from tests.pipeline.support import keccak256, write_files


class Declared(NamedTuple):
    """A function, event or error of a contract, with its hash in hex: solc's own for functions."""

    kind: str
    text: str
    hash: str


class Project(NamedTuple):
    """A package, and how many contracts and declarations solc's output for it has."""

    package: str
    outputs: str
    """The pattern of the files that hold it."""
    contracts: int
    declarations: int
    distinct: int


PROJECTS = (
    Project("@aave/core-v3", "**/build-info/*.json", 149, 1_921, 529),
    Project("@safe-global/safe-contracts", "**/build-info/*.json", 55, 289, 136),
    Project("@uniswap/v4-core", "out/**/*.json", 174, 3_988, 1_401),
)

_BY_NAME = re.compile(r"(?!(?:address|bool|string|function|bytes\d*|u?int\d+)\b)[A-Za-z]")
"""In a list of types: one that only a library's functions have, `IPool` or `mapping`."""


def canonical(parameter: dict[str, Any]) -> str:
    kind: str = parameter["type"]
    if not kind.startswith("tuple"):
        return kind
    return "(" + ",".join(map(canonical, parameter["components"])) + ")" + kind.removeprefix("tuple")


def contracts_in(outputs: list[Path]) -> Iterator[dict[str, Any]]:
    """Every contract of solc's output."""
    for file in outputs:
        document = json.loads(file.read_text())
        for contracts in document.get("output", {}).get("contracts", {}).values():
            yield from contracts.values()
        if "abi" in document:
            yield document


def declared_in(contract: dict[str, Any]) -> Iterator[Declared]:
    """What solc's ABI has, and its identifiers; those of a library are in the ABI only if they change nothing."""
    for text, selector in (contract.get("evm") or contract)["methodIdentifiers"].items():
        if not any(map(_BY_NAME.match, re.split(r"[(),]", text.partition("(")[2]))):
            assert keccak256(text).hex()[:8] == selector
            yield Declared("function", text, selector)
    for entry in contract["abi"]:
        if entry["type"] in ("event", "error"):
            text = f"{entry['name']}({','.join(map(canonical, entry['inputs']))})"
            yield Declared(entry["type"], text, keccak256(text).hex()[: 8 if entry["type"] == "error" else 64])


def stored(folder: Path) -> set[Declared]:
    """What the sources of a warehouse say, with the hashes of its rows."""
    rows = sigdir.open(folder).sql("SELECT DISTINCT kind, text_signature, hex_signature FROM sightings").rows()
    return {Declared(kind, text, hash.removeprefix("0x")) for kind, text, hash in rows}


def sources_of(package: Path, outputs: list[Path], target: Path) -> Path:
    """The sources that solc was given, as files: those of the build-infos, or else the package's own."""
    for file in outputs:
        for name, source in json.loads(file.read_text()).get("input", {}).get("sources", {}).items():
            write_files(target, {f"node_modules/{name}" if name.startswith("@") else name: source["content"]})
    if not target.exists():
        shutil.copytree(package, target, ignore=shutil.ignore_patterns("out", "*.json", "*.ts", "*.js", "*.spec"))
    return target


@pytest.mark.long
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.package)
def test_declarations_are_those_of_solc(project: Project, tmp_path: Path) -> None:
    """solc's output gives exactly what is in it. The sources give the same; more only where not all of them were compiled."""
    package = MODULES / project.package
    need(package)
    outputs = [file for file in sorted(package.glob(project.outputs)) if file.is_file() and any(contracts_in([file]))]
    contracts = list(contracts_in(outputs))
    declared = [each for contract in contracts for each in declared_in(contract)]
    assert (len(contracts), len(declared), len(set(declared))) == project[2:]
    import_files(outputs, tmp_path / "outputs")
    assert stored(tmp_path / "outputs") == set(declared)
    import_files([sources_of(package, outputs, tmp_path / "sources")], tmp_path / "from-sources")
    found = stored(tmp_path / "from-sources")
    assert set(declared) - found == set()
    assert found == set(declared) or (tmp_path / "sources" / "lib").exists()
