"""What is found in JSON, JavaScript and tables, and what is not: traps of real files. The shapes are in docs/formats.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.javascript import parse_literals
from sigdir.pipeline.formats.json_reader import parse_document
from sigdir.signatures.grammar import MAX_TEXT_BYTES
from tests.conftest import import_files
from tests.pipeline.support import write_files
from tests.pipeline.test_formats import (
    MOVED,
    TRANSFER,
    Read,
    Reading,
    Reject,
    detected,
    json_lines,
    read,
    selector,
    topic,
)

__all__ = ["read"]  # the fixture

SET = {"type": "function", "name": "set", "inputs": [{"name": "value", "type": "uint256"}]}
CONSTRUCTOR: dict[str, Any] = {"type": "constructor", "inputs": []}


# Lists that are no ABIs, and ABIs of others.


OF_OTHER_CHAINS: list[dict[str, Any]] = [
    {"type": "struct", "name": "Order", "members": []},
    {"type": "function", "name": "get", "inputs": [], "outputs": [{"name": "x", "type": "felt"}]},
    {"type": "function", "name": "get", "inputs": [{"name": "x", "type": "core::integer::u256"}], "outputs": []},
    {"type": "eventlog", "name": "Set", "inputs": [{"name": "x", "type": "int", "indexed": "0x1"}]},
    {"type": "function", "name": "get", "inputs": [{"name": "x", "type": "bool"}], "outputs": [{"type": "str"}]},
]


@pytest.mark.parametrize("entry", OF_OTHER_CHAINS, ids=json.dumps)
def test_abi_of_another_chain_is_rejected(read: Read, entry: dict[str, Any]) -> None:
    """The ABIs of Starknet and ICON have Ethereum's kinds and other selectors; every entry of them is a reject."""
    entries = [{"type": "function", "name": "total", "inputs": [], "outputs": [{"type": "uint256"}]}, entry]
    rejects = [Reject("bad_entry", json.dumps(item), 0, number) for number, item in enumerate(entries, 1)]
    assert read("abi.json", json.dumps(entries)) == Reading("abi", [], [], rejects)
    for data in ({"abi": entries}, {"abi": json.dumps(entries)}):
        assert read("abi.json", json.dumps(data)) == Reading("json", [], [], rejects)


def test_hash_that_is_not_the_texts(read: Read) -> None:
    """Identifiers, maps of hashes and OpenChain's answers are compared with their texts, wherever they lie."""
    identifiers = {"methodIdentifiers": {TRANSFER: "a9059cbb", "approve(address,uint256)": "a9059cbb"}}
    map = {"found": {"0xa9059cbb": TRANSFER, "0x12345678": "approve(address,uint256)", topic(MOVED): [MOVED]}}
    answer = {"result": {"function": {"imported": {TRANSFER: "0xa9059cbb"}, "invalid": ["narrow(uint7)"]}, "event": {
        "duplicated": {MOVED: topic(MOVED), "Other()": topic(MOVED)}}}}  # fmt: skip
    reading = read("input.json", json.dumps([identifiers, map, answer]))
    assert (reading.functions, reading.events) == ([TRANSFER, TRANSFER, TRANSFER], [MOVED, MOVED])
    assert reading.rejects == [
        Reject("hash_mismatch", "approve(address,uint256)", 0, 2),
        Reject("hash_mismatch", "approve(address,uint256)", 0, 4),
        Reject("bad_width", "narrow(uint7)", 8, 7),
        Reject("hash_mismatch", "Other()", 0, 9),
    ]


def test_entries_that_are_not_understood_are_counted(read: Read) -> None:
    """A broken entry, a broken ABI in a text, and identifiers without a hash are rejects; the rest is read."""
    document = {
        "a": {"abi": [CONSTRUCTOR, SET, {"type": "widget"}, 7]},
        "b": {"abi": '[{"type": "function"'},
        "c": {"methodIdentifiers": {"f()": None, "set(uint256)": selector("set(uint256)")[2:]}},
    }
    reading = read("input.json", json.dumps(document))
    assert reading.functions == ["set(uint256)"] * 2
    assert reading.rejects == [
        Reject("bad_entry", text, 0, line)
        for line, text in enumerate(['{"type": "widget"}', "7", json.dumps('[{"type": "function"'), '{"f()": null}'], 3)
    ]


def test_one_abi_in_several_places(read: Read) -> None:
    """The ABI of an artifact and of its metadata are both candidates."""
    document = {"abi": [SET], "rawMetadata": json.dumps({"output": {"abi": [SET]}}), "data": [{"more": [SET]}]}
    assert read("Store.json", json.dumps(document)) == Reading("json", ["set(uint256)"] * 3)


def test_text_in_text_is_searched_to_a_bound(read: Read, tmp_path: Path) -> None:
    """A document in a text in a text is searched four texts deep."""
    document: Any = {"abi": [SET]}
    for _ in range(4):
        document = {"text": json.dumps(document)}
    assert read("deep.json", json.dumps(document)) == Reading("json", ["set(uint256)"])
    [path] = write_files(tmp_path, {"deeper.json": json.dumps({"text": json.dumps(document)})})
    assert detected(path) is None


def test_lists_and_lines_of_contracts(read: Read) -> None:
    """An object by number of chain, which looks like a selector, and a page without texts are searched; so is each line.

    The first lines together decide whether lines of JSON hold ABIs; a line of nothing is a reject with its number.
    """
    for document in ({"11155111": [{"abi": [SET]}]}, {"results": [{"abi": [SET]}]}):
        assert read("input.json", json.dumps(document)) == Reading("json", ["set(uint256)"])
    nothing = '{"address": "0x", "abi": null}'
    data = json_lines(nothing, {"address": "0x", "ABI": json.dumps([SET])}, [SET], "{", CONSTRUCTOR, SET)
    rejects = [Reject("bad_entry", nothing, 0, 1), Reject("bad_entry", "{", 0, 4)]
    assert read("contracts.jsonl", data) == Reading("json", ["set(uint256)"] * 3, [], rejects)
    data = json_lines({"address": "0x", "abi": [SET]}, {"address": "0x"})
    rejects = [Reject("bad_entry", '{"address": "0x"}', 0, 2)]
    assert read("contracts", data) == Reading("json", ["set(uint256)"], [], rejects)


ABI_TEXT = json.dumps([SET])
IDENTIFIERS = {"set(uint256)": selector("set(uint256)")[2:]}


@pytest.mark.parametrize(
    "contract",
    [
        {"interface": ABI_TEXT, "functionHashes": {}},
        {"json-abi": ABI_TEXT},
        {"hashes": IDENTIFIERS},
        {"functionHashes": IDENTIFIERS},
        {"metadata": json.dumps({"output": {"abi": [SET]}, "sources": {"Store.sol": {"keccak256": "0x"}}})},
    ],
    ids=", ".join,
)
def test_combined_json_of_each_variant(read: Read, contract: dict[str, Any]) -> None:
    """What `--combined-json` was asked for, and how old the compiler is, decides where the texts are."""
    tree = {"AST": {"children": [], "id": 1, "name": "SourceUnit", "src": "0:1:0"}}
    document = {"contracts": {"Store.sol:Store": contract}, "sourceList": [], "sources": {"Store.sol": tree}}
    assert read("combined.json", json.dumps(document)) == Reading("json", ["set(uint256)"])


def test_syntax_trees_take_no_memory() -> None:
    """Each node of a syntax tree is dropped while a document is parsed."""
    node = {"nodeType": "Block", "src": "0:1:0", "statements": [{"nodeType": "Return", "src": "0:1:0"}]}
    old = {"name": "Block", "src": "0:1:0", "children": []}
    document = {"sources": {"A.sol": {"id": 0, "ast": node, "AST": old}}}
    assert parse_document("x", json.dumps(document).encode()) == {"sources": {"A.sol": {"id": 0, "ast": {}, "AST": {}}}}


def test_sources_of_etherscan_as_a_file(read: Read) -> None:
    """The field SourceCode saved by itself begins with two braces."""
    data = "{" + json.dumps(standard_input({"A.sol": "interface A { function f() external; }"}), indent=2) + "}"
    assert read("source.json", data) == Reading("json", ["f()"])
    assert read("line.json", "{" + json.dumps(json.loads(data[1:-1])) + "}\n") == Reading("json", ["f()"])


# Declarations.


def declarations(*items: Any) -> str:
    return json.dumps(list(items))


def test_declarations_with_structs(read: Read) -> None:
    """Structs stand for their members, in any order and nested; one inside itself or unknown stays and is a reject."""
    data = declarations(
        "function place(Order order, (Order[2] a, uint b)[] list) returns (Order)", "constructor(address owner)",
        "struct Order { Side side; address owner; Part[] parts; }", "struct Part { uint256 amount; }",
        "struct Side { (uint8 a, bool b) x }", "event Placed(Order indexed order, Part Part) anonymous",
        "struct Loop { Loop[] loops; }", "function loop(Loop l)", "error Lost(Missing m)", "receive() external payable",
        "function cost() view returns (uint256) @29000", "function cheap()  @ 21 ",
    )  # fmt: skip
    order = "(((uint8,bool)),address,(uint256)[])"
    reading = read("abi.json", data)
    assert reading.functions == [f"place({order},({order}[2],uint256)[])", "cost()", "cheap()"]
    assert reading.events == [f"Placed({order},(uint256))"]
    assert [reject.text for reject in reading.rejects] == ["function loop(Loop l)", "error Lost(Missing m)"]
    assert {reject.reason for reject in reading.rejects} == {"unknown_type"}


def test_structs_that_grow_without_bound(read: Read) -> None:
    """Forty structs that each hold the one before twice stand for 2^40 types: a reject, at once.

    A struct of 20 kB in 2,000 functions and structs stands for 40 MB; those over the bound are rejects.
    """
    structs = ["struct S0 { uint a; }", *(f"struct S{n + 1} {{ S{n} a; S{n} b; }}" for n in range(40))]
    reading = read("abi.json", declarations(*structs, "function f(S2 s)", "function g(S40 s)"))
    assert reading.functions == ["f((((uint256),(uint256)),((uint256),(uint256))))"]
    assert [reject[:2] for reject in reading.rejects] == [("unknown_type", "function g(S40 s)")]
    [reject] = read("abi.json", declarations(*structs, f"function h({','.join(['S9 s'] * 20)})")).rejects
    assert reject.reason == "too_long"
    assert len(reject.text) < MAX_TEXT_BYTES
    long = f"struct L {{ {'uint256 a;' * 2_000} }}"
    users = [f"function f{n}(L l)" for n in range(1_000)] + [f"struct S{n} {{ L l; }}" for n in range(1_000)]
    reading = read("abi.json", declarations(long, *users))
    size = len(long) + sum(map(len, users))
    assert sum(map(len, reading.functions)) < (1 << 20) + 9 * size
    assert len(reading.functions) + len(reading.rejects) == 1_000
    assert {reject.reason for reject in reading.rejects} == {"unknown_type"}


# Sources inside documents.


def standard_input(sources: dict[str, str], **more: Any) -> dict[str, Any]:
    contents = {path: {"content": text} for path, text in sources.items()}
    return {"language": "Solidity", "sources": contents, "settings": {}} | more


def test_sources_resolve_among_themselves_only(tmp_path: Path, warehouse: Path) -> None:
    """Sources of a document import each other, not those of another document; a reject names source and line."""
    types = "struct Order { uint256 amount; }"
    store = "import './Types.sol';\ninterface Store {\n  function place(Order calldata o) external;\n}"
    files = {
        "a.json": json.dumps(standard_input({"src/Types.sol": types, "src/Store.sol": store})),
        "b.json": json.dumps(standard_input({"src/Store.sol": store})),
    }
    write_files(tmp_path / "in", files)
    report = import_files([tmp_path / "in"], warehouse)
    assert report.totals() == {"read": 3, "imported": 1, "duplicate": 0, "rejected": 2}
    name = f"{tmp_path}/in/b.json:src/Store.sol"
    rejects = sigdir.open(warehouse).sql("SELECT reason, file, line FROM rejects ORDER BY line").rows()
    assert rejects == [("import_not_found", name, 1), ("unknown_type", name, 3)]


def test_paths_of_sources_lead_nowhere(tmp_path: Path, warehouse: Path) -> None:
    """A path or an import inside a document never names a file on disk."""
    write_files(tmp_path, {"Types.sol": "struct Order { uint256 amount; }", "in/a.json": ""})
    store = "import '../Types.sol'; interface Store { function place(Order calldata o) external; }"
    paths = ["../Store.sol", "/etc/Store.sol", str(tmp_path / "Store.sol"), "../../../../Store.sol"]
    (tmp_path / "in" / "a.json").write_text(json.dumps(standard_input(dict.fromkeys(paths, store))))
    report = import_files([tmp_path / "in"], warehouse)
    assert report.totals() == {"read": 8, "imported": 0, "duplicate": 0, "rejected": 8}


def test_sources_in_other_languages(read: Read) -> None:
    """A source in another language, or of too many tokens, is one reject; the others are read, and Vyper's are a project."""
    sources = {"A.sol": "interface A { function f() external; }", "B.yul": "object", "C.sol": ";" * (1 << 20 | 1)}
    reading = read("input.json", json.dumps(standard_input(sources)))
    assert reading.functions == ["f()"]
    assert {reject[:2] for reject in reading.rejects} == {
        ("syntax", "object"), ("bad_entry", '{"path": "C.sol", "bytes": 1048577}'),
    }  # fmt: skip
    [reject] = read("yul.json", json.dumps(standard_input({"B.yul": "object"}, language="Yul"))).rejects
    assert reject[:2] == ("bad_entry", '{"path": "B.yul", "language": "Yul"}')
    sources = {
        "src/a.vy": "from . import types\n@external\ndef a(s: types.S): pass\n",
        "src/types.vy": "struct S:\n    a: uint256[2]\n",
    }
    assert read("input.json", json.dumps(standard_input(sources, language="Vyper"))).functions == ["a((uint256[2]))"]


# JavaScript.


WITH_EXPRESSIONS = [
    *(f'{{ type: "function", name: "f", inputs: {inputs} }}' for inputs in (
        "INPUTS", '[...INPUTS, { type: "uint" }]', "[INPUT]", "[{ type: TYPE }]", '[{ ...INPUT, type: "uint" }]',
        "[{ type: `uint${8}` }]", '[{ type: "tuple", components: PARTS }]',
    )),
    '{ type: "function", name: "f", inputs }',
    '{ type: "function", name: "f", [INPUTS]: [] }',
    '{ type: "function", name: NAME, inputs: [] }',
    '{ ...BASE, type: "function", name: "f" }',
    '{ type: cond ? "function" : "event", name: "f", inputs: [] }',
    "...OTHER",
    "f(1, [2])",
]  # fmt: skip
WRITTEN_OUT = [
    '{ type: "function", name: "f", inputs: [{ type: "uint" }] }',
    "{ 'type': `function`, 'name': 'f', inputs: [{ type: 'ui' + 'nt' as const }], }",
]


@pytest.mark.parametrize("entry", [*WRITTEN_OUT, *WITH_EXPRESSIONS])
def test_entries_in_javascript(read: Read, entry: str) -> None:
    """An entry that is written out is read; one with an expression in it is a reject, never another text."""
    data = f'export const abi = [{{ type: "function", name: "good", inputs: [] }}, {entry}] as const;'
    reading = read("abi.ts", data)
    assert reading.functions == ["good()"] + ["f(uint256)"] * (entry in WRITTEN_OUT)
    assert [reject.reason for reject in reading.rejects] == ["bad_entry"] * (entry in WITH_EXPRESSIONS)


JAVASCRIPT = r"""
/* ["function comment()"] */ // ["function comment()"]
const re = /["'[]/g, half = a / b, t = `${[`x`]}`; it('don`t', () => { const a = ["function inCode()"] })
class A { static abi = ["function inClass()"]; m(x: Abi = ["error InDefault()"]) { return { abi: ["event InObject()"] } } }
foo(parseAbi(["function inCall()"]), parseAbiItem('function oneItem(uint a)'));
const abi = JSON.parse('[{"type":"function","name":"inText","inputs":[]}]');
export declare const e: readonly [{ readonly type: "function"; readonly name: "typed"; readonly inputs: readonly [] }];
var m=[{inputs:[{indexed:!0,name:"",type:"address"}],anonymous:!1,name:"Mini",type:"event"}]
const escaped = ['function \x65scaped()'], unclosed = [ { "function gone()"
"""


def test_lists_in_any_place_of_javascript(read: Read) -> None:
    """Lists are found in functions, classes, calls, types and texts; not in comments."""
    reading = read("code.ts", JAVASCRIPT)
    assert reading.functions == [
        "inCode()", "inClass()", "InDefault()", "inCall()", "oneItem(uint256)", "inText()", "typed()", "escaped()",
    ]  # fmt: skip
    assert reading.events == ["InObject()", "Mini(address)"]
    assert reading.rejects == []


@pytest.mark.parametrize(
    "code", ["", "]}})", "`${", "`", "/", "'", '"\\', "[" * 20_000, "`${" * 20_000, "[a" * 20_000 + "]" * 9]
)
def test_broken_javascript_has_a_value(code: str) -> None:
    """A source that does not parse is read as far as it makes sense."""
    assert isinstance(parse_literals("x.js", code.encode()), dict)


def test_javascript_without_an_abi(read: Read, tmp_path: Path) -> None:
    """It is of no known format; if the format is named, that is an error."""
    video = "function f() inputs: [" + "\0" * 9
    for path in write_files(tmp_path, {"a.js": "const a = { inputs: [1], type: 'function' }", "b.ts": video}):
        assert detected(path) is None
    with pytest.raises(BadInput, match=r"a.js: no ABI, no identifiers and no sources inside$"):
        read("a.js", "[]", "javascript")
