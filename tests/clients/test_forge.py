"""Foundry's forge, the real binary: a project's selectors uploaded from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sigdir.signatures.collections import EVENT_SIGNATURES
from tests.clients.support import FORGE, HERE, MODULES, Front, Served, need
from tests.serve.support import found

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
