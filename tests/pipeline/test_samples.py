"""What each input shape says about its texts: kind, witness, declaration, contract. The shapes are those of docs/formats.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sigdir.pipeline.formats.registry import FORMATS, detect
from sigdir.pipeline.inputs import find
from sigdir.signatures.canonicalise import MAX_VARIANTS
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from tests.pipeline.formats_table import PAGE, with_table
from tests.pipeline.support import canonicalised, invoke, read_alone, texts_and_sightings, write_files
from tests.pipeline.test_formats import detected

_SAMPLE = re.compile(
    r"^`(?P<file>[^`]+)` is `(?P<format>[a-z0-9-]+)`: (?P<texts>[^\n]*)\n\n```\w*\n(?P<data>.*?\n)```$",
    re.MULTILINE | re.DOTALL,
)


class Said(NamedTuple):
    """A sighting with its text, and the contract by its name."""

    text: str
    kind: Kind
    witness: Witness
    declaration: str = ""
    contract: str = ""


def sightings(path: Path) -> list[tuple[str, Sighting | None]]:
    """The texts of an input and what it says about each, in order; None for a plain text of a list."""
    [source] = find([str(path)])
    with source.open(lambda _: None):
        reader = detect(source)
        assert reader is not None
        results = canonicalised(read_alone(reader, source))
        return [one for result in results for rows in result.accepted.values() for one in texts_and_sightings(rows)]


def said(path: Path) -> set[Said]:
    return {
        Said(text, one.kind, one.witness, one.declaration, one.contract.name if one.contract else "")
        for text, one in ((text, one or Sighting()) for text, one in sightings(path))
    }


F, E, X, U = Kind.FUNCTION, Kind.EVENT, Kind.ERROR, Kind.UNKNOWN
LISTED, DECLARED = Witness.LISTED, Witness.DECLARED
SET, LOGGED, LOW, PLACE = "set(uint256)", "Set(uint256)", "Low(uint256)", "place((address,uint256))"
LISTS = {Said(SET, U, LISTED), Said(LOGGED, E, LISTED)}
SETS = Said(SET, F, DECLARED, "function set(uint256 value)")
LOGS = Said(LOGGED, E, DECLARED, "event Set(uint256 value)")
PLACES = Said(PLACE, F, DECLARED, "function place((address owner, uint256 amount) order)")
DAI = "0x6b175474e89094c44da98b954eedeac495271d0f"
STORE_SETS, STORE_LOGS = SETS._replace(contract="Store"), LOGS._replace(contract="Store")
STORE_PLACES = Said(PLACE, F, DECLARED, "function place((address owner, uint256 amount) o)", "Store")
STORE_HAS = Said(SET, F, DECLARED, "", "Store")

SAID = {
    "list.txt": {Said(SET, U, LISTED), Said(LOGGED, E, LISTED, "event Set(uint256 indexed value)")},
    "rows.jsonl": {Said(SET, U, LISTED)},
    "4byte.json": {Said(SET, U, LISTED)},
    "export.csv": LISTS,
    "import.json": LISTS,
    "lookup.json": {Said(SET, U, LISTED)},
    "calldata-token.json": {Said(
        "transfer(address,uint256)", F, Witness.DESCRIBED, "function transfer(address to, uint256 value)", "calldata-token.json"
    )},
    "signatures": LISTS,
    "dump.jsonl": {SETS},
    "etherface.csv": {Said(SET, F, LISTED)},
    "list.csv": {Said(SET, U, LISTED)},
    "Store.abi": {STORE_SETS, STORE_LOGS},
    "abi.jsonl": {SETS, LOGS},
    "abi.json": {SETS, PLACES},
    "abis.json": {STORE_SETS, LOGS._replace(contract="Log")},
    "Store.json": {STORE_SETS, STORE_HAS},
    "ids.json": {Said(SET, U, LISTED)},
    "input.json": {STORE_PLACES},
    "output.json": {STORE_SETS, STORE_HAS},
    "build-info.json": {STORE_PLACES, STORE_SETS},
    "hardhat3.json": {STORE_PLACES},
    "hardhat3.output.json": {STORE_SETS},
    "combined.json": {STORE_SETS, STORE_HAS},
    "metadata.json": {STORE_SETS},
    "getabi.json": {SETS},
    "getsourcecode.json": {
        SETS._replace(contract="A"),
        STORE_PLACES._replace(contract="B"),
        Said("total()", F, DECLARED, "function total()", "C"),
    },
    "Store.json, 0x": {STORE_SETS},
    "contracts.csv": {Said(text, U, DECLARED, "", DAI) for text in (SET, "get()")},
    "abis.csv": {SETS._replace(contract=DAI)},
    "deployments.json": {STORE_SETS},
    "__local__.json": {STORE_SETS, STORE_PLACES},
    "Store__factory.ts": {SETS},
    "abi.ts": {SETS, PLACES, LOGS},
    "hashes.txt": {STORE_HAS, Said(LOW, X, DECLARED, "", "Store"), Said(LOGGED, E, DECLARED, "", "Store")},
    "inspect.txt": {Said(SET, U, LISTED)},
    "selectors.txt": {Said(SET, F, DECLARED), Said(LOW, X, DECLARED)},
    "Store.vy": {
        Said(
            "place((address,uint256[4]))", F, DECLARED,
            "function place((address owner, uint256[4] amounts) order)", "Store",
        ),
        Said(
            "place((address,uint256[4]),bytes)", F, DECLARED,
            "function place((address owner, uint256[4] amounts) order, bytes data)", "Store",
        ),
        Said(
            "orders(address,uint256)", F, DECLARED,
            "function orders(address, uint256) view returns ((address owner, uint256[4] amounts))", "Store",
        ),
        Said("coins(uint256)", F, DECLARED, "function coins(uint256 i) view returns (address)", "Pool"),
        Said("Placed(address,uint256)", E, DECLARED, "event Placed(address indexed by, uint256 side)", "Store"),
    },
    "Store.sol.txt": {PLACES._replace(contract="Store")},
    "store.go": {SETS},
    "store.rs": {STORE_SETS, PLACES._replace(contract="sol")},
    "Store.huff": {
        Said(SET, F, DECLARED, "function set(uint256)", "Store"),
        Said(LOGGED, E, DECLARED, "event Set(uint256 indexed value)", "Store"),
    },
    "Store.d.ts": {STORE_HAS, Said(LOGGED, E, DECLARED, "", "Store")},
}  # fmt: skip
"""By the file of a sample in docs/formats.md, with its heading where two samples have the same file."""


class Sample(NamedTuple):
    """One sample of the document."""

    file: str
    format: str
    texts: set[str]
    data: str


def _documented() -> dict[str, Sample]:
    """The samples of the document by their keys in SAID."""
    found: dict[str, Sample] = {}
    for section in PAGE.read_text().split("\n### ")[1:]:
        title = section.partition("\n")[0]
        for one in _SAMPLE.finditer(section):
            key = one["file"] if one["file"] not in found else f"{one['file']}, {title}"
            found[key] = Sample(one["file"], one["format"], set(re.findall("`([^`]+)`", one["texts"])), one["data"])
    return found


BY_KEY = _documented()
SAMPLES = list(BY_KEY.values())


def test_every_format_has_a_sample() -> None:
    """The document has a sample of each format that is text, and of each shape of JSON; each is in the table."""
    formats = {sample.format for sample in SAMPLES}
    assert formats == {format.name for format in FORMATS} - {"tree", "sqlite", "parquet"}
    assert BY_KEY.keys() == SAID.keys()
    assert len(SAID) > 30


def test_the_table_has_the_formats_own_sentences() -> None:
    """`make formats` writes it."""
    assert with_table(PAGE.read_text()) == PAGE.read_text()


@pytest.mark.parametrize("key", SAID)
def test_a_sample(tmp_path: Path, key: str) -> None:
    """It is detected as the format that the document names, and gives these texts with what it says of them, and no more."""
    sample = BY_KEY[key]
    [path] = write_files(tmp_path, {sample.file: sample.data})
    assert detected(path) == sample.format
    assert {one.text for one in said(path)} == sample.texts
    assert said(path) == SAID[key]


def test_lines_that_are_declarations(tmp_path: Path) -> None:
    """A line in words counts as listed, with its kind and its parameters' names; others of its batch stay plain.

    A batch of canonical lines has no column of sightings: it costs nothing.
    """
    lines = (
        "set(uint256)\nfunction f(uint a) public view returns (bool ok);\nset(uint)\nset(uint value)\nerror Low(uint)\n"
    )
    words, plain = write_files(tmp_path, {"list.txt": lines, "plain.txt": "set(uint256)\nget()\n"})
    assert [one or Sighting() for _, one in sightings(words)] == [
        Sighting(),
        Sighting(F, LISTED, "function f(uint256 a) view returns (bool ok)"),
        Sighting(),
        Sighting(U, LISTED, "set(uint256 value)"),
        Sighting(X, LISTED, "error Low(uint256)"),
    ]
    assert sightings(plain) == [(SET, None), ("get()", None)]


def test_declarations_that_are_left_out(tmp_path: Path) -> None:
    """Of many declarations of one text the first are kept. The report counts the others for all inputs, and for each.

    Every line is a sighting with its kind. Placeholders of a dump have no text, and are not many declarations of one text.
    """
    lines = [f"function set(uint256 name{number})" for number in range(MAX_VARIANTS + 36)]
    dump = [
        json.dumps({"selector": f"0x{number:08x}", "abi": {
            "type": "function", "name": f"unknown{number:08x}", "inputs": [], "outputs": []}})
        for number in range(2 * MAX_VARIANTS)
    ]  # fmt: skip
    files = {"many.txt": "\n".join(lines) + "\n", "few.txt": lines[0], "dump.jsonl": "\n".join(dump)}
    paths = write_files(tmp_path / "in", files)
    assert [(text, one and (one.kind, one.declaration)) for text, one in sightings(tmp_path / "in" / "many.txt")] == [
        *((SET, (F, line)) for line in lines[:MAX_VARIANTS]), *[(SET, (F, ""))] * 36,
    ]  # fmt: skip
    report = json.loads(invoke(tmp_path / "w", "import", *paths, "--json").stdout)
    assert (report["totals"]["rejected"], report["variants_left_out"]) == (len(dump), 36)
    assert {Path(file["path"]).name: file.get("variants_left_out") for file in report["files"]} == {
        "many.txt": 36, "few.txt": None, "dump.jsonl": None,
    }  # fmt: skip
    shown = invoke(tmp_path / "w", "import", "--dry-run", *paths)
    assert "declarations left out: 36, of texts with over 64" in shown.stdout.decode() + shown.stderr


def test_a_contract_is_one_wherever_it_lies(tmp_path: Path) -> None:
    """The key of a contract is made of its source's path and its name, not of the folder of the artifact.

    In a build-info the source and the output name the same contract, and so do an artifact and its metadata.
    """
    abi = [{"type": "function", "name": "set", "inputs": []}]
    metadata = {"output": {"abi": abi}, "settings": {"compilationTarget": {"Store.sol": "Store"}}}
    artifacts: dict[str, dict[str, Any]] = {
        "a/Store.json": {"contractName": "Store", "sourceName": "contracts/Store.sol", "abi": abi},
        "b/c/Store.json": {"contractName": "Store", "sourceName": "x/node_modules/p/Store.sol", "abi": abi},
        "d/Store.json": {"contractName": "Store", "sourceName": "node_modules/p/Store.sol", "abi": abi},
        "e/Store.json": {"abi": abi, "metadata": metadata},
    }
    files = {name: json.dumps(artifact) for name, artifact in artifacts.items()}
    *paths, info = write_files(tmp_path, files | {"info.json": BY_KEY["build-info.json"].data})
    found = [{one.contract for _, one in sightings(path) if one} for path in paths]
    store, package = Contract.at("contracts/Store.sol", "Store"), Contract.at("node_modules/p/Store.sol", "Store")
    assert found == [{store}, {package}, {package}, {Contract.at("Store.sol", "Store")}]
    assert len(store.key) == len(package.key) == 8
    assert store.key != package.key
    assert len({one.contract for _, one in sightings(info) if one}) == 1


def test_what_does_not_fit_in_a_row_with_evidence_is_left_out(tmp_path: Path) -> None:
    """The text stays, as listed or with what fits."""
    row = {"text_signature": SET, "hex_signature": "0x60fe47b1", "declaration": "function set(uint256 value)",
           "kinds": ["function"], "witness": "compiled", "contracts": 7}  # fmt: skip
    other = {"declaration": "function get(uint256 value)"}
    rows = [
        row, row | other, row | {"declaration": 5}, row | {"declaration": "function set(uint"},
        row | {"kinds": ["event"]} | other, row | {"kinds": 5} | other, row | {"witness": "sworn"}, row | {"contracts": -1},
        row | {"contracts": 1 << 60}, {name: row[name] for name in ("text_signature", "hex_signature", "contracts")},
    ]  # fmt: skip
    [path] = write_files(tmp_path, {"rows.jsonl": "\n".join(map(json.dumps, rows))})
    whole = Sighting(F, DECLARED, "function set(uint256 value)", None, 7)
    bare = whole._replace(declaration="")
    assert [one for _, one in sightings(path)] == [
        whole, bare, bare, bare, bare._replace(kind=U), bare._replace(kind=U), whole._replace(witness=LISTED),
        whole._replace(contracts=0), whole._replace(contracts=0), Sighting(U, LISTED, "", None, 7),
    ]  # fmt: skip
    assert {text for text, _ in sightings(path)} == {SET}


def test_the_contracts_of_a_list_have_their_own_names(tmp_path: Path) -> None:
    """The name and the path that each artifact of a list has; the file names those that have none, and a bare ABI."""
    abi = [{"type": "function", "name": "set", "inputs": []}]
    named = {"contractName": "Store", "sourceName": "contracts/Store.sol", "abi": abi}
    document = [named, named | {"contractName": "Other"}, {"abi": abi}, {"metadata": {"settings": {"compilationTarget": {
        "src/Deep.sol": "Deep"}}}, "abi": abi}, [{"contractName": "Inner", "abi": abi}], abi]  # fmt: skip
    [path] = write_files(tmp_path, {"all.json": json.dumps(document)})
    found = [one.contract for _, one in sightings(path) if one is not None]
    of_file = Contract.at("all.json", "all")
    assert found == [
        Contract.at("contracts/Store.sol", "Store"), Contract.at("contracts/Store.sol", "Other"), of_file,
        Contract.at("src/Deep.sol", "Deep"), Contract.at("all.json", "Inner"), of_file,
    ]  # fmt: skip
