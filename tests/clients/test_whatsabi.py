"""whatsabi's own lookups under node, with their built-in hosts resolved to our server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.clients.support import (
    HERE,
    WHATSABI,
    Front,
    need,
)

TOPIC = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"
EVENT = "Transfer(address,address,uint256)"
TRANSFER = "transfer(address,uint256)"


@pytest.fixture(autouse=True)
def _whatsabi() -> None:
    need(WHATSABI, "node")


def looked_up(front: Front, *lookups: tuple[str, str, str]) -> Any:
    return json.loads(front.run("node", HERE / "whatsabi.mjs", json.dumps(lookups)))


@pytest.mark.long
def test_lookups(front: Front) -> None:
    """whatsabi finds texts by OpenChain's dialect, by 4byte's, and by its default, which tries one after the other."""
    assert looked_up(
        front,
        ("openchain", "function", "0xa9059cbb"), ("openchain", "event", TOPIC), ("openchain", "function", "0x00000001"),
        ("fourbyte", "function", "0xa9059cbb"), ("fourbyte", "event", TOPIC), ("fourbyte", "function", "0x00000001"),
        ("default", "function", "0xa9059cbb"), ("default", "event", TOPIC), ("default", "event", "0x" + "0" * 64),
    ) == [
        [TRANSFER], [EVENT], [],
        [TRANSFER, "many_msg_babbage(bytes1)"], [EVENT], [],
        [TRANSFER], [EVENT], [],
    ]  # fmt: skip
