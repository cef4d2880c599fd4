"""What decoding knows of a text: its names and its indexed parameters, from the declarations of imported ABIs."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

from sigdir.signatures.keccak import keccak256
from sigdir.signatures.reading_json import reading_document
from sigdir.signatures.readings import Form, Input
from sigdir.warehouse.index.ranked import known_texts, read_inputs
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines

ORDER = {
    "name": "order",
    "type": "tuple",
    "components": [{"name": "id", "type": "uint256"}, {"name": "", "type": "address"}],
}
MOVED = [{"name": name, "type": "uint256", "indexed": name == "b"} for name in "ab"]
ABI = [
    {"type": "function", "name": "buy", "inputs": [ORDER], "outputs": [], "stateMutability": "payable"},
    {"type": "event", "name": "Moved", "inputs": MOVED},
]
ONE, TWO = (1).to_bytes(32, "big"), (2).to_bytes(32, "big")


def read(warehouse: Path, input: Input) -> dict[str, Any]:
    with closing(Reader(Paths(warehouse))) as reader:
        [[found]] = read_inputs(reader.current(), [input])
    [candidate] = reading_document(found)["candidates"]
    return dict(candidate)


def test_names_and_indexed_parameters_are_those_of_the_declaration(warehouse: Path) -> None:
    """Without the declaration the first parameter of the event would be taken for the indexed one."""
    import_lines(warehouse, json.dumps(ABI), name="market.json")
    buy = read(warehouse, Input(Form.CALLDATA, keccak256(b"buy((uint256,address))")[:4] + ONE + TWO))
    assert buy["declaration"] == "function buy((uint256 id, address) order) payable"
    [order] = buy["parameters"]
    assert (order["name"], [one.get("name") for one in order["components"]]) == ("order", ["id", None])
    moved = read(warehouse, Input(Form.LOG, ONE, (keccak256(b"Moved(uint256,uint256)"), TWO)))
    shown = [(one["name"], one["indexed"], one["value"]) for one in moved["parameters"]]
    assert shown == [("a", False, "1"), ("b", True, "2")]


def test_a_newer_word_is_seen(warehouse: Path) -> None:
    """Declarations are kept for the newest manifest only."""
    with closing(Reader(Paths(warehouse))) as reader:
        for name in ("first", "second"):
            import_lines(warehouse, f"function buy(uint256 {name}) external")
            [known] = known_texts(reader.current(), keccak256(b"buy(uint256)")[:4])
            assert known.parsed().names == (name,)
