"""Imports from Python: frames, Arrow data, files and texts go through the flow of the command."""

from __future__ import annotations

import ast
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.signatures.decode_input import BadInput as DataError
from sigdir.signatures.keccak import keccak256
from sigdir.warehouse import WarehouseError
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import assert_clean

TEXTS = [
    "transfer(address,uint256)",
    "function set(uint256 value)",
    "set(uint)",
    "no text",
    "event E(address indexed by)",
]
COUNTS = {"read": 5, "imported": 3, "duplicate": 1, "rejected": 1}


KINDS: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame({"number": range(5), "text_signature": TEXTS}, index=list("abcde")),
    "column": lambda: pd.Series(TEXTS, name="name"),
    "array": lambda: pa.array(TEXTS),
    "views": lambda: pa.table({"text_signature": pa.array(TEXTS, pa.string_view())}),
    "reader": lambda: pa.table({"text_signature": TEXTS}).to_reader(2),
    "list": lambda: TEXTS,
    "generator": lambda: (text.encode() for text in TEXTS),
}


def test_every_kind_of_data_is_imported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A version with the rows, their sightings and the rejects; the opened warehouse shows it, and nothing is printed.

    A source adds; with ``replace_source`` the data is all that it says, and the same data changes nothing.
    """
    (tmp_path / "list.txt").write_text("\n".join(TEXTS))
    thresholds = gc.get_threshold()
    with sigdir.open(tmp_path / "w", create=True) as warehouse:
        report = warehouse.add(tmp_path / "list.txt", source="mine")
        assert (report.totals(), report.version, warehouse.version) == (COUNTS, 1, 1)
        assert Path(report.files[0].path).name == "list.txt"
        for kind, made in KINDS.items():
            report = warehouse.add(made(), source=kind)
            assert report.totals() == COUNTS | {"imported": 0, "duplicate": 4}, kind
            assert (report.files[0].path, report.version) == (kind, warehouse.version)
        found = warehouse.sql(
            "SELECT source, file, declaration FROM sightings WHERE declaration LIKE 'f%' ORDER BY source = 'mine', source"
        ).rows()
        names = [*((kind, kind) for kind in sorted(KINDS)), ("mine", "list.txt")]
        assert found == [(source, file, "function set(uint256 value)") for source, file in names]
        rejects = warehouse.sql("SELECT text, reason FROM rejects").rows()
        assert rejects == [("no text", "bad_name")] * (1 + len(KINDS))
        assert not warehouse.add(TEXTS, source="list", replace_source=True).published
        warehouse.add(["b()"], source="mine")
        assert warehouse.count("signatures") == 3
        assert warehouse.add(["b()"], source="mine", replace_source=True).withdrawn.texts == 3
    assert (capfd.readouterr(), gc.get_threshold()) == (("", ""), thresholds)
    assert_clean(Paths(tmp_path / "w"))


def test_hashes_of_a_frame_are_checked(tmp_path: Path) -> None:
    """A column of hashes goes along, and a row whose hash is another one is rejected; so is what is no text."""
    frame = pd.DataFrame({"text_signature": ["a()", "b()", None], "hex_signature": ["0x0dbe671f", "0x00000000", None]})
    report = sigdir.open(tmp_path, create=True).add(frame, source="mine")
    assert report.totals() == {"read": 3, "imported": 1, "duplicate": 0, "rejected": 2}


def test_data_without_texts_is_refused(tmp_path: Path) -> None:
    """The error names the source and the columns that the table has; nothing is published."""
    warehouse = sigdir.open(tmp_path / "w", create=True)
    frame = pd.DataFrame({"one": [1], "two": ["a"]})
    for data, message in (
        (frame, "mine.*one.*two.* to `sigdir import`, or call it text_signature"),
        (5, "mine: not a table, texts or a path"),
        ("no/such/file.txt", "no such file"),
    ):
        with pytest.raises(BadInput, match=message):
            warehouse.add(data, source="mine")
    assert (warehouse.version, list((tmp_path / "w" / "tmp").glob("*"))) == (-1, [])


def test_a_warehouse_that_cannot_be_added_to(tmp_path: Path) -> None:
    """One that was opened to be read, or as of a version; and data needs a name."""
    with sigdir.open(tmp_path, create=True) as warehouse:
        warehouse.add(["a()"], source="mine")
        with pytest.raises(WarehouseError, match="needs the name of its source"):
            warehouse.add(["b()"])
    with pytest.raises(WarehouseError, match="open it with create=True"):
        sigdir.open(tmp_path).add(["b()"], source="mine")
    with pytest.raises(WarehouseError, match="only the newest"):
        sigdir.open(tmp_path, as_of=1).add(["b()"], source="mine")
    with pytest.raises(WarehouseError, match="not both"):
        sigdir.open(tmp_path, as_of=1, create=True)
    with pytest.raises(WarehouseError, match="no such folder"):
        sigdir.open(tmp_path / "missing")


def test_decoding_from_python(tmp_path: Path) -> None:
    """As the API: by an ABI, from bytes, a log in a node's own types; an older version is left to SQL."""
    call, word = f"0xa9059cbb{1:064x}{2:064x}", f"{1:064x}"
    inputs = [{"name": "who", "type": "address"}, {"name": "much", "type": "uint256"}]
    abi = [{"type": "function", "name": "transfer", "inputs": inputs}]
    with sigdir.open(tmp_path / "w", create=True) as warehouse:
        warehouse.add(["function transfer(address to, uint256 value) returns (bool ok)"], source="mine")
        found = [warehouse.decode(call), warehouse.decode(call, abi=abi)]
        assert ast.literal_eval(str(found)) == found  # plain values: an enum's member would not be shown as its text
        assert [one["contract"] and one["contract"]["by"] for one in found] == [None, "abi"]
        named = [[parameter["name"] for parameter in one["candidates"][0]["parameters"]] for one in found]
        assert named == [["to", "value"], ["who", "much"]]
        (returned,) = warehouse.decode(word, selector="0xa9059cbb")["candidates"]
        assert (returned["parameters"], returned["text_signature"]) == (
            [{"name": "ok", "type": "bool", "value": True}], "transfer(address,uint256)",
        )  # fmt: skip
        with pytest.raises(TypeError, match="returned_by"):
            warehouse.decode(word, returned_by="0xa9059cbb")  # type: ignore[call-arg]
        with pytest.raises(DataError, match="to: '0x' is no address"):
            warehouse.decode(call, chain=1, to="0x")
        assert warehouse.decode(bytes.fromhex(call[2:])) == found[0]
        with pytest.raises(DataError, match="data: bytes, hex digits, or the fields"):
            warehouse.decode(5)  # type: ignore[arg-type]
        warehouse.add(["event Sent(address indexed to, uint256 value)"], source="mine")
        topics, data = [keccak256(b"Sent(address,uint256)"), bytes.fromhex(word)], bytes.fromhex(word)
        written = {"topics": ["0x" + topic.hex() for topic in topics], "data": "0x" + data.hex(), "blockNumber": 1}
        assert warehouse.decode(written | {"topics": tuple(topics), "data": data}) == warehouse.decode(written)
    with (
        sigdir.open(tmp_path / "w", as_of=1) as older,
        pytest.raises(WarehouseError, match="SQL's decode_calldata"),
    ):
        older.decode(call)
