"""`sigdir export abi`: entries of chosen signatures, with the names that declarations have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sigdir.pipeline.errors import BadTarget
from sigdir.pipeline.export import Options, run_export
from sigdir.pipeline.progress import Reporter
from tests.conftest import import_files

TRANSFER = {
    "type": "function", "name": "transfer",
    "inputs": [{"name": "to", "type": "address"}, {"name": "amount", "type": "uint256"}],
    "outputs": [{"name": "", "type": "bool"}], "stateMutability": "nonpayable",
}  # fmt: skip
MOVED = {
    "type": "event", "name": "Moved", "anonymous": False,
    "inputs": [
        {"name": "order", "type": "tuple[]", "indexed": False, "components": [{"name": "id", "type": "uint8"}]},
        {"name": "by", "type": "address", "indexed": True},
    ],
}  # fmt: skip
BROKEN = {"type": "error", "name": "Broken", "inputs": [{"name": "why", "type": "string"}]}
PLAIN = {
    "type": "function", "name": "plain", "inputs": [{"name": "", "type": "uint256"}], "outputs": [],
    "stateMutability": "nonpayable",
}  # fmt: skip


class Notes(Reporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ABI, and a list that has a text that collides with one of its functions."""
    folder = tmp_path_factory.mktemp("abi")
    (folder / "abi.json").write_text(json.dumps([TRANSFER, MOVED, BROKEN]))
    (folder / "list.txt").write_text("many_msg_babbage(bytes1)\nplain(uint256)\n")
    import_files([folder / "list.txt", folder / "abi.json"], folder / "warehouse")
    return folder / "warehouse"


def exported(stored: Path, target: Path, notes: Reporter | None = None, **options: Any) -> Any:
    run_export(Options("abi", str(target), stored, **options), notes or Reporter())
    return json.loads(target.read_bytes())


def test_entries_of_texts_and_hashes_have_the_names_of_their_declarations(stored: Path, tmp_path: Path) -> None:
    """A text that nobody declared has none; a declaration names its text, and a text twice is one.

    A hash in any spelling gives the first of its texts. What is unknown is named, and the rest is written.
    """
    texts = ("transfer(address,uint256)", "event Moved((uint8)[],address)", "error Broken(string)", "plain(uint)")
    found = exported(stored, tmp_path / "a.json", texts=(*texts, "function transfer(address a, uint b)"))
    assert found == [TRANSFER, MOVED, BROKEN, PLAIN]
    notes = Notes()
    topic = "0xDDF252AD1BE2C89B69C2B068FC378DAA952BA7F163C4A11628F55A4DF523B3EF"
    found = exported(stored, tmp_path / "a.json", notes, hashes=("a9059cbb", topic), texts=("nobody()",))
    assert found == [TRANSFER]
    assert notes.texts == ["nobody(): not in the warehouse", f"{topic.lower()}: not in the warehouse"]


def test_what_is_no_signature(stored: Path, tmp_path: Path) -> None:
    """It is refused by name, and nothing is written; other formats take all rows."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "name them with --text or --hashes"),
        ({"texts": ("f(uint7)",)}, "bad width"),
        ({"hashes": ("0x12",)}, "neither a selector nor a topic"),
        ({"hashes": ("zzzzzzzz",)}, "neither a selector nor a topic"),
    ]
    for options, told in wrong:
        with pytest.raises(BadTarget, match=told):
            exported(stored, tmp_path / "a.json", **options)
    with pytest.raises(BadTarget, match="are for abi"):
        run_export(Options("csv", str(tmp_path / "a.csv"), stored, texts=("f()",)), Reporter())
    assert list(tmp_path.iterdir()) == []


def test_formats_of_one_text_take_the_best_of_a_selector(tmp_path: Path, warehouse: Path) -> None:
    """A declared text before an older one that a list names; the tree joins both in that order."""
    older, younger = "orange_beacon_planet(uint64,bytes1,bytes)", "join_engine_17f7d6e(bytes16,bool,address)"
    inputs = [{"name": "", "type": type} for type in ("bytes16", "bool", "address")]
    abi = [{"type": "function", "name": "join_engine_17f7d6e", "inputs": inputs, "outputs": []}]
    for name, content in (("list.txt", f"a()\n{older}\n"), ("abi.json", json.dumps(abi))):
        (tmp_path / name).write_text(content)
        import_files([tmp_path / name], warehouse)
    for format in ("4byte.json", "4bytes", "foundry"):
        run_export(Options(format, str(tmp_path / format), warehouse), Reporter())
    assert json.loads((tmp_path / "4byte.json").read_bytes())["29965a1d"] == younger
    assert json.loads((tmp_path / "foundry").read_bytes())["functions"]["0x29965a1d"] == younger
    assert (tmp_path / "4bytes/signatures/29965a1d").read_text() == f"{younger};{older}"
