"""Solidity sources: which declarations are found, and how their types are resolved."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.solidity import Project, declarations
from sigdir.pipeline.inputs import find
from sigdir.pipeline.source import BLOCK_BYTES
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.canonicalise import canonicalise, canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS, SIGNATURES
from sigdir.signatures.evidence import LISTED, Contract
from sigdir.signatures.grammar import REASONS
from tests.pipeline.support import corpus, write_files
from tests.pipeline.test_formats import Reject, detected, read_path


class Reading(NamedTuple):
    """The result for a source's entries: canonical texts in order, rejects as (text, reason)."""

    functions: list[str]
    events: list[str]
    rejects: list[tuple[str, str]]


def read_batches(batches: Iterable[Candidates]) -> Reading:
    found = Reading([], [], [])
    for result in map(canonicalise, batches):
        for collection, rows in result.accepted.items():
            (found.functions if collection == SIGNATURES else found.events).extend(rows.text.to_pylist())
        for text, code in zip(result.rejected.text.to_pylist(), result.rejected.reasons, strict=True):
            why = REASONS[code]
            found.rejects.append((text if why in ("syntax", "unbalanced") else bare(text), why))
    return found


def bare(declaration: str) -> str:
    """What a candidate declares without its keyword, the names of its parameters, and what a function returns."""
    name, _, after = declaration.partition(" ")[2].partition("(")
    inputs = after.partition(" returns ")[0]
    for word in ("view", "pure", "payable", "constant"):
        inputs = inputs.removesuffix(f" {word}")
    return f"{name}({re.sub(r' (?!indexed|storage|anonymous)[^ ,()]+(?=[,)])', '', inputs)}" if after else declaration


def declared(source: str) -> Reading:
    return read_batches(pack(declarations(source.encode()), file=0))


def texts(source: str) -> list[str]:
    return [bare(entry.text.decode()) for entry in declarations(source.encode())]


TYPES = """
type Price is uint128;
enum Side { Buy, Sell }
struct Point { uint x; int8 y; }
uint constant N = 3; uint8 constant Five = 5; uint constant Circle = Circle + 1;
int0 constant Odd0 = 5; int7 constant Odd7 = 5; uint999 constant Odd999 = 5; uint constant Sum = N * 2 + Lib.M; int constant Less = -Five; string constant Text = "3";
interface Token { enum Kind { A } struct Info { Kind kind; Token token; } }
library Lib { uint constant M = 0x10; type Id is bytes32; struct Pair { Point a; Point b; } }
contract Base { struct Inherited { bool b; } error InBase(Inherited i); }
"""
"""What the functions under test may name."""

RESOLVED = {
    "uint, int, byte, uint8[3][] memory": "uint256,int256,bytes1,uint8[3][]",
    "address payable, address payable[] memory p": "address,address[]",
    "Side side, Side[2] memory": "uint8,uint8[2]",
    "Price p, Price[] calldata": "uint128,uint128[]",
    "Token token, Base b": "address,address",
    "Point calldata p": "(uint256,int8)",
    "Point[] memory, Point[4][] memory": "(uint256,int8)[],(uint256,int8)[4][]",
    "Token.Info memory i, Token.Kind k": "(uint8,address),uint8",
    "Lib.Pair memory, Lib.Id": "((uint256,int8),(uint256,int8)),bytes32",
    "Local memory l": "((uint256,int8)[],(bool),uint8)",
    "Inherited memory, Base.Inherited memory, C.Inherited[] memory": "(bool),(bool),(bool)[]",
    "uint[N] memory, uint[Lib.M][K] memory, uint[1_000] memory, uint[2e1] memory":
        "uint256[3],uint256[16][5],uint256[1000],uint256[20]",
    "uint[2**2] memory, uint[8*4/2] memory, uint[N*2] memory, uint[1<<4] memory, uint[(5)] memory":
        "uint256[4],uint256[16],uint256[6],uint256[16],uint256[5]",
    "uint[Sum] memory, uint[10 % N | 8] memory, uint[8 / 3 * 3] memory, uint[7 + Less] memory, uint[Five/2] memory":
        "uint256[22],uint256[9],uint256[8],uint256[2],uint256[2]",
    "uint[2 /* two */ * (N - 1)][0x2 ** 3] memory, uint[~0 + 3] memory, Point[N ^ 1] memory":
        "uint256[4][8],uint256[2],(uint256,int8)[2]",
    "function(uint) external returns (bool) f, function() external[2] memory": "function,function[2]",
    "(uint, Point)[] memory points, tuple(bool b, (Side, address payable)[2],) memory":
        "(uint256,(uint256,int8))[],(bool,(uint8,address)[2])",
    "uint /* a, b */ [ /* c */ ] memory /* d */ x, // e\n L /**/ . S memory s": "uint256[],(string)",
}  # fmt: skip
"""Parameters as written, and their canonical text in a contract."""


@pytest.mark.parametrize("written", RESOLVED)
def test_types_are_resolved(written: str) -> None:
    """Names become what the source says they are: in the contract, its bases, the file, or by path."""
    source = (
        f"{TYPES} library L {{ struct S {{ string s; }} }}"
        "contract C is Base { uint constant K = 5; struct Local { Point[] points; Inherited i; Side side; }"
        f"function f({written}) external {{}} }}"
    )
    assert declared(source).functions == ["InBase((bool))", f"f({RESOLVED[written]})"]


REFUSED = {
    "unknown_type": ["Nowhere n", "Lib.Nowhere n", "Side.Buy n", "N n"],
    "library_type": ["mapping(uint => uint) storage m", "uint[] storage a"],
    "bad_width": ["uint7 a"],
    "bad_array": [f"uint[{size}] memory" for size in (
        "Side", "2 * Nowhere", "N - 3", "Circle", "5 / 2", "Five / 2 * 2", "2 ** 3 ** 2", "2 ** 9999", "f(2)", "Lib",
        "Odd0", "Odd7", "Odd999",
    )],
}  # fmt: skip
"""Parameters as written, by the reason."""


@pytest.mark.parametrize("reason", REFUSED)
def test_what_is_not_known_is_rejected(reason: str) -> None:
    """A type that the source does not explain stays as written, for the grammar to refuse."""
    for written in REFUSED[reason]:
        found = declared(f"{TYPES} contract C {{ function f({written}) external {{}} function g() external {{}} }}")
        assert found.functions == ["InBase((bool))", "g()"], written
        assert [was for _, was in found.rejects] == [reason], written


def test_functions_with_a_selector() -> None:
    """Public, external and unmarked functions are found; all others have no selector."""
    source = """
        function free(uint a) pure returns (uint) { return a; }
        abstract contract C {
            constructor(uint a) {}
            modifier m(uint a) { _; }
            fallback() external payable {}
            receive() external payable {}
            function a(uint x) public virtual m(1) returns (uint y) { return x; }
            function b(uint x) external view override(A, B);
            function c(uint x) internal {}
            function d(uint x) private {}
            function e(uint x) {}
        }
        interface I { function f(uint x) external; }
        library L { function g(uint x) public {} function h(uint x) internal {} }
    """
    assert [name[0] for name in declared(source).functions] == ["a", "b", "e", "f", "g"]


def test_events_and_errors() -> None:
    """Events and errors of files, contracts and libraries."""
    source = """
        event InFile(uint indexed a, Point indexed p);
        error InFile(Point p);
        struct Point { uint x; uint y; }
        contract C { event Moved(address indexed from, uint amount); event Raw(uint[] indexed, bool b) anonymous; }
        library L { struct S { uint a; } event InLibrary(S s); error InLibrary(S s, uint); }
    """
    found = declared(source)
    assert found.functions == ["InFile((uint256,uint256))", "InLibrary((uint256),uint256)"]
    assert found.events == [
        "InFile(uint256,(uint256,uint256))", "Moved(address,uint256)", "Raw(uint256[],bool)", "InLibrary((uint256))",
    ]  # fmt: skip


def test_library_functions_keep_names() -> None:
    """solc hashes a library's structs, enums and contracts by name, so their texts are no candidates."""
    source = """
        struct Outer { uint a; }
        library L {
            type Id is bytes32; enum E { A } struct S { uint a; }
            function byStruct(S memory s) external {}
            function byEnum(E[] calldata e) external {}
            function byFile(Outer memory o) external {}
            function byNothing(Nowhere memory o) external {}
            function byBoth(Nowhere memory o, S memory s) external {}
            function byStorage(S storage s) external {}
            function byArray(uint[] storage a) public {}
            function byMapping(mapping(address => S) storage m) public {}
            function byValue(Id id, uint a, bytes memory b) external {}
            uint public constant VERSION = 2;
        }
        contract C { function inContract(L.S memory s, L.E e) external {} }
    """
    found = declared(source)
    assert found.functions == ["byValue(bytes32,uint256,bytes)", "VERSION()", "inContract((uint256),uint8)"]
    assert found.rejects == [
        ("byStruct(L.S)", "library_type"),
        ("byEnum(L.E[])", "library_type"),
        ("byFile(Outer)", "library_type"),
        ("byNothing(Nowhere)", "unknown_type"),
        ("byBoth(Nowhere,L.S)", "library_type"),
        ("byStorage(L.S storage)", "library_type"),
        ("byArray(uint[] storage)", "library_type"),
        ("byMapping(mapping(address=>S) storage)", "library_type"),
    ]


def test_getters() -> None:
    """A public variable is a function of its mapping keys and array indices."""
    source = """
        contract C {
            enum E { A } struct S { uint a; mapping(uint => uint) m; }
            uint public a; uint internal b; uint c; uint private d;
            uint public constant e = 1; address public immutable f; uint transient public g;
            bytes public override(A) h = hex"00"; S public i;
            mapping(address owner => mapping(E => S)) public j;
            uint[3][] public k;
            mapping(address payable => string[2])[] public l;
            mapping(C => mapping(string => S[])) public m;
            function(uint) external returns (bool) public n;
        }
    """
    assert declared(source).functions == [
        "a()", "e()", "f()", "g()", "h()", "i()", "j(address,uint8)", "k(uint256,uint256)",
        "l(uint256,address,uint256)", "m(address,string,uint256)", "n()",
    ]  # fmt: skip


def test_old_sources() -> None:
    """What was Solidity before 0.5: no visibility, constructors by name, `throw`, `var`, enums of over 256 members."""
    source = """
        pragma solidity ^0.4.2;
        contract tokenRecipient { function receiveApproval(address _from, uint256 _value, bytes _extraData); }
        contract MyToken is owned(), tokenRecipient {
            modifier onlyOwner { if (msg.sender != owner) throw; _ }
            function MyToken(uint initial) {}
            function set(byte b, tokenRecipient r) onlyOwner constant returns (bool) { var x = 1; throw; }
            function () payable { throw; }
            function kill() { suicide(owner); }
            function vote(Small s, Large l) {}
        }
    """
    for name, count in (("Small", 256), ("Large", 257)):
        source += f"enum {name} {{ {','.join(f'm{number}' for number in range(count))} }}"
    assert declared(source).functions == [
        "receiveApproval(address,uint256,bytes)", "set(bytes1,address)", "kill()", "vote(uint8,uint16)",
    ]  # fmt: skip


def test_lines_and_collections() -> None:
    """An entry has the line of its keyword, from 1, and says its collection; so has a reject, and what is parsed alone."""
    source = b"\xef\xbb\xbf// \xc3\xa9\r\ncontract C {\r\n  /// text\r\n  function\r\n f() {}\r\n event E();\n\n error X();\n}"
    assert [entry._replace(sighting=LISTED) for entry in declarations(source)] == [
        Entry(b"function f()", 4, FUNCTIONS), Entry(b"event E()", 6, EVENTS), Entry(b"error X()", 8, FUNCTIONS)
    ]  # fmt: skip
    source = b"contract C {\n // x\n uint @ x;\n\n function f(\n uint a) {}\n event @; error E(); }"
    assert [(entry.text, entry.line) for entry in declarations(source)] == [
        (b"uint @ x;", 3), (b"function f(uint a)", 5), (b"event @;", 7), (b"error E()", 7)
    ]  # fmt: skip


NAMED = """
struct Point { uint x; Side[2] sides; mapping(uint => uint) m; Line line; }
struct Line { address from; bytes data; }
enum Side { A }
library L { function lib(uint a) external pure {} function s(Line memory l) public {} }
contract C {
  mapping(address owner => mapping(uint => Point) point) public points;
  Line[] public lines;
  uint public constant X = 1;
  function f(Line[] calldata lines, Side) external view override returns (bool ok, Line memory) {}
  function old(uint indexed) constant payable returns (Unknown) {}
  event E(address indexed from, Line line) anonymous;
  error Low(uint code);
}
event Free(uint a);
"""


def declaration_in(entry: Entry) -> str:
    """The declaration that a candidate's text is, as it is stored."""
    return canonicalise_one(entry.text.decode(), entry.declared_kind, entry.sighting.kind).declaration


def test_what_a_source_says_about_a_text() -> None:
    """A declaration has the names of parameters and of structs' members, and what a function or a getter returns."""
    found = list(declarations(NAMED.encode(), "C.sol"))
    assert ["" if entry.reject_reason else declaration_in(entry) for entry in found] == [
        "function lib(uint256 a) pure",
        "",
        "function points(address owner, uint256) view returns (uint256 x, (address from, bytes data) line)",
        "function lines(uint256) view returns (address from, bytes data)",
        "function X() view returns (uint256)",
        "function f((address from, bytes data)[] lines, uint8) view returns (bool ok, (address from, bytes data))",
        "function old(uint256) payable",
        "event E(address indexed from, (address from, bytes data) line) anonymous",
        "error Low(uint256 code)",
        "event Free(uint256 a)",
    ]
    library, contract = Contract.at("C.sol", "L"), Contract.at("C.sol", "C")
    assert [entry.sighting.contract for entry in found] == [library] * 2 + [contract] * 7 + [None]


@pytest.mark.parametrize(
    ("source", "expected", "unplaced"),
    [
        ("contract C { function a(uint a, @@ b) {} function b(uint b) {} uint 5; function c() {} }",
            ["b(uint)", "c()"], ["function a(uint a, @@ b)", "uint 5;"]),
        ("contract C { function a(uint x) { if ( } function b() {} } contract D { event E(); }", ["a(uint)", "b()", "E()"], []),
        ("contract C is @@@ { struct S { bool b; } function a(S s) {} }", ["a((bool))"], ["contract C is @@@ {"]),
        ("contract C { struct S { bool a } function a(S s) {} function b() {} }", ["a(S)", "b()"], ["struct S { bool a }"]),
        ("contract C { struct S { @ } function a(S s) public {} function b() {} }", ["a(S)", "b()"], ["struct S { @ }"]),
        ("contract C { enum E { A } function a(E e) {} function b(uint b", ["a(uint8)"], ["function b(uint b"]),
        ("library L { struct S { bool b; } function a(S s) public {} function b(uint b", ["a(L.S)"], ["function b(uint b"]),
        ("enum E { A } function a(uint x, E e) public {} function b(uint x) {}", ["a(uint,E)"], []),
        ("contract C { function a(uint\0 x) {} } \0 contract D { function b() {} }", ["b()"],
            ["function a(uint\0 x)"]),
        ("not Solidity at all", [], ["not Solidity at all"]),
        ("contract C { uint @ x; function a() {} event E(); error X(); @ }", ["a()", "E()", "X()"], ["uint @ x;", "@"]),
        ("contract C {\n  event @ E(\n  uint a); function a(uint x) {} }", ["a(uint)"], ["event @ E( uint a);"]),
        ("contract C { modifier @ m() { _; } using @ for uint; function a() {} }", ["a()"], []),
        ('import @ "a.sol"; contract C { function a() {} }', ["a()"], ['import @ "a.sol";']),
        ("pragma solidity ^0.8.0\ncontract C { struct S { bool b; } function a(S s) {} }", ["a((bool))"], []),
        ("pragma solidity ^0.8.0\nerror X(S s); struct S { bool b; }", ["X((bool))"], []),
        ('import "a.sol"\nlibrary L /**/ { struct S { bool b; } function a(S s) public {} }', ["a(L.S)"], ['import "a.sol"']),
        ("File: I.sol\ninterface I is J { function a() external; event E(); }", ["a()", "E()"], ["File: I.sol"]),
        ("Abstract contract C { function a() {} } abstract /**/ contract D { function b() {} }", ["a()", "b()"], ["Abstract"]),
        ("text { contract C { function a() public {} } }", ["a()"], ["text {"]),
    ],
)  # fmt: skip
def test_a_syntax_error_loses_one_statement(source: str, expected: list[str], unplaced: list[str]) -> None:
    """A syntax error loses the statement that it is in and no other, and the statement is a reject."""
    found = list(declarations(source.encode()))
    assert [bare(entry.text.decode()) for entry in found if REASONS[entry.reject_reason] != "syntax"] == expected
    assert [entry.text.decode() for entry in found if REASONS[entry.reject_reason] == "syntax"] == unplaced


@pytest.mark.parametrize("blank", ["\xa0", "\u200b", "\u2060", "\ufeff"])
def test_blanks_that_are_not_ascii(blank: str) -> None:
    """Spaces without a width, or that do not break, are blanks wherever they stand."""
    source = (
        "~contract~C~{~struct~S~{~bool~b~;~}~function~a~(~S~s~,~uint~[~]~x)~external~{~}~}~interface~I{~event~E(~)~;~}"
    )
    assert declared(source.replace("~", blank)) == Reading(["a((bool),uint256[])"], ["E()"], [])


def test_a_body_that_never_closes() -> None:
    """A body without its brace is a reject; what stands before it and what the parser finds behind it still counts."""
    found = declared("contract C { function a() { if (x) { } function b(uint x) external {} event E(); function c() {}")
    assert ("function a()", "unbalanced") in found.rejects
    assert found.functions[0] == "a()"
    assert declared("contract C { function a() {} function b(uint x) { if (").functions == ["a()", "b(uint256)"]
    busy = "function f() {event [" + "|---|\n" * 3_000 + "constant(" * 3_000
    found = declared("contract C { event E(uint x); function g(S s) {} struct S { bool b; } } " + busy)
    assert (found.functions, found.events) == (["g((bool))"], ["E(uint256)"])
    assert [reason for _, reason in found.rejects] == ["unbalanced"]


@pytest.mark.parametrize(
    "word", ["immutable", "override", "transient", "virtual", "unchecked", "error", "layout", "at", "from"]
)
def test_contextual_keywords_are_names(word: str) -> None:
    """What is a keyword elsewhere, or in another version, may name anything here; nothing after it is lost."""
    source = f"""contract C {{
        uint public immutable {word} = 3; function f() external {{}} event E();
        mapping(uint => bool) public constant {word}; bool public {word}; uint {word} = 1; uint public override {word};
        function {word}(uint {word}) public virtual override; event {word}(uint indexed {word}); error {word}(bool {word});
        struct S {{ uint {word}; }} function last(S {word}) external {{ {word} = {word}.{word}({word}); }} }}"""
    found = declared(source)
    assert found.functions == [
        f"{word}()", "f()", f"{word}(uint256)", f"{word}()", f"{word}()", f"{word}(uint256)", f"{word}(bool)", "last((uint256))",
    ]  # fmt: skip
    assert (found.events, found.rejects) == (["E()", f"{word}(uint256)"], [])


def test_bodies_and_comments_are_not_read() -> None:
    """Comments and bodies neither declare nor are errors, whatever braces their strings and comments hold."""
    source = """/* contract A { function z() public; } */ // contract B { function z() public; }
        contract C { function a(uint x) m({y: 1}) public { "}"; /* } */ '\\'}'; // }
        assembly { function f() {} } @ function g() public {} { } } modifier m() { { _; } } constructor() { @ }
        fallback() external { @ } function() { @ } function b(/* uint a */) {} S s = S({a: 1, b: "{"});
        string s = "} function z() public {}"; /** event D(); */ function c() {} }"""
    assert texts(source) == ["a(uint)", "b()", "c()"]


def test_tuples_inside_each_other() -> None:
    """A hundred are read, as with mappings; more are a reject, and so is a list that never ends."""
    assert declared(f"error E({'(' * 9}uint{',)' * 9} x);").functions == [f"E({'(' * 9}uint256{')' * 9})"]
    for written in (f"{'(' * 5000}uint{')' * 5000}", "(" * 5000, "(uint", "(uint,,bool)"):
        found = declared(f"error E({written}); error F();")
        assert (found.functions, [why for _, why in found.rejects]) == (["F()"], ["syntax"])


# Several sources.


def project(folder: Path, files: dict[str, str], *paths: str) -> dict[str, Reading]:
    """Write the files and read them together, or those below ``paths``; by name what became of each."""
    write_files(folder, files)
    given = [str(folder / path) for path in paths or [""]]
    sources = Project(given)
    names = []
    for source in find(given):
        with source.open(lambda _: None):
            sources.add(source)
        names.append(str(Path(source.path).relative_to(folder)))
    found: dict[str, Reading] = {}
    for name, work in zip(names, sources.read(), strict=True):
        assert callable(work)
        found[name] = read_batches(work())
    return found


def test_a_large_file_with_remappings_is_refused(tmp_path: Path) -> None:
    """A line takes two bytes of the file and hundreds of memory."""
    with pytest.raises(BadInput, match=r"remappings\.txt of over 1 MiB"):
        project(tmp_path, {"remappings.txt": "a\n" * (1 << 19) + "b"})


LIBRARY = """
    type Id is bytes32; enum Kind { A } uint constant N = 2; struct Far { Id id; Near[N] nears; }
    struct Near { uint8 x; } interface Token { struct Info { Near near; } }
    contract Base is Deeper { struct Inherited { Near near; } } contract Deeper { enum Deep { A } }
"""


_BY_NAME = "(bytes32,(uint8)[2])"
IMPORTS: list[tuple[str, str, str | None]] = [
    ('import "./lib/b.sol";', "Far f, Kind k, Token t, Token.Info i", f"{_BY_NAME},uint8,address,((uint8))"),
    ('import "./lib/../lib/b.sol";', "Near n", "(uint8)"),
    ('import {Far as F, Id} /* , */ from "./lib/b.sol";', "F f, Id i", f"{_BY_NAME},bytes32"),
    ('import "./lib/b.sol" as B;', "B.Far f, B.Token.Info i", f"{_BY_NAME},((uint8))"),
    ('import * as B from "./lib/b.sol";', "B.Kind k, uint[B.N] memory", "uint8,uint256[2]"),
    ('import "./between.sol";', "Near n", "(uint8)"),
    ('import "./renames.sol";', "Renamed n", "(uint8)"),
    ('import {Renamed as Again} from "./renames.sol";', "Again n", "(uint8)"),
    ('import "lib/b.sol";', "Near n", "(uint8)"),
    ('import "./lib/b.sol"; struct Near { bool own; }', "Near n, Far f", f"(bool),{_BY_NAME}"),
    ("", "Far f", None),
    ('import "./b.sol";', "Far f", None),
    ('import "./lib/gone.sol";', "Far f", None),
    ('import {Near} from "./lib/b.sol";', "Far f", None),
    ('import "./lib/b.sol" as B;', "Far f", None),
    ('import {Far from "./lib/b.sol";', "Far f", None),
    ('import "twice.sol";', "Far f", None),
]
"""Imports, parameters, and what these are; None for a name that no import brings: nothing is guessed."""


@pytest.mark.parametrize(("imports", "written", "expected"), IMPORTS)
def test_imports(tmp_path: Path, imports: str, written: str, expected: str | None) -> None:
    """Names come from where the imports say, whatever the other file calls them, and mean there what they mean there."""
    files = {
        "a.sol": f"{imports} contract C {{ function f({written}) external {{}} }}",
        "between.sol": 'import "./a.sol"; import "./lib/b.sol";',
        "renames.sol": 'import {Near as Renamed} from "./lib/b.sol";',
        "lib/b.sol": LIBRARY,
        "unrelated.sol": "struct Far { bool no; } struct Near { bool no; }",
        "x/twice.sol": LIBRARY,
        "y/twice.sol": LIBRARY,
    }
    found = project(tmp_path, files)["a.sol"]
    if expected is not None:
        assert found == Reading([f"f({expected})"], [], [])
    else:
        assert (found.functions, found.rejects[-1]) == ([], ("f(Far)", "unknown_type"))


def test_inheritance_across_files(tmp_path: Path) -> None:
    """What a base in another file defines is known, and so is what its base in a third one does."""
    files = {
        "a.sol": """import {Middle as M} from "./b.sol"; import * as X from "./x.sol";
            contract C is M, X.Y { function f(S s, E[] calldata e, M.S t, Z z) external {} S[] public all; }""",
        "b.sol": 'import "./c.sol"; contract Middle is Base { enum E { A } }',
        "c.sol": "contract Base { struct S { Own own; } } struct Own { bool b; }",
        "x.sol": "contract Y { type Z is int8; } struct S { string no; }",
    }
    assert project(tmp_path, files)["a.sol"].functions == ["f(((bool)),uint8[],((bool)),int8)", "all(uint256)"]


IMPORTER = 'import "{}"; contract C {{ function f(S s) external {{}} }}'
"""A source whose function says which file its import refers to: each file defines S by another type."""


def struct(kind: str) -> str:
    return f"struct S {{ {kind} a; }}"


PLACES: list[tuple[str, str, str, list[str]]] = [
    # Node: node_modules upwards from the importing file.
    ("node_modules/c/src/C.sol", "b/S.sol", "node_modules/b/S.sol", ["node_modules/c/node_modules/d/node_modules/b/S.sol"]),
    ("node_modules/c/src/C.sol", "b/S.sol", "node_modules/c/node_modules/b/S.sol", ["node_modules/b/S.sol"]),
    ("contracts/x/A.sol", "b/S.sol", "node_modules/b/S.sol", ["node_modules/c/node_modules/b/S.sol"]),
    ("contracts/A.sol", "@v/c/S.sol", "node_modules/@v/c/S.sol", ["contracts/c/S.sol"]),
    ("contracts/A.sol", "b/S.sol", "", ["packages/x/node_modules/b/S.sol"]),
    # Neither the file's name nor its nearness decides.
    ("contracts/dex/A.sol", "@dex/core/S.sol", "", ["contracts/legacy/S.sol"]),
    ("contracts/A.sol", "core/S.sol", "", ["contracts/vendor/core/S.sol", "vendor/core/S.sol"]),
    ("contracts/A.sol", "S.sol", "", ["contracts/dex/S.sol"]),
    # Foundry: the libraries, with and without src.
    ("src/A.sol", "b/S.sol", "lib/b/src/S.sol", ["lib/c/src/S.sol"]),
    ("src/A.sol", "b/S.sol", "lib/b/contracts/S.sol", []),
    ("lib/a/src/A.sol", "b/S.sol", "lib/b/src/S.sol", ["lib/a/lib/b/src/S.sol"]),
    ("lib/a/src/A.sol", "b/S.sol", "lib/a/lib/b/src/S.sol", []),
    ("src/A.sol", "b/S.sol", "lib/a/lib/b/src/S.sol", []),
    ("src/A.sol", "b/S.sol", "", ["lib/a/lib/b/src/S.sol", "lib/c/lib/b/src/S.sol"]),
    ("one/src/A.sol", "b/S.sol", "one/lib/b/S.sol", ["two/lib/b/S.sol"]),
    ("src/A.sol", "b/S.sol", "node_modules/b/S.sol", ["lib/b/src/S.sol"]),
    # Base paths.
    ("contracts/x/A.sol", "contracts/y/S.sol", "contracts/y/S.sol", ["other/contracts/y/S.sol"]),
    ("contracts/x/A.sol", "y/S.sol", "contracts/y/S.sol", []),
    ("test/A.sol", "y/S.sol", "contracts/y/S.sol", []),
    ("contracts/x/A.sol", "y/S.sol", "", ["contracts/y/S.sol", "y/S.sol"]),
]  # fmt: skip
"""The importing file, its import, the file that it refers to or none, and other files."""
_OWN, _OF_LIBRARY = "remappings.txt", "lib/v/remappings.txt"
REMAPPED: list[tuple[str, str, str, list[str], dict[str, str]]] = [
    ("src/A.sol", "@v/S.sol", "vendor/v/S.sol", ["node_modules/@v/S.sol"], {_OWN: "@v/=vendor/v/"}),
    ("src/A.sol", "@v/S.sol", "", ["node_modules/@v/S.sol"], {_OWN: "@v/=gone/"}),
    ("src/A.sol", "@v/c/S.sol", "two/S.sol", ["one/c/S.sol"], {_OWN: "@v/c/=two/\n@v/=one/\n"}),
    ("src/A.sol", "@v/S.sol", "two/S.sol", ["one/S.sol"], {_OWN: "src/:@v/=two/\n@v/=one/\nlib/:@v/=one/"}),
    ("src/A.sol", "@v/S.sol", "two/S.sol", ["one/S.sol"],
        {"foundry.toml": '[profile.default]\nremappings = ["@v/=one"]', _OWN: "@v/=two/"}),
    ("src/A.sol", "@v/S.sol", "one/S.sol", [], {"foundry.toml": '[profile.default]\nremappings = ["@v/=one"]'}),
    ("src/A.sol", "@v/S.sol", "lib/v/contracts/S.sol", [], {_OF_LIBRARY: "@v/=contracts/"}),
    ("lib/v/src/A.sol", "w/S.sol", "one/S.sol", ["lib/v/two/S.sol"], {_OWN: "w/=one/", _OF_LIBRARY: "w/=two/"}),
    ("node_modules/v/A.sol", "w/S.sol", "node_modules/w/S.sol", [], {"node_modules/v/remappings.txt": "w/=lib/w/"}),
]  # fmt: skip
"""The same, and files with remappings: these come first."""


@pytest.mark.parametrize(
    ("importer", "written", "found", "others", "remappings"), [*((*place, {}) for place in PLACES), *REMAPPED]
)
def test_import_resolution(
    tmp_path: Path, importer: str, written: str, found: str, others: list[str], remappings: dict[str, str]
) -> None:
    """An import refers to the file that solc, Node or Foundry would read, or to none; then it is a reject."""
    files = {path: struct("bool") for path in others} | remappings | {importer: IMPORTER.format(written)}
    if found:
        files[found] = struct("int8")
        expected = Reading(["f((int8))"], [], [])
    else:
        expected = Reading([], [], [(f'import "{written}"', "import_not_found"), ("f(S)", "unknown_type")])
    assert project(tmp_path, files)[importer] == expected


def test_given_paths_are_include_paths(tmp_path: Path) -> None:
    """A path that the import was given is a base path, wherever it lies; two files that match are none."""
    files = {
        "project/src/A.sol": IMPORTER.format("v/S.sol"),
        "vendor/v/S.sol": struct("int8"), "old/v/S.sol": struct("bool"),
    }  # fmt: skip
    assert project(tmp_path, files, "project/src", "vendor")["project/src/A.sol"].functions == ["f((int8))"]
    found = project(tmp_path, {}, "project/src", "vendor", "old")["project/src/A.sol"]
    assert found.rejects == [('import "v/S.sol"', "import_not_found"), ("f(S)", "unknown_type")]


def test_remappings_that_are_none(tmp_path: Path) -> None:
    """A line that is no remapping, and a foundry.toml that is not TOML, are rejects."""
    files = {"remappings.txt": "# comment\n\nv/=lib/v/\nnothing\n", "x/foundry.toml": "[profile", "a.sol": ""}
    found = project(tmp_path, files)
    assert found["remappings.txt"].rejects == [("nothing", "syntax")]
    assert found["x/foundry.toml"].rejects == [("foundry.toml is not TOML", "syntax")]


def test_libraries_of_other_files(tmp_path: Path) -> None:
    """A library's functions go by names wherever these are defined. Only what is given in one import counts."""
    files = {
        "a.sol": 'import "./b.sol"; library L { function f(Far f, Id i) external {} function g(Id i) external {} }',
        "b.sol": LIBRARY,
    }
    assert project(tmp_path, files)["a.sol"] == Reading(["g(bytes32)"], [], [("f(Far,bytes32)", "library_type")])
    found = project(tmp_path, files, "a.sol")["a.sol"]
    assert found.rejects[0] == ('import "./b.sol"', "import_not_found")
    assert ("g(Id)", "unknown_type") in found.rejects


ABSENT = {
    "f(IERC20)": 'import "@openzeppelin/contracts/token/ERC20/ERC20.sol"; contract A { function f(IERC20 t) external {} }',
    "f(Missing.X)": 'import {Missing} from "./Missing.sol"; contract A { function f(Missing.X t) external {} }',
    "f(X)": 'import {Missing as M} from "./Missing.sol"; contract A is M { function f(X t) external {} }',
    "f(M.X)": 'import * as M from "./Missing.sol"; contract A { function f(M.X t) external {} }',
    "f(M.X[M.N])": 'import "./Missing.sol" as M; contract A { function f(M.X[M.N] t) external {} }',
}
"""What is refused of sources that name what a file defines which is not there."""


@pytest.mark.parametrize("refused", ABSENT)
def test_a_source_by_itself_knows_nothing_of_its_imports(tmp_path: Path, refused: str) -> None:
    """Read alone, as a submitted source is, it gives what an import of its file gives: a reject.

    Only an import names the file that is missing: who submits one source has no other to give.
    """
    found = declared(ABSENT[refused])
    assert found.rejects == project(tmp_path, {"a.sol": ABSENT[refused]})["a.sol"].rejects[1:]
    assert (found.functions, [text for text, _ in found.rejects]) == ([], [refused])


def test_imports_in_a_circle_and_in_a_chain(tmp_path: Path) -> None:
    """Files that import each other, and a long chain, are gone through once."""
    files = {f"f{n}.sol": f'import "./f{n + 1}.sol"; import "./f0.sol";' for n in range(300)}
    files["f0.sol"] += "contract C { function f(Last l) external {} function g(Never n) external {} }"
    files["f300.sol"] = "type Last is bool;"
    assert project(tmp_path, files)["f0.sol"] == Reading(["f(bool)"], [], [("g(Never)", "unknown_type")])


def test_structs_and_bases_in_a_circle() -> None:
    """A struct that contains itself, by any way, stays a name there; contracts that inherit from each other are looked in once."""
    source = "contract C { struct S { S[] a; T t; } struct T { S s; bool b; } function f(S s) {} function g() {} }"
    assert texts(source) == ["f((S[],(S,bool)))", "g()"]
    assert declared(source).rejects == [("f((S[],(S,bool)))", "unknown_type")]
    source = "contract A is B { struct S { bool b; } } contract B is A, B { function f(S s, T t) {} }"
    assert texts(source) == ["f((bool),T)"]


def test_structs_that_grow_without_end() -> None:
    """Structs that double with each level, or nest a thousand deep, are told too long or written out.

    Many functions that each name a large struct do not multiply a small source without limit.
    """
    doubling = [f"struct D{n + 1} {{ D{n} a; D{n} b; }}" for n in range(40)]
    nesting = "".join(f"struct N{n + 1} {{ N{n} a; }}" for n in range(1000))
    start = "contract C { struct D0 { bool a; } struct N0 { bool a; }" + nesting
    functions = "function d(D40 a) {} function n(N1000 a) {} function last() {}"
    found = declared(f"{start} {''.join(doubling)} {functions} }}")
    assert found.functions == [f"n({'(' * 1001}bool{')' * 1001})", "last()"]
    assert [reason for _, reason in found.rejects] == ["too_long"]
    functions = "".join(f"function f{n}(D12 a) {{}}" for n in range(1000))
    source = f"contract C {{ struct D0 {{ bool a; }} {''.join(doubling[:12])} {functions} }}"
    sizes = [len(entry.text) for entry in declarations(source.encode())]
    assert len(sizes) == 1000
    assert sum(sizes) < 2_000_000
    assert sizes[0] > sizes[-1] == len("function f999(D12 a)")


_TOKENS = (
    "contract", "library", "is", "function", "struct", "enum", "type", "event", "error", "mapping", "uint", "C", "L", "S",
    "f", "(", ")", "{", "}", "[", "]", ";", ",", ".", "=", "=>", "3", "public", "external", "constant", "indexed",
    "storage", "anonymous", "//", "/*", "*/", "\n", '"', "\0", "é",
)  # fmt: skip


@given(st.lists(st.sampled_from(_TOKENS), max_size=60).map(" ".join))
def test_any_text_is_read(source: str) -> None:
    """No order of words breaks the reader, and every text that it finds can be canonicalised."""
    declared(source)


# Reading inputs.

LINE = b"// " + b"x" * 997 + b"\n"
LINES = BLOCK_BYTES // len(LINE)


def test_read(tmp_path: Path) -> None:
    """A source is read whole and known by its name: no line of it is cut, however long."""
    code = b"\xef\xbb\xbfcontract C {\n" + LINE * LINES + b"function f(uint a) {}"
    code += b" " * BLOCK_BYTES + b"function g(uint7 a) {} }"
    [path] = write_files(tmp_path, {"A.SOL.gz": gzip.compress(code, 1)})
    reading = read_path(path)
    assert (reading.format, reading.functions) == ("solidity", ["f(uint256)"])
    assert reading.rejects == [Reject("bad_width", "function g(uint7 a)", 12, LINES + 2)]


def test_other_names(tmp_path: Path) -> None:
    """In a folder files with remappings go to the reader of sources, and nothing else does, whatever it contains."""
    names = ["remappings.txt", "foundry.toml", "a.solx", "sol", "a.sol.json", "a.sol/b.json"]
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        [path] = write_files(folder, {name: "contract C { function f() public {} }"})
        assert (detected(path, folder) == "solidity") == (number < 2), name


# OpenZeppelin: sources beside what the compiler made of them.


def accepted(found: Reading) -> set[str]:
    """Functions and errors as they are, events with their keyword."""
    return {*found.functions, *(f"event {text}" for text in found.events)}


def test_corpus_is_found_whole(tmp_path: Path) -> None:
    """From the 248 sources together comes every entry of the compiler's 257 ABIs, and nothing else."""
    found = project(corpus("solidity").parent, {}, "solidity")
    assert len(found) == 248
    assert [reject for each in found.values() for reject in each.rejects] == []
    from_sources = set().union(*map(accepted, found.values()))
    abis = {
        path.name: accepted(read_batches(pack(abi_entries(json.loads(path.read_bytes())["abi"]), file=0)))
        for path in corpus("artifacts").glob("*.json")
    }
    assert sum(map(len, abis.values())) == 3473
    assert {name: abi - from_sources for name, abi in abis.items()} == {name: set() for name in abis}
    assert from_sources == set().union(*abis.values())


def test_sources_of_a_document(tmp_path: Path) -> None:
    """The sources of a standard JSON input import each other by their names there, remapped as the document says."""
    sources = {
        "contracts/A.sol": IMPORTER.format("v/S.sol"),
        "contracts/B.sol": IMPORTER.format("token/S.sol"),
        "/abs/C.sol": IMPORTER.format("/abs/S.sol"),
        "npm/v@2/S.sol": struct("int8"), "v/S.sol": struct("bool"),
        "token/S.sol": struct("uint8"), "contracts/token/S.sol": struct("bool"), "abs/S.sol": struct("address"),
    }  # fmt: skip
    document = {
        "language": "Solidity",
        "sources": {path: {"content": content} for path, content in sources.items()},
        "settings": {"remappings": ["v/=bad/", "contracts/:v/=npm/v@2/"]},
    }
    [path] = write_files(tmp_path, {"input.json": json.dumps(document)})
    reading = read_path(path)
    assert (reading.functions, reading.rejects) == (["f((int8))", "f((uint8))", "f((address))"], [])
