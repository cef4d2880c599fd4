"""Artifacts with bytecode: which of their candidates are compiled, and what the import's report counts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sigdir.pipeline.formats import json_contracts
from sigdir.pipeline.source import Source
from sigdir.signatures.bytecode import analyse, contract_key
from sigdir.signatures.evidence import LISTED, Sighting, Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.types import parse_declaration
from tests.pipeline.support import canonicalised, corpus, invoke, texts_and_sightings, write_files
from tests.signatures.assembly import creation_code, dispatcher, error_code, event_code, metadata
from tests.signatures.test_bytecode import CONTRACTS


def abi(*texts: str) -> list[dict[str, Any]]:
    """ABI entries from texts like `error Bad()`."""
    return [parse_declaration(text.replace(",", ", ")).abi_entry() for text in texts]


TEXTS = ("function f(uint256)", "event E(address)", "error Bad()")
ABI = abi(*TEXTS)


def hash_of(text: str) -> bytes:
    return keccak256(text.partition(" ")[2].encode())


def runtime(*, number: int = 0) -> bytes:
    """Runtime code that holds the three TEXTS. ``number`` changes its metadata alone."""
    function, event, error = map(hash_of, TEXTS)
    return dispatcher([function[:4]], event_code(event) + error_code(error[:4])) + metadata(bytes([number]) * 32)


CODE = "0x" + runtime().hex()


@cache
def key() -> bytes:
    """The key of the contract with this code."""
    return contract_key(analyse(runtime()).code)


def sightings(path: Path, document: Any) -> tuple[dict[str, Sighting], Source]:
    """What an import of the document would say about each text, and the source that was read."""
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    source = Source(str(path), explicit=True)
    found: dict[str, Sighting] = {}
    with source.open(lambda _: None):
        for result in canonicalised(json_contracts.read(source)):
            for rows in result.accepted.values():
                found |= {text: one or LISTED for text, one in texts_and_sightings(rows)}
    return found, source


SHAPES = {
    "Hardhat, Brownie, Truffle": {"contractName": "C", "abi": ABI, "bytecode": "0x60", "deployedBytecode": CODE},
    "Foundry": {"abi": ABI, "bytecode": {"object": "0x60"}, "deployedBytecode": {"object": CODE, "linkReferences": {}}},
    "standard JSON output": {"contracts": {"a.sol": {"C": {"abi": ABI, "evm": {"deployedBytecode": {"object": CODE[2:]}}}}}},
    "combined JSON": {"contracts": {"a.sol:C": {"abi": ABI, "bin": "60", "bin-runtime": CODE[2:]}}},
    "combined JSON with the ABI as text": {"contracts": {"a.sol:C": {"abi": json.dumps(ABI), "bin-runtime": CODE[2:]}}},
    "Vyper": {"a.vy": {"abi": ABI, "bytecode": "0x60", "bytecode_runtime": CODE}},
    "Remix": {"data": {"bytecode": {"object": "60"}, "deployedBytecode": {"object": CODE[2:]}}, "abi": ABI},
    "Ape": {"contractTypes": {"C": {"abi": ABI, "runtimeBytecode": {"bytecode": CODE}}}},
    "Sourcify": {"abi": ABI, "runtimeBytecode": {"recompiledBytecode": None, "onchainBytecode": CODE}},
    "creation code alone": {"abi": ABI, "bytecode": creation_code(runtime()).hex()},
    "runtime code called bytecode": {"abi": ABI, "bytecode": CODE},
    "method identifiers": {"contracts": {"a.sol": {"C": {"abi": ABI, "evm": {
        "deployedBytecode": {"object": CODE}, "methodIdentifiers": {"f(uint256)": hash_of(TEXTS[0])[:4].hex()}}}}}},
    "human-readable": {"abi": list(TEXTS), "deployedBytecode": CODE},
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_the_runtime_code_is_found_in_each_shape(tmp_path: Path, shape: str) -> None:
    """The function, the event and the error are compiled, and the contract's key is that of its code.

    solc's output has a contract's functions twice; both are of one contract, which is counted once.
    """
    found, source = sightings(tmp_path / "a.json", SHAPES[shape])
    assert [found[text.partition(" ")[2]].witness for text in TEXTS] == [Witness.COMPILED] * 3
    assert {one.contract.key for one in found.values() if one.contract} == {key()}
    count = 3 + (shape == "method identifiers")
    assert source.bytecode.to_dict() == {"contracts": 1, "compiled": count, "declared": 0, "misfits": 0, "unread": {}}


def test_a_forged_entry_stays_declared(tmp_path: Path) -> None:
    """An ABI with a function that its code lacks is a misfit; an event or an error that the code lacks is none."""
    forged = abi("function many_msg_babbage(bytes1)", "error transfer(address,uint256)", "event E(bytes32)")
    document = [
        {"abi": ABI + forged, "deployedBytecode": CODE},
        {"abi": ABI + forged[1:], "deployedBytecode": CODE},
        {"abi": forged[:1] * 2, "deployedBytecode": "0x" + dispatcher([hash_of("x transfer(address,uint256)")[:4]]).hex()},
    ]  # fmt: skip
    found, source = sightings(tmp_path / "a.json", document)
    compiled = {text for text, one in found.items() if one.witness is Witness.COMPILED}
    # The mined text has the selector of transfer, which the third code's dispatcher has: nothing here tells them apart.
    assert compiled == {"f(uint256)", "E(address)", "Bad()", "many_msg_babbage(bytes1)"}
    assert source.bytecode.to_dict() == {"contracts": 3, "compiled": 8, "declared": 5, "misfits": 1, "unread": {}}


BAD: dict[str, tuple[Any, dict[str, int]]] = {
    "not hex": ("0x60zz", {"not_hex": 1}),
    "creation code only": ("0x6001600255", {"creation_only": 1}),
    "EraVM": (CONTRACTS["EraVM"]["runtime"], {"other_machine": 1}),
    "too long": ("00" * ((1 << 20) + 1), {"too_long": 1}),
    "an interface": ("0x", {}),
    "no text": (["0x60"], {}),
    "no hex inside": ({"object": 5}, {}),
}


@pytest.mark.parametrize("case", BAD)
def test_bytecode_that_cannot_be_read(tmp_path: Path, case: str) -> None:
    """Its contract's candidates are declared, nothing is lost, and the report counts the reason."""
    code, unread = BAD[case]
    for bytecode in (code, {"object": code}):
        found, source = sightings(tmp_path / "a.json", {"abi": ABI, "bytecode": bytecode})
        assert [one.witness for one in found.values()] == [Witness.DECLARED] * 3
        assert (source.bytecode.unread, source.bytecode.contracts) == (unread, 0)


def test_the_code_of_proxies_and_stubs_is_not_their_key(tmp_path: Path) -> None:
    """The ABI of a proxy is that of the code behind it; two libraries of internal functions have the same code."""
    proxy = "363d3d373d3d3d363d73" + "ab" * 20 + "5af43d82803e903d91602b57fd5bf3"
    contracts = {f"a.sol:{name}": {"abi": ABI, "bin-runtime": proxy} for name in ("A", "B")}
    found, source = sightings(tmp_path / "a.json", {"contracts": contracts})
    assert {one.witness for one in found.values()} == {Witness.DECLARED}
    assert key() not in {one.contract.key for one in found.values() if one.contract}
    assert (source.bytecode.compiled, source.bytecode.declared, source.bytecode.unread) == (0, 6, {})
    stub = "0x" + (bytes.fromhex("6080604052600080fdfe") + metadata()).hex()
    contracts = {f"a.sol:{name}": {"abi": abi(f"error {name}()"), "bin-runtime": stub} for name in ("A", "B")}
    found, _ = sightings(tmp_path / "a.json", {"contracts": contracts})
    assert [one.witness for one in found.values()] == [Witness.DECLARED] * 2
    keys = [one.contract.key for one in found.values() if one.contract]
    assert len(set(keys)) == len(keys)
    assert key() not in keys


def test_the_time_for_the_bytecodes_of_a_file_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it contracts are declared and counted; nothing is lost."""
    monkeypatch.setattr(json_contracts, "_SECONDS", 0.0)
    lines = [{"abi": ABI, "deployedBytecode": runtime(number=n).hex()} for n in range(3)]
    found, source = sightings(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert len(found) == 3
    assert source.bytecode.contracts == 1
    assert source.bytecode.unread == {"over_time": 2}


def test_the_report_counts_contracts(tmp_path: Path) -> None:
    """In JSON for all inputs and for each, and as one line for people; none where no input has bytecode."""
    documents = [{"abi": ABI, "deployedBytecode": CODE}, {"abi": ABI, "bytecode": "0xzz"}, ABI]
    files = {f"{number}.json": json.dumps(document) for number, document in enumerate(documents)}
    paths = write_files(tmp_path / "in", files)
    report = json.loads(invoke(tmp_path / "w", "import", "--dry-run", *paths, "--json").stdout)
    counts = {"contracts": 1, "compiled": 3, "declared": 0, "misfits": 0, "unread": {"not_hex": 1}}
    assert report["bytecode"] == counts
    assert ["bytecode" in file for file in report["files"]] == [True, True, False]
    shown = invoke(tmp_path / "w", "import", "--dry-run", *paths)
    text = (shown.stdout.decode() + shown.stderr).replace("\n", " ")
    assert "bytecode of 1 contract: 3 candidates compiled, 0 only declared; 0 ABIs do not fit their bytecode" in text
    assert "bytecode not read: 1 not_hex" in text


def test_the_corpora_s_artifacts(tmp_path: Path) -> None:
    """134 functions, 41 of 52 events and 76 of 145 errors are compiled, and every ABI fits its code."""
    report = json.loads(invoke(tmp_path / "w", "import", corpus("artifacts"), "--dry-run", "--json").stdout)
    assert report["bytecode"] == {"contracts": 81, "compiled": 251, "declared": 80, "misfits": 0, "unread": {}}
