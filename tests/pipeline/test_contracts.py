"""Contracts from every source, stored, looked up, replaced, merged, copied; and decoding by them everywhere but HTTP."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.signatures.evidence import Kind
from sigdir.signatures.given_contract import DeployedContract, InterfaceText
from sigdir.signatures.keccak import keccak256 as code_keccak256
from sigdir.signatures.readings import Known
from sigdir.signatures.types import parse_declaration
from sigdir.warehouse.evidence.contracts import MAX_PROXIES, deployed_contract, deployments_at
from sigdir.warehouse.log.manifest import CONTRACTS, Manifest
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.errors import UnreadableWarehouse
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_files
from tests.pipeline.support import invoke, keccak256, write_table

TOKEN, PROXY, OTHER = ("0x" + digits * 20 for digits in ("ab", "cd", "0e"))
TRANSFER, WORKED, EVENT = "transfer(address,uint256)", "workMyDirefulOwner(uint256,uint256)", "Moved(uint256)"
CALL = "0xa9059cbb" + f"{0xAB:064x}{7:064x}"


def entry(text: str, kind: str = "function") -> dict[str, Any]:
    return parse_declaration(f"{kind} {text}".replace(",", ", ")).abi_entry()


def member(text: str, kind: Kind = Kind.FUNCTION) -> InterfaceText:
    return InterfaceText(kind, keccak256(text)[:8])


def manifest(warehouse: Path) -> Manifest:
    return read_snapshot(Paths(warehouse)).evidence


def at(warehouse: Path, address: str, chain: int = 1) -> DeployedContract:
    return deployed_contract(manifest(warehouse), chain, bytes.fromhex(address[2:]))


def imported(warehouse: Path, *arguments: str | Path) -> dict[str, Any]:
    result = invoke(warehouse, "import", "--json", *arguments)
    assert result.status == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def explorer_answer(abi: list[dict[str, Any]], **more: str) -> dict[str, Any]:
    row = {"SourceCode": "contract C { function ofSource() external {} }", "ABI": json.dumps(abi), "ContractName": "C"}
    return {"status": "1", "message": "OK", "result": [row | more]}


def test_a_folder_of_addresses_and_etherscans_answers(warehouse: Path, tmp_path: Path) -> None:
    """A file that an address names is its ABI, on the chain that the path has, else that of --chain; Etherscan names proxies.

    In a folder that an address names the names of the files say nothing: an ABI, or Sourcify's metadata, which names
    its contract.
    """
    folder = tmp_path / "abis"
    (folder / "137").mkdir(parents=True)
    (folder / f"{TOKEN}.json").write_text(json.dumps([entry(TRANSFER), entry(EVENT, "event")]))
    (folder / f"{PROXY}.json").write_text(
        json.dumps(explorer_answer([entry("upgradeTo(address)")], Proxy="1", Implementation=TOKEN))
    )
    (folder / "137" / f"{OTHER}.json").write_text(json.dumps({"status": "1", "result": json.dumps([entry("own()")])}))
    target = {"settings": {"compilationTarget": {"src/Own.sol": "Own"}}, "sources": {}, "version": 1}
    metadata = target | {"compiler": {"version": "0.8.20"}, "language": "Solidity", "output": {"abi": [entry("b()")]}}
    for chain, name, content in ((1, "abi.json", [entry("a()")]), (2, "metadata.json", metadata)):
        path = folder / "full_match" / f"{chain}" / OTHER / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content))
    report = imported(warehouse, folder, "--chain", "10")
    assert (report["deployments"], report["interfaces"]) == (5, 5)
    token, proxy = at(warehouse, TOKEN, 10), at(warehouse, PROXY, 10)
    assert token.texts == {member(TRANSFER), member(EVENT, Kind.EVENT)}
    assert proxy.implementations == (bytes.fromhex(TOKEN[2:]),)
    assert proxy.texts == token.texts | {member("upgradeTo(address)")}
    assert at(warehouse, OTHER, 137).texts == {member("own()")}
    assert not at(warehouse, OTHER, 10).sources
    assert [at(warehouse, OTHER, chain).texts for chain in (1, 2)] == [{member("a()")}, {member("b()")}]
    assert not imported(warehouse, folder, "--chain", "10")["published"]


def test_tables_of_code_hashes_share_the_interface_of_the_code(warehouse: Path, tmp_path: Path) -> None:
    """CSV, Parquet and JSON lines give addresses the interface of an artifact with this code, before it or after it."""
    code = "5f3560e01c8063a9059cbb14610014575f5ffd005b00"
    code_hash = "0x" + code_keccak256(bytes.fromhex(code)).hex()
    addresses = [TOKEN, "0xnothing", OTHER]
    rows: dict[str, list[Any]] = {"chain_id": [1, 1, 10], "address": addresses, "code_hash": [code_hash] * 3}
    write_table(tmp_path / "a.csv", rows)
    write_table(tmp_path / "b.parquet", rows | {"address": [TOKEN.upper().replace("0X", "0x"), OTHER, PROXY]})
    write_table(tmp_path / "c.jsonl", rows)
    artifact = {"contractName": "C", "abi": [entry(TRANSFER)], "deployedBytecode": "0x" + code}
    (tmp_path / "C.json").write_text(json.dumps(artifact))
    report = imported(warehouse, *(tmp_path / name for name in ("a.csv", "b.parquet", "c.jsonl", "C.json")))
    assert report["interfaces"] == 1
    [csv] = [file["warnings"] for file in report["files"] if file["path"].endswith("a.csv")]
    assert csv == ["1 row was not read: no address of 20 bytes; the first is row 2"]
    for address, chain in ((TOKEN, 1), (OTHER, 1), (PROXY, 10), (OTHER, 10)):
        assert at(warehouse, address, chain).texts == {member(TRANSFER)}, address
    [first, *_] = deployments_at(manifest(warehouse), 1, bytes.fromhex(TOKEN[2:]))
    assert (first.by_code, "0x" + first.interface.hex()) == (True, code_hash)


def test_the_interface_of_a_code_is_kept_until_an_address_has_it(warehouse: Path, tmp_path: Path) -> None:
    """An import of an artifact without any address keeps the interface of its code for a table of a later import."""
    code = "5f3560e01c8063a9059cbb14610014575f5ffd005b00"
    artifact = {"contractName": "C", "abi": [entry(TRANSFER)], "deployedBytecode": "0x" + code}
    (tmp_path / "C.json").write_text(json.dumps(artifact))
    assert imported(warehouse, tmp_path / "C.json")["interfaces"] == 1
    assert sigdir.open(warehouse).sql("SELECT known_by, functions FROM interfaces").rows() == [("code", 1)]
    assert not json.loads(invoke(warehouse, "verify", "--json").stdout)["notes"]
    (tmp_path / "a.csv").write_text(f"address,code_hash\n{TOKEN},0x{code_keccak256(bytes.fromhex(code)).hex()}\n")
    imported(warehouse, tmp_path / "a.csv")
    assert invoke(warehouse, "compact").status == 0
    assert at(warehouse, TOKEN).texts == {member(TRANSFER)}


def test_an_address_has_the_texts_of_all_its_sources(warehouse: Path, tmp_path: Path) -> None:
    """Texts beside addresses are candidates and the interface. Of two tables with a text each both count, merged too.

    A selector says that there is such a function, not which; beside its text it says nothing.
    """
    for name, rows in (
        ("a", f'signature\n{TOKEN},"{WORKED}"\n{TOKEN},not a text\n'), ("b", f"signature\n{TOKEN},{EVENT.lower()}\n"),
        ("c", f"selectors\n{TOKEN},0xa9059cbb\n{OTHER},0xa9059cbb 0x095ea7b3\n"),
    ):  # fmt: skip
        (tmp_path / f"{name}.csv").write_text(f"address,{rows}")
        totals = imported(warehouse, tmp_path / f"{name}.csv")["totals"]
        assert list(totals.values()) == {"a": [2, 1, 0, 1], "b": [1, 1, 0, 0], "c": [0, 0, 0, 0]}[name]
    known, texts = [Known(TRANSFER), Known(WORKED)], {member(WORKED), member(EVENT.lower())}
    assert at(warehouse, TOKEN).texts == texts
    assert at(warehouse, TOKEN).sources == ("c.csv", "b.csv", "a.csv")
    for address, memberships in ((TOKEN, ["CANNOT", "HAS"]), (OTHER, ["UNKNOWN", "UNKNOWN"])):
        marked = at(warehouse, address).marked(bytes.fromhex("a9059cbb"), known)
        assert [one.membership.name for one in marked] == memberships
    assert invoke(warehouse, "compact").status == 0
    assert at(warehouse, TOKEN).texts == texts


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_text_beside_an_address_has_any_name(warehouse: Path, tmp_path: Path, ending: str) -> None:
    """Values say which column has the texts, beside a column of selectors too, and a kind and a whole hash are read.

    Names of contracts are no addresses: such a table is one of signatures. A text beside a bad address or chain has no
    contract. No row is lost.
    """
    hashes = ["0x" + keccak256(WORKED)[:4].hex(), "0x" + keccak256(EVENT).hex()]
    rows = {"contract": [TOKEN, TOKEN], "Selector": hashes, "sig": [WORKED, EVENT], "note": ["some", "words"]}
    write_table(tmp_path / f"a.{ending}", rows)
    write_table(tmp_path / f"b.{ending}", {"address": [OTHER], "name": ["Bad(uint256)"], "type": ["error"]})
    shared = [TRANSFER, "many_msg_babbage(bytes1)"]
    named = {"contract": ["ERC20", "Vault"], "selector": ["0xa9059cbb"] * 2, "signature": shared}
    write_table(tmp_path / f"c.{ending}", named)
    bad = {"address": [TOKEN, OTHER, "0xnothing"], "chain": ["1", "one", "1"], "signature": ["a()", "b()", "c()"]}
    write_table(tmp_path / f"d.{ending}", bad)
    report = imported(warehouse, tmp_path)
    assert report["totals"] == {"read": 8, "imported": 8, "duplicate": 0, "rejected": 0}
    assert report["files"][-1]["warnings"] == [
        "1 row was read without an address: no address of 20 bytes; the first is row 3",
        "1 row was read without an address: no number of a chain; the first is row 2",
    ]
    assert at(warehouse, TOKEN).texts == {member(WORKED), member(EVENT, Kind.EVENT), member("a()")}
    assert at(warehouse, OTHER).texts == {member("Bad(uint256)", Kind.ERROR)}


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_an_abi_beside_an_address(warehouse: Path, tmp_path: Path, ending: str) -> None:
    """A table of ABIs gives them to its addresses. A row without an ABI is a reject; one without an address or a chain
    has its texts read. What else it says of the contract is kept.
    """
    code = "5f3560e01c8063a9059cbb14610014575f5ffd005b00"
    artifact = {"contractName": "C", "abi": [entry(TRANSFER)], "deployedBytecode": "0x" + code}
    (tmp_path / "C.json").write_text(json.dumps(artifact))
    abis = [
        json.dumps(abi, indent=1) for abi in ([entry(WORKED), entry(EVENT, "event")], [entry("a()")], [entry("b()")])
    ]
    code_hash = "0x" + code_keccak256(bytes.fromhex(code)).hex()
    addresses, none = [TOKEN, OTHER, PROXY, "0xnothing", TOKEN], "Contract source code not verified"
    rows = {"address": addresses, "chain_id": ["1", "10", "one", "1", "1"], "abi": [*abis, abis[2], none]}
    write_table(tmp_path / f"a.{ending}", rows)
    write_table(tmp_path / f"b.{ending}", {"contract": [PROXY, OTHER], "ABI": abis[:2], "code_hash": [code_hash, None]})
    report = imported(warehouse, tmp_path, "--chain", "5")
    assert report["totals"] == {"read": 10, "imported": 5, "duplicate": 4, "rejected": 1}
    [why] = [file["warnings"] for file in report["files"] if file["path"].endswith(f"a.{ending}")]
    assert why == [
        "1 row was read without an address: no address of 20 bytes; the first is row 4",
        "1 row was read without an address: no number of a chain; the first is row 3",
    ]
    worked = {member(WORKED), member(EVENT, Kind.EVENT)}
    assert at(warehouse, TOKEN).texts == worked
    assert at(warehouse, OTHER, 10).texts == at(warehouse, OTHER, 5).texts == {member("a()")}
    assert at(warehouse, PROXY, 5).texts == worked | {member(TRANSFER)}
    assert not at(warehouse, PROXY).sources


def test_an_artifact_in_one_line_is_no_table(warehouse: Path, tmp_path: Path) -> None:
    """Its address may be on any chain."""
    (tmp_path / "C.json").write_text(json.dumps({"address": TOKEN, "abi": [entry("a()")]}))
    [file] = imported(warehouse, tmp_path / "C.json")["files"]
    assert file["format"] == "json"
    assert not at(warehouse, TOKEN).sources


def test_members_of_rows_inside_a_line_are_no_columns(warehouse: Path, tmp_path: Path) -> None:
    """A line of JSON with a list of rows is not read as a row that has their members."""
    row = {"chain": 1, "address": TOKEN, "code_hash": "0x" + "11" * 32}
    (tmp_path / "a.jsonl").write_text(json.dumps({"results": [row]}))
    with pytest.raises(BadInput, match=r"a\.jsonl"):
        import_files([tmp_path / "a.jsonl"], warehouse)


def test_texts_without_quotes_beside_addresses(warehouse: Path, tmp_path: Path) -> None:
    """A text whose commas are not quoted is read, and a warning says that the addresses are not."""
    (tmp_path / "a.csv").write_text(f"contract,signature\n{TOKEN},{TRANSFER}\n{TOKEN},{WORKED}\n")
    report = imported(warehouse, tmp_path / "a.csv")
    assert report["totals"]["imported"] == 2
    assert "column 'contract' has 0x values" in report["files"][0]["warnings"][0]


def test_an_abi_is_given_an_address(warehouse: Path, tmp_path: Path) -> None:
    """--contract names the contract of one ABI. Several contracts, none, and a bad address are refused, and nothing is published."""
    (abi := tmp_path / "abi.json").write_text(json.dumps([entry(WORKED)]))
    (two := tmp_path / "two.json").write_text(json.dumps({"A": {"abi": [entry("a()")]}, "B": {"abi": [entry("b()")]}}))
    (texts := tmp_path / "list.txt").write_text("c()\n")
    for input, why in ((two, "several contracts"), (texts, "no ABI is among the inputs")):
        refused = invoke(warehouse, "import", input, "--contract", f"1:{TOKEN}")
        assert (refused.status, why in refused.stderr) == (2, True), refused.stderr
    for place, why in (("1:0x12", "is no address"), (TOKEN, "is no chain"), (f"0:{TOKEN}", "is no chain")):
        refused = invoke(warehouse, "import", abi, "--contract", place)
        assert (refused.status, why in refused.stderr) == (2, True), refused.stderr
    assert read_snapshot(Paths(warehouse)).version == -1
    imported(warehouse, abi, "--contract", f"56:{TOKEN}")
    assert at(warehouse, TOKEN, 56).texts == {member(WORKED)}


def proxies(path: Path, targets: dict[str, str]) -> Path:
    path.write_text("address,implementation\n" + "\n".join(f"{one},{to}" for one, to in targets.items()))
    return path


def test_proxies_are_followed_so_far_and_no_circle(warehouse: Path, tmp_path: Path) -> None:
    """A circle ends where it begins, a long chain after MAX_PROXIES, and the contract says so."""
    addresses = [f"0x{number:040x}" for number in range(1, MAX_PROXIES + 4)]
    chain = dict(pairwise(addresses))
    imported(warehouse, proxies(tmp_path / "p.csv", chain | {TOKEN: PROXY, PROXY: TOKEN, OTHER: "0x" + "99" * 20}))
    assert at(warehouse, TOKEN).unfollowed == f"the proxies lead back to {TOKEN}"
    long = at(warehouse, addresses[0])
    assert (len(long.implementations), long.unfollowed) == (MAX_PROXIES, f"more than {MAX_PROXIES} proxies")
    assert at(warehouse, OTHER).unfollowed == f"the implementation 0x{'99' * 20} is not known"


def test_a_proxy_that_leads_nowhere_says_so(warehouse: Path, tmp_path: Path) -> None:
    """Where only its own functions are known, a reader of a decoded call learns that others may be behind it."""
    (abi := tmp_path / "proxy.json").write_text(json.dumps([entry("implementation()"), entry("admin()")]))
    imported(warehouse, abi, "--contract", f"1:{PROXY}")
    lack = "it has implementation(), as proxies do, and no import says what it delegates to"
    assert (at(warehouse, PROXY).lack, at(warehouse, PROXY).document()["detail"]) == (lack, lack)
    assert f": 2 texts. But {lack}." in invoke(warehouse, "decode", CALL, "--chain", "1", "--to", PROXY).stderr
    (other := tmp_path / "other.json").write_text(json.dumps([entry(TRANSFER)]))
    imported(warehouse, other, "--contract", f"1:{TOKEN}")
    imported(warehouse, proxies(tmp_path / "p.csv", {PROXY: TOKEN}))
    assert (at(warehouse, PROXY).lack, at(warehouse, TOKEN).lack) == ("", "")


def test_a_source_adds_or_replaces_and_a_compaction_keeps_what_counts(warehouse: Path, tmp_path: Path) -> None:
    """The newest statement comes first; --replace-source withdraws the others; merged files answer the same, older versions too."""
    hashes = ["0x" + f"{number:064x}" for number in range(1, 4)]
    table = tmp_path / "table.csv"

    def said() -> list[tuple[int, str]]:
        found = deployments_at(manifest(warehouse), 1, bytes.fromhex(TOKEN[2:]))
        return [(one.import_id, "0x" + one.interface.hex()) for one in found]

    for code_hash in hashes[:2]:
        table.write_text(f"address,code_hash\n{TOKEN},{code_hash}\n{OTHER},{hashes[0]}\n")
        assert imported(warehouse, table, "--source", "ours")["published"]
    assert said() == [(2, hashes[1]), (1, hashes[0])]
    assert invoke(warehouse, "compact").status == 0
    assert len(manifest(warehouse).mapped_of(CONTRACTS)) == 1
    assert said() == [(2, hashes[1]), (1, hashes[0])]
    [other] = deployments_at(manifest(warehouse), 1, bytes.fromhex(OTHER[2:]))
    assert (other.import_id, other.interface.hex()) == (2, hashes[0][2:])
    table.write_text(f"address,code_hash\n{TOKEN},{hashes[2]}\n")
    imported(warehouse, table, "--source", "ours", "--replace-source")
    assert [code_hash for _, code_hash in said()] == [hashes[2]]
    assert not deployments_at(manifest(warehouse), 1, bytes.fromhex(OTHER[2:]))
    older = sigdir.open(warehouse, as_of=1).sql("SELECT interface, import_id FROM contracts")
    assert older.rows() == [(hashes[0], 1), (hashes[0], 1)]
    assert invoke(warehouse, "vacuum", "--keep", "0s").status == 0
    assert invoke(warehouse, "verify").status == 0
    copy = warehouse.with_name("copy")
    assert invoke(warehouse, "backup", copy).status == 0
    assert [one[1] for one in said()] == [hashes[2]]
    assert at(copy, TOKEN) == at(warehouse, TOKEN)


def test_lookups_are_those_of_a_dictionary(warehouse: Path, tmp_path: Path) -> None:
    """Addresses with zeros and high bytes, on chains with few and many, are found by their chain alone; SQL has the same rows."""
    chance = random.Random(5)
    rows = {
        (chance.choice([1, 10, 2**40]), chance.choice([b"\0", b"\xff", chance.randbytes(1)]) * 10 + chance.randbytes(9) + b"\0"):
        chance.randbytes(1) * 32 for _ in range(3000)
    }  # fmt: skip
    table = {
        "chain": [chain for chain, _ in rows], "address": pa.array([address for _, address in rows], pa.binary()),
        "code_hash": pa.array(list(rows.values()), pa.binary()),
    }  # fmt: skip
    write_table(tmp_path / "rows.parquet", table)
    imported(warehouse, tmp_path / "rows.parquet")
    found = manifest(warehouse)
    for (chain, address), code_hash in rows.items():
        assert [one.interface for one in deployments_at(found, chain, address)] == [code_hash]
    assert not deployments_at(found, 2, next(iter(rows))[1])
    select = "SELECT chain, address, interface FROM contracts"
    shown = {(chain, "0x" + address.hex(), "0x" + hash.hex()) for (chain, address), hash in rows.items()}
    assert set(sigdir.open(warehouse).sql(select).rows()) == shown
    [file] = found.mapped_of(CONTRACTS)
    assert file.size <= 24 * len(rows) + 33 * 256 + 1024


def test_a_damaged_file_is_found_and_never_read(warehouse: Path, tmp_path: Path) -> None:
    """A flipped byte is an error of look-ups and SQL, and a finding of verify, which names the file."""
    imported(warehouse, proxies(tmp_path / "p.csv", {TOKEN: OTHER}))
    [file] = manifest(warehouse).mapped
    raw = bytearray(file.path.read_bytes())
    raw[-3] ^= 1
    file.path.write_bytes(raw)
    with pytest.raises(UnreadableWarehouse, match="damaged"):
        at(warehouse, TOKEN)
    checked = invoke(warehouse, "verify")
    assert (checked.status, f"{file.path.name}: not the bytes" in checked.stdout.decode()) == (1, True), checked.stdout
    file.path.unlink()
    assert f"{file.path.name}: missing" in invoke(warehouse, "verify").stdout.decode()


def test_decoding_by_an_address(warehouse: Path, tmp_path: Path) -> None:
    """The command, a file, and SQL put the contract's text first, and say by which contract it was read."""
    (tmp_path / "texts.txt").write_text(f"{TRANSFER}\n{WORKED}\n")
    (abi := tmp_path / "abi.json").write_text(json.dumps([entry(WORKED)]))
    imported(warehouse, tmp_path / "texts.txt")
    imported(warehouse, abi, "--contract", f"1:{TOKEN}")
    place = ["--chain", "1", "--to", TOKEN]
    shown = invoke(warehouse, "decode", CALL, *place)
    assert shown.stdout.decode().startswith(f"{WORKED}  (high: the contract 1:{TOKEN} has it")
    assert f"Read by the contract 1:{TOKEN}: 1 text." in shown.stderr
    assert invoke(warehouse, "decode", CALL, "--chain", "0x1", "--to", TOKEN) == shown
    unknown = invoke(warehouse, "decode", CALL, "--chain", "2", "--to", TOKEN)
    assert (unknown.status, unknown.stdout.decode().startswith(TRANSFER)) == (0, True)
    assert f"Read without a contract's texts: no import has seen the interface of 2:{TOKEN}." in unknown.stderr
    wrong = ["--chain", "1", "--to", "0x12"]
    for bad, why in ((["--to", TOKEN], "--chain 1 --to"), (wrong, "to: '0x12' is no address")):
        refused = invoke(warehouse, "decode", CALL, *bad)
        assert (refused.status, why in refused.stderr) == (2, True), refused.stderr
    write_table(calls := tmp_path / "calls.jsonl", {"input": [CALL] * 2, "to": [TOKEN, OTHER]})
    written = invoke(warehouse, "decode", "--file", calls, "--chain", "1").stdout.splitlines()
    assert [(row["text_signature"], row["contract"]) for row in map(json.loads, written)] == [
        (WORKED, f"1:{TOKEN}"), (TRANSFER, None),
    ]  # fmt: skip
    joined: dict[str, list[Any]] = {
        "topics": [["0x" + "11" * 32]] * 2,
        "data": ["0x"] * 2,
        "to_address": [OTHER, TOKEN],
        "address": [TOKEN, None],
    }
    write_table(logs := tmp_path / "logs.jsonl", joined)  # the log's own address, not that of its transaction
    written = invoke(warehouse, "decode", "--file", logs, "--chain", "1").stdout.splitlines()
    assert [json.loads(row)["contract"] for row in written] == [f"1:{TOKEN}"] * 2
    (abi := tmp_path / "given.json").write_text(json.dumps([entry(TRANSFER)]))
    (code := tmp_path / "given.hex").write_text("0x6000")
    for option, given in (("abi", abi), ("code", code)):
        written = invoke(warehouse, "decode", "--file", calls, f"--{option}", given).stdout.splitlines()
        assert [row["contract"] for row in map(json.loads, written)] == [option] * 2
    query = "SELECT decode_calldata($call, 1, $to), decode_calldata($call)"
    by_contract, without = map(json.loads, sigdir.open(warehouse).sql(query, {"call": CALL, "to": TOKEN}).rows()[0])
    assert (by_contract["candidates"][0]["text_signature"], by_contract["contract"]["by"]) == (WORKED, "deployment")
    assert (without["candidates"][0]["text_signature"], without["contract"]) == (TRANSFER, None)
    [(interface,)] = sigdir.open(warehouse).sql("SELECT texts FROM interfaces").rows()
    assert interface == [WORKED]


@pytest.mark.parametrize("name", ["chain.jsonl", "chainId.csv", "chain_id.parquet"])
def test_a_row_of_a_file_names_its_own_chain(warehouse: Path, tmp_path: Path, name: str) -> None:
    """As a number or as a node has it; `--chain` is that of a row without one."""
    (tmp_path / "texts.txt").write_text(f"{TRANSFER}\n{WORKED}\n")
    (abi := tmp_path / "abi.json").write_text(json.dumps([entry(WORKED)]))
    imported(warehouse, tmp_path / "texts.txt")
    imported(warehouse, abi, "--contract", f"137:{TOKEN}")
    calls, column = tmp_path / name, name.partition(".")[0]
    numbers = pa.array([137, 137, 1, None, 0, None], pa.uint64())
    chains = numbers if column == "chain_id" else ["137", "0x89", "1", None, "0", "polygon"]
    write_table(calls, {"input": [CALL] * 6, "to": [TOKEN] * 6, column: chains})

    def contracts(*options: str) -> list[str | None]:
        lines = invoke(warehouse, "decode", "--file", calls, *options).stdout.splitlines()
        return [json.loads(line)["contract"] for line in lines]

    there = f"137:{TOKEN}"
    assert contracts() == [there, there, None, None, None, None]
    assert contracts("--chain", "137") == [there, there, None, there, None, there]
