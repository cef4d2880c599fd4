"""`sigdir export dataset` and `abis`: what other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import sigdir
from sigdir.pipeline import export_tables
from sigdir.pipeline.errors import BadTarget
from sigdir.pipeline.export import Options, run_export
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.signatures.grammar import normalise
from sigdir.signatures.types import parse_declaration
from tests.conftest import ROOT, import_files
from tests.pipeline.support import invoke, keccak256

SPAM, TRANSFER = "many_msg_babbage(bytes1)", "transfer(address,uint256)"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The samples, a text that was mined, one without a declaration and a suppressed one."""
    folder = tmp_path_factory.mktemp("dataset")
    (folder / "list|1.txt").write_text(f"{SPAM}\nundeclared(uint256)\nhidden()\n")
    (folder / "topic0.json").write_text(json.dumps({keccak256("Undeclared(uint256)").hex(): "Undeclared(uint256)"}))
    for source in (folder / "list|1.txt", folder / "topic0.json", ROOT / "samples"):
        import_files([source], folder / "warehouse")
    assert invoke(folder / "warehouse", "suppress", "hidden()").status == 0
    return folder / "warehouse"


def export(stored: Path, format: str, name: str, **options: Any) -> Path:
    target = stored.with_name(name)
    if not target.exists():
        report = run_export(Options(format, str(target), stored, **options), Reporter())
        assert target.is_dir() or report.bytes == target.stat().st_size
    return target


@pytest.fixture(scope="module")
def dataset(stored: Path) -> Path:
    return export(stored, "dataset", "data", licences=(("list|*", "CC0 | really"),))


def test_a_dataset_has_every_text_in_the_order_of_hashes(stored: Path, dataset: Path) -> None:
    """With what SQL says of it; row groups do not overlap; what is suppressed is not in it."""
    for collection in COLLECTIONS:
        rows = pl.read_parquet(dataset / f"{collection}.parquet").to_dicts()
        wanted = sigdir.open(stored).sql(
            "SELECT hex_signature, text_signature, position, looks_mined FROM ranked WHERE collection = ? AND"
            " text_signature != 'hidden()' ORDER BY hex_signature, position", [collection.value],
        )  # fmt: skip
        assert [
            (row["hash"], row["text_signature"], row["position"], row["looks_mined"]) for row in rows
        ] == wanted.rows()
    assert [row["hash"] for row in rows] == sorted(row["hash"] for row in rows)


def test_the_card_names_counts_sources_and_licences(stored: Path, dataset: Path) -> None:
    """In a table that no label breaks; a licence of a source that there is not is an error."""
    card = (dataset / "README.md").read_text()
    assert card.startswith("---\npretty_name: Ethereum signatures\n")
    assert "- config_name: event-signatures\n  data_files: event-signatures.parquet\n" in card
    assert "| `list\\|*` | 2 | CC0 \\| really |" in card
    assert "| not stated |" in card
    assert f"| `signatures.parquet` | {pq.read_metadata(dataset / 'signatures.parquet').num_rows:,} |" in card
    with pytest.raises(BadTarget, match="no source of texts is named 'other'; `sigdir sql "):
        export(stored, "dataset", "never", licences=(("other", "MIT"),))
    with pytest.raises(BadTarget, match=r"'list\|\*' is given two licences"):
        export(stored, "dataset", "never", licences=(("list|*", "MIT"), ("list|*", "CC0")))
    assert not stored.with_name("never").exists()
    with pytest.raises(BadTarget, match="--licence is for dataset"):
        export(stored, "abis", "never", licences=(("other", "MIT"),))
    done = invoke(stored, "export", "dataset", stored.with_name("never"), "--licence", "MIT")
    assert (done.status, "is not a source, = and its licence" in done.stderr) == (2, True)


def test_the_card_counts_a_text_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On each line, of however many sources and declarations, if it is in the files; the longest pattern counts."""
    files = {
        "both/a.sol": "interface I { function f(uint256 a) external; event E(); }",
        "both/deep/b.sol": "interface I { function f(uint256 b) external; }",
        "both/deep/[c].txt": "f(uint256)\ng()\n", "one.txt": "f(uint256)\n", "two.txt": "f(uint256)\n",
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("both", "one.txt", "two.txt"):
        import_files([tmp_path / name], tmp_path / "warehouse")

    def sources(*licences: tuple[str, str], **options: Any) -> list[str]:
        folder = export(
            tmp_path / "warehouse", "dataset", f"data{len(list(tmp_path.iterdir()))}", licences=licences, **options
        )
        return (folder / "README.md").read_text().split("| --- | --- | --- |\n")[1].split("\n\n")[0].splitlines()

    patterns = [("both/*", "X"), ("both/deep/*", "MIT")]
    lines = ["| `both/*` | 2 | X |", "| `both/deep/*` | 2 | MIT |"]
    unstated = [f"| `{name}.txt` | 1 | not stated |" for name in ("one", "two")]
    assert sources(*patterns) == [*lines, *unstated]
    assert sources(*patterns[::-1]) == [*lines[::-1], *unstated]
    assert sources(*patterns, collections=(SIGNATURES,))[0] == "| `both/*` | 1 | X |"
    assert sources(("both/deep/[c].txt", "CC0"))[0] == "| `both/deep/[c].txt` | 2 | CC0 |"
    monkeypatch.setattr(export_tables, "_MOST_SOURCES", 0)
    assert sources(("both/*", "X"))[1:] == ["| 2 other sources | 1 | not stated |"]


# The table of declarations.


def test_a_hash_has_one_declaration(stored: Path) -> None:
    """Its best one, in glaciers' columns; no mined text, no event whose indexed parameters nobody knows."""
    table = pl.read_parquet(export(stored, "abis", "abis.parquet"))
    assert table.schema == {
        "address": pl.Binary, "chain": pl.UInt64, "hash": pl.Binary, "full_signature": pl.String, "name": pl.String,
        "anonymous": pl.Boolean, "state_mutability": pl.String, "id": pl.String,
    }  # fmt: skip
    assert table["hash"].n_unique() == table.height
    by_name = {row["full_signature"]: row for row in table.to_dicts()}
    found = by_name["function transfer(address to, uint256 value) returns (bool success)"]
    assert (found["hash"].hex(), found["state_mutability"], found["anonymous"]) == ("a9059cbb", "nonpayable", None)
    assert found["id"] == f"0xa9059cbb - {found['full_signature']}"
    assert "function undeclared(uint256)" in by_name
    assert not {"Undeclared", "many_msg_babbage", "hidden"} & set(table["name"])
    for row in table.to_dicts():
        declared = parse_declaration(row["full_signature"])
        mutability = declared.abi_entry().get("stateMutability")
        assert (row["name"], row["state_mutability"]) == (declared.name, mutability)
        assert row["anonymous"] == declared.abi_entry().get("anonymous")


@pytest.fixture(scope="module")
def placed(stored: Path) -> Path:
    """The samples with a token that two sources know, proxies of it, another chain, and more rows of proxies than a batch has."""
    folder = stored.with_name("placed")
    abi = [
        parse_declaration(one).abi_entry() for one in (EVENT_TRANSFER, "function transfer(address to, uint256 value)")
    ]
    texts = [(10, TOKEN, "owner()"), (1, PROXY, "owner()"), *((2, BEHIND, f"f{number}()") for number in range(20))]
    proxies = [(1, PROXY, TOKEN), (1, BEHIND, PROXY), *((2, f"0x{number:040x}", BEHIND) for number in range(3_500))]
    files = {
        f"{TOKEN}.json": json.dumps(abi), f"again/{TOKEN}.json": json.dumps(abi),
        "own.csv": "chain,address,text\n" + "".join(f"{chain},{address},{text}\n" for chain, address, text in texts),
        "to.csv": "chain,address,implementation\n" + "".join(f"{c},{address},{to}\n" for c, address, to in proxies),
    }  # fmt: skip
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        import_files([path], folder / "warehouse")
    import_files([ROOT / "samples"], folder / "warehouse")
    return folder / "warehouse"


TOKEN, PROXY, BEHIND = (f"0x{digits * 20}" for digits in ("ab", "0e", "cd"))
EVENT_TEXT = "Transfer(address,address,uint256)"
EVENT_TRANSFER = "event Transfer(address indexed from, address indexed to, uint256 value)"


def test_a_contract_has_a_row_for_each_text(placed: Path) -> None:
    """Of its own and of what it delegates to, once, whatever many sources say; after the rows without an address, in their order."""
    table = pl.read_parquet(export(placed, "abis", "abis.parquet"))
    found = table.filter(pl.col("address").is_not_null() & (pl.col("chain") != 2))
    names: dict[tuple[int, str], list[str]] = {}
    for row in found.to_dicts():
        names.setdefault((row["chain"], f"0x{row['address'].hex()}"), []).append(row["name"])
    both = ["Transfer", "owner", "transfer"]
    assert {place: sorted(some) for place, some in names.items()} == {
        (1, TOKEN): ["Transfer", "transfer"], (1, PROXY): both, (1, BEHIND): both, (10, TOKEN): ["owner"]
    }  # fmt: skip
    functions = table.filter(pl.col("hash").bin.size() == 4)
    places = functions.select("chain", "address", "hash")
    assert places.equals(places.sort(["chain", "address"], nulls_last=False, maintain_order=True))
    assert places.n_unique() == places.height == functions["address"].null_count() + 6 + 3_501 * 20


def test_the_table_is_imported_again(placed: Path) -> None:
    """Each row is a candidate; no contract has those without an address."""
    target = export(placed, "abis", "abis.parquet")
    report, table = import_files([target], placed.with_name("imported")), pl.read_parquet(target)
    assert (report.totals()["read"], report.totals()["rejected"]) == (table.height, 0)
    again = sigdir.open(placed.with_name("imported"))
    assert {text for (text,) in again.sql("SELECT text_signature FROM evidence").rows()} == {
        normalise(one.encode()).text for one in table["full_signature"]
    }
    found = table.filter(pl.col("address").is_not_null()).select("chain", "address").unique()
    assert sorted(again.sql("SELECT DISTINCT chain, address FROM contracts").rows()) == sorted(
        (chain, f"0x{address.hex()}") for chain, address in found.rows()
    )


def test_a_contract_has_no_declaration_of_another_kind(tmp_path: Path) -> None:
    """Neither the function that a list has for the text of its event, nor the one that another ABI has for its error."""
    low = parse_declaration("function Low(uint256 at)").abi_entry()
    files = {
        "list.txt": f"{EVENT_TEXT}\n", f"{TOKEN}.json": json.dumps([parse_declaration(EVENT_TRANSFER).abi_entry()]),
        "abi.json": json.dumps([low]), "texts.csv": f"address,text\n{TOKEN},error Low(uint256)\n{TOKEN},owner()\n",
    }  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        import_files([tmp_path / name], tmp_path / "warehouse")
    interfaces = sigdir.open(tmp_path / "warehouse").sql("SELECT texts, kinds FROM interfaces").rows()
    assert sorted(interfaces) == [(["Low(uint256)", "owner()"], ["error", "function"]), ([EVENT_TEXT], ["event"])]
    table = pl.read_parquet(export(tmp_path / "warehouse", "abis", "abis.parquet"))
    assert table.filter(pl.col("address").is_null() & (pl.col("name") == "Low")).height == 1
    of_token = table.filter(pl.col("address").is_not_null())
    assert of_token["full_signature"].to_list() == ["function owner()", EVENT_TRANSFER]
