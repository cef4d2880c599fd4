"""Foundry's cast and forge, the real binaries, with their built-in host led to our server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sigdir.signatures.collections import EVENT_SIGNATURES
from tests.clients.support import CAST, FORGE, HERE, MODULES, Front, Served, need
from tests.serve.support import TRANSFER, found, post_text, selector

pytestmark = pytest.mark.skipif(not CAST.exists(), reason=f"{CAST} is not installed: make -C tests/clients")


_CONTRACT = """// SPDX-License-Identifier: MIT
pragma solidity ^0.8.0;

contract Forged {
    struct Order { address maker; uint amount; }
    event FromForge(uint256 indexed id, Order order);
    error ForgeError(Order order);
    function fromForge(Order calldata order) external {
        emit FromForge(1, order);
        revert ForgeError(order);
    }
}
"""


def test_4byte_of_an_unknown_selector(front: Front, server: Served) -> None:
    """cast reports that there is none, and finds the text after it was POSTed."""
    text = "unknownToCast(uint8)"
    missed = front.tried(CAST, "4byte", selector(text))
    assert missed.returncode != 0
    assert "No matching function signatures found" in missed.stderr
    assert post_text(server.port, text).status == 201
    assert front.run(CAST, "4byte", selector(text)) == f"{text}\n"


def test_decode_error(front: Front) -> None:
    """A custom error is looked up as a function."""
    data = selector("ERC20InvalidSender(address)") + "0" * 64
    assert front.run(CAST, "decode-error", data).startswith("ERC20InvalidSender(address)")


def test_upload_signature(front: Front, server: Served) -> None:
    """Functions, events and errors are stored; known texts are reported as duplicated."""
    printed = front.run(
        CAST, "upload-signature", "function castOne(uint256)", "event CastTwo(uint256)", "error CastThree(address)", TRANSFER
    )  # fmt: skip
    assert f"Imported: Function castOne(uint256): {selector('castOne(uint256)')}" in printed
    assert f"Imported: Function CastThree(address): {selector('CastThree(address)')}" in printed
    assert "Imported: Event CastTwo(uint256): 0x" in printed
    assert f"Duplicated: Function {TRANSFER}: 0xa9059cbb" in printed
    assert len(found(server.port, "castOne(uint256)")) == len(found(server.port, "CastThree(address)")) == 1
    assert len(found(server.port, "CastTwo(uint256)", EVENT_SIGNATURES)) == 1


def test_upload_of_an_artifact(front: Front, server: Served, tmp_path: Path) -> None:
    """cast uploads a contract's JSON, as forge writes it, by its path."""
    abi = [{"type": "function", "name": "fromArtifact", "inputs": [{"name": "a", "type": "uint8"}], "outputs": [],
            "stateMutability": "view"}]  # fmt: skip
    (tmp_path / "Contract.json").write_text(json.dumps({"abi": abi}))
    front.run(CAST, "upload-signature", tmp_path / "Contract.json")
    assert len(found(server.port, "fromArtifact(uint8)")) == 1


@pytest.mark.long
def test_selectors_upload(front: Front, server: Served, tmp_path: Path) -> None:
    """Functions, events and errors of a compiled contract are stored, structs spelled out."""
    need(FORGE, "node")
    need(MODULES / "solc")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Forged.sol").write_text(_CONTRACT)
    (tmp_path / "foundry.toml").write_text(f'[profile.default]\nsolc = "{HERE / "solc"}"\noffline = true\n')
    printed = front.run("sh", "-c", f"cd {tmp_path} && exec {FORGE} selectors upload Forged")
    assert "Imported: Function fromForge((address,uint256)): 0x" in printed
    assert len(found(server.port, "fromForge((address,uint256))")) == 1
    assert len(found(server.port, "ForgeError((address,uint256))")) == 1
    assert len(found(server.port, "FromForge(uint256,(address,uint256))", EVENT_SIGNATURES)) == 1
