"""A contract's interface: texts that fit, standards, proxies, and Solidity that solc compiles."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from time import process_time
from typing import Any

import pytest

from sigdir.signatures.bytecode import CodeFunction, Fit, analyse, bytes_of_hex, fit_of
from sigdir.signatures.contract import ContractInterface, codes_of, contract_code, interface_of, read_contract
from sigdir.signatures.evidence import Kind
from sigdir.signatures.interface_forms import abi_of, document, solidity_of
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.proxies import proxy_patterns, slot
from sigdir.signatures.readings import Known
from sigdir.signatures.standards import canonical, implemented, interface_ids, interfaces, standard_declarations
from sigdir.signatures.types import parse_declaration
from tests.conftest import ROOT
from tests.signatures.assembly import (
    DUP1,
    DUP2,
    ISZERO,
    JUMPI,
    SHL,
    creation_code,
    dispatcher,
    error_code,
    event_code,
    metadata,
    push,
    reads_words,
)
from tests.signatures.test_bytecode import CONTRACTS, abi_texts, artifacts


def hash_of(text: str, kind: Kind = Kind.FUNCTION) -> bytes:
    digest = keccak256(text.encode())
    return digest if kind is Kind.EVENT else digest[:4]


def known(*texts: str, kind: Kind = Kind.UNKNOWN, declaration: str = "") -> dict[bytes, list[Known]]:
    """What a directory knows that has these texts; all of them have the selector of the first one."""
    return {hash_of(texts[0], kind): [Known(text, kind, declaration=declaration) for text in texts]}


def contract(
    functions: Sequence[CodeFunction] = (), directory: dict[bytes, list[Known]] | None = None, body: bytes = b""
) -> ContractInterface:
    """The interface of code with these functions and this body."""
    code = dispatcher([one.selector for one in functions], body) + metadata()
    return interface_of(contract_code(code, tuple(functions)), directory or {})


# Fit.


@pytest.mark.parametrize(
    ("text", "arguments", "fit"),
    [
        ("f(address,uint256)", "address,uint256", Fit.SAME),
        ("f(bytes32,int256)", "uint256,uint256", Fit.ALIKE),
        ("f(address)", "uint160", Fit.ALIKE),
        ("f(string)", "bytes", Fit.ALIKE),
        ("f(address[],bytes[])", "uint256[],uint256[]", Fit.ALIKE),
        ("f((uint256,address),uint8[2])", "uint256,address,uint8,uint8", Fit.ALIKE),
        ("f((uint256,bytes))", "(uint256,bytes)", Fit.SAME),
        ("f(uint256)", "address", Fit.LOOSE),
        ("f(bytes)", "uint256", Fit.LOOSE),
        ("f(address)", "bytes", Fit.DIFFERS),
        ("f(uint256)", None, Fit.UNKNOWN),
        ("f(uint256[999999999999])", "uint256", Fit.DIFFERS),
    ],
)
def test_fit(text: str, arguments: str | None, fit: Fit) -> None:
    """Types that encode alike fit; another number of values, or a dynamic one in the place of a word, differs."""
    assert fit_of(text, arguments) is fit


# Functions, events, errors.


def test_the_text_that_fits_comes_first() -> None:
    """Before the rank, which decides between texts that fit alike."""
    transfer = CodeFunction(hash_of("transfer(address,uint256)"), "address,uint256", False)
    texts = ("transfer(address,uint256)", "many_msg_babbage(bytes1)", "join_tg_invmru_haha_fd06787(address,bool)")
    found = contract([transfer], {transfer.selector: [Known(text) for text in reversed(texts)]})
    (function,) = found.functions
    fits = [(text.known.text, text.fit) for text in function.texts]
    assert fits == [(texts[0], Fit.SAME), (texts[2], Fit.ALIKE), (texts[1], Fit.DIFFERS)]
    declared = "function transfer(address to, uint256 value) returns (bool success)"
    assert function.best is not None
    assert str(function.best.declaration) == declared
    assert abi_of(found) == [parse_declaration(declared).abi_entry()]


def test_a_text_that_was_declared_as_an_error_alone_names_a_function() -> None:
    """Its selector is compared. Of texts that fit alike it comes last."""
    selector = hash_of("PAUSED()")
    texts = [Known("PAUSED()", Kind.ERROR, declaration="error PAUSED()"), Known("PAUSED()", Kind.FUNCTION)]
    (function,) = contract([CodeFunction(selector, "", False)], {selector: texts}).functions
    assert [one.known.kind for one in function.texts] == [Kind.FUNCTION, Kind.ERROR]
    assert {str(one.declaration) for one in function.texts} == {"function PAUSED()"}


def test_a_payable_function_is_declared_so() -> None:
    """Of two declarations that fit, the one that takes value as the code does is first; the code decides what is written."""
    selector = hash_of("f(uint256)")
    texts = [
        Known("f(uint256)", Kind.FUNCTION, declaration="function f(uint256 a)"),
        Known("f(uint256)", Kind.FUNCTION, declaration="function f(uint256 b) payable"),
    ]
    found = contract([CodeFunction(selector, "uint256", True)], {selector: texts})
    assert [str(text.declaration) for text in found.functions[0].texts] == [
        "function f(uint256 b) payable", "function f(uint256 a) payable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("takes_ether", "declared", "written"),
    [
        (True, "", "function f(uint256) payable"),
        (False, "", "function f(uint256)"),
        (False, "function f(uint256 a) payable", "function f(uint256 a)"),
        (None, "function f(uint256 a) payable", "function f(uint256 a) payable"),
        (True, "function f(uint256 a) pure", "function f(uint256 a) pure"),
    ],
)
def test_code_decides_what_is_payable(takes_ether: bool | None, declared: str, written: str) -> None:
    """What is view or pure is left to declarations: code does not show it."""
    selector = hash_of("f(uint256)")
    directory = known("f(uint256)", kind=Kind.FUNCTION, declaration=declared)
    found = contract([CodeFunction(selector, "uint256", takes_ether)], directory)
    assert str(found.functions[0].texts[0].declaration) == written


def test_an_unknown_function_has_its_shape() -> None:
    """It is listed with the arguments that the code reads, and no declaration has it."""
    found = contract([CodeFunction(b"\1\2\3\4", "address,bytes", True), CodeFunction(b"\1\2\3\5", None, None)])
    assert [one.shape for one in found.unknown] == ["(address,bytes)", "(?)"]
    assert abi_of(found) == []
    assert "// 0x01020304 (address,bytes) payable: no text is known" in solidity_of(found)
    assert "// 0x01020305 (?): no text is known" in solidity_of(found)
    assert document(found)["functions"][0] == {
        "selector": "0x01020304", "arguments": "address,bytes", "takes_ether": True, "texts": [],
    }  # fmt: skip


def test_events_and_errors_are_known_constants() -> None:
    """An error needs a text of its kind, or of no known kind with a capital letter; a call's selector is no error."""
    event, error, unstated, called = "Sent(address)", "lower(uint256)", "Bad()", "transfer(address,uint256)"
    body = event_code(hash_of(event, Kind.EVENT)) + b"".join(error_code(hash_of(t)) for t in (error, unstated, called))
    body += error_code(bytes.fromhex("4e487b71")) + event_code(b"\x11" * 32)
    directory = known(event, kind=Kind.EVENT) | known(error, kind=Kind.ERROR) | known(unstated)
    directory |= known(called, kind=Kind.FUNCTION) | known("Panic(uint256)", kind=Kind.ERROR)
    found = contract((), directory, body)
    assert [one.texts[0].known.text for one in found.events] == [event]
    assert [one.texts[0].known.text for one in found.errors] == [unstated, error]


def test_creation_code_gives_its_runtime_code() -> None:
    """The interface is that of the code that is deployed."""
    runtime = dispatcher([hash_of("f()")]) + metadata()
    read = read_contract("0x" + creation_code(runtime).hex())
    assert read.is_creation
    assert read.runtime.selectors == {hash_of("f()")}
    assert read.runtime == read_contract(runtime.hex()).runtime


@pytest.mark.parametrize("preamble", ["fe7100", "fe710102abcd", "fe71020001ff"])
def test_a_blueprint_gives_the_code_that_it_creates(preamble: str) -> None:
    """Of ERC-5202, with and without data in front, as it stands at its address and in the code that puts it there."""
    runtime = dispatcher([hash_of("f()")])
    blueprint = bytes.fromhex(preamble) + creation_code(runtime)
    for code in (blueprint, creation_code(blueprint)):
        read = read_contract(code.hex())
        assert (read.is_creation, read.runtime.code) == (True, runtime)
    for cut in range(len(blueprint)):
        read_contract(blueprint[:cut].hex() or "00")


def test_the_corpora_s_contracts() -> None:
    """The functions found are those of each ABI, and with its texts every one of the 134 fits and is declared alike."""
    fits: Counter[Fit] = Counter()
    payable = 0
    for one in artifacts():
        directory = {hash_of(text, kind): [Known(text, kind)] for kind, text in abi_texts(one)}
        found = interface_of(read_contract(one["deployedBytecode"]), directory)
        declared = {hash_of(text): text for kind, text in abi_texts(one) if kind is Kind.FUNCTION}
        assert {function.hash: best.known.text for function in found.functions if (best := function.best)} == declared
        assert not found.unknown
        fits.update(function.texts[0].fit for function in found.functions)
        of_abi = payable_names(one["abi"])
        payable += len(of_abi)
        assert payable_names(abi_of(found)) == of_abi
    assert fits == {Fit.SAME: 108, Fit.ALIKE: 26}
    assert payable


def payable_names(abi: list[dict[str, Any]]) -> set[str]:
    return {one["name"] for one in abi if one["type"] == "function" and one["stateMutability"] == "payable"}


# Standards and proxies.


def test_the_table_agrees_with_itself_and_with_the_list_of_standards() -> None:
    """An id is the exclusive or of its functions' selectors; no text differs from the one that standards.txt has."""
    assert len(interfaces()) > 25
    assert len(interface_ids()) == len([one for one in interfaces() if one.id])
    for one in interfaces():
        assert one.source.startswith("https://")
        computed = reduce(int.__xor__, map(int.from_bytes, one.required), 0).to_bytes(4)
        assert one.id in (b"", computed) or one.name == "ERC-4906"
        for hash, declaration in (*one.functions.items(), *one.events.items()):
            assert canonical().get(hash, declaration.text) == declaration.text


def names(selectors: Iterable[str]) -> dict[str, bool]:
    """The standards that these functions implement, and whether in full."""
    return {one.interface.name: one.in_full for one in implemented({hash_of(text) for text in selectors})}


def test_standards_in_full_and_in_part() -> None:
    """Optional functions may be missing; more than half of the others is a part; less is none."""
    erc20 = next(one for one in interfaces() if one.name == "ERC-20")
    texts = [erc20.functions[selector].text for selector in erc20.required]
    assert names(texts)["ERC-20"] is True
    part = implemented({hash_of(text) for text in texts if text != "totalSupply()"})
    assert [one.missing for one in part if one.interface is erc20] == [("totalSupply()",)]
    assert "ERC-20" not in names(["approve(address,uint256)", "balanceOf(address)"])
    assert names(["supportsInterface(bytes4)"]) == {"ERC-165": True}


def test_interface_ids_need_supports_interface() -> None:
    """The ids that its code pushes are those that it answers to; without the function they are other constants."""
    body = push(bytes.fromhex("80ac58cd")) + push(b"\xe0") + bytes([SHL])
    supports = CodeFunction(hash_of("supportsInterface(bytes4)"), "bytes4", False)
    assert [one.name for one in contract([supports], body=body).interface_ids] == ["ERC-721"]
    assert contract([], body=body).interface_ids == ()


ADDRESS = bytes.fromhex("bebebebebebebebebebebebebebebebebebebebe")
PROXIES = {
    name: bytes.fromhex(code.replace("ADDRESS", ADDRESS.hex()))
    for name, code in {
        "EIP-1167 minimal proxy": "363d3d373d3d3d363d73ADDRESS5af43d82803e903d91602b57fd5bf3",
        "ERC-7511 minimal proxy": "365f5f375f5f365f73ADDRESS5af43d5f5f3e5f3d91602a57fd5bf3",
        "minimal proxy of Solady": "3d3d3d3d363d3d37363d73ADDRESS5af43d3d93803e602a57fd5bf3",
        "minimal proxy of Vyper": "366000600037611000600036600073ADDRESS5af4602c57600080fd5b6110006000f3",
        "EIP-7702 delegation": "ef0100ADDRESS",
    }.items()
}
RECEIVES = "36602c57343d527f9e4ac34f21c619cefc926c8bd93b54bf5a39c7ab2127a895af1cc0691d7e3dff593da1005b"
"""A log of ether that comes without calldata."""
OTHERS = [
    bytes.fromhex(code.replace("ADDRESS", ADDRESS.hex()))
    for code in (
        "5f5f365f5f37365f73ADDRESS5af43d5f5f3e6029573d5ffd5b3d5ff3",  # Solady, with PUSH0
        "366000600037611000600036600073ADDRESS5af41558576110006000f3",  # Uniswap v1's exchanges
        # Solady with two bytes of immutable arguments, and 0xSplits
        f"{RECEIVES}363d3d373d3d3d3d610004806062363936013d73ADDRESS5af43d3d93803e606057fd5bf3abcd0004",
        f"{RECEIVES}3d3d3d3d363d3d37363d73ADDRESS5af43d3d93803e605757fd5bf3",
    )
]
SHORT = bytes.fromhex("363d3d373d3d3d363d6fbebebebebebebebebebebebebebebebe5af43d82803e903d91602757fd5bf3")
"""Leading zeros of an address may be left out."""
IMPLEMENTATION, SECOND, BEACON = (
    slot(f"eip1967.proxy.{name}") for name in ("implementation", "implementation.secondary", "beacon")
)
LOUPE = ["facets()", "facetFunctionSelectors(address)", "facetAddresses()", "facetAddress(bytes4)"]
DELEGATE = bytes.fromhex("5af4")


@pytest.mark.parametrize(
    ("code", "found", "detail"),
    [
        *((code, [(name, ADDRESS)], "delegates every call to") for name, code in PROXIES.items()),
        *((code, [("minimal proxy", ADDRESS)], "delegates calls to 0xbebe") for code in OTHERS),
        (b"\x5b" * 64 + OTHERS[0], [("delegates calls", b"")], "no function is found"),  # behind other code
        (OTHERS[0].replace(b"\x37", b"\x52"), [("delegates calls", b"")], ""),  # a library is called so, too
        (dispatcher([hash_of("f()")], function=OTHERS[0]), [], ""),
        (SHORT, [("EIP-1167 minimal proxy, shorter address", bytes(4) + ADDRESS[:16])], ""),
        (PROXIES["EIP-1167 minimal proxy"] + bytes(40), [("EIP-1167 minimal proxy", ADDRESS)], "; 40 bytes of immutable arguments"),
        (b"\0" + PROXIES["EIP-1167 minimal proxy"], [], ""),
        (push(IMPLEMENTATION) + DELEGATE, [("EIP-1967 implementation", b"")], "the slot is used, and the code delegates calls"),
        (dispatcher([hash_of("proxiableUUID()")], push(IMPLEMENTATION) + DELEGATE), [("EIP-1967 implementation", b"")], "(UUPS)"),
        (push(BEACON) + DELEGATE, [("EIP-1967 beacon", b"")], ""),
        (push(IMPLEMENTATION) + push(SECOND) + b"\xf4", [("EIP-1967 implementation", b""), ("Arbitrum second implementation", b"")], ""),
        (dispatcher(map(hash_of, LOUPE)), [("EIP-2535 diamond", b"")], "some functions of a diamond"),
        (dispatcher([*map(hash_of, LOUPE), bytes.fromhex("1f931c1c")]), [("EIP-2535 diamond", b"")], "diamondCut and the loupe"),
        (push(hash_of("masterCopy()") + bytes(28)) + DELEGATE, [("Safe proxy", b"")], ""),
        # Code that holds or calls a proxy: a factory of Safes, and a library that delegates and has functions.
        (dispatcher([hash_of("proxyCreationCode()")], b"\xfe" + bytes.fromhex(CONTRACTS["SafeProxy"]["runtime"])), [], ""),
        (dispatcher([hash_of("f()")], function=DELEGATE), [], ""),
        (push(b"\xf4" * 4) + b"\0", [], ""),
    ],
)  # fmt: skip
def test_proxies_are_known_by_their_code(code: bytes, found: list[tuple[str, bytes]], detail: str) -> None:
    """By the bytes of minimal ones, which hold the address, and by slots and functions."""
    patterns = proxy_patterns(analyse(code))
    assert [(one.name, one.address) for one in patterns] == found
    assert all(detail in one.detail for one in patterns)


def test_slots_are_those_that_the_standards_print() -> None:
    assert IMPLEMENTATION.hex() == "360894a13ba1a3210667c828492db98dca3e2076cc3735a920a3ca505d382bbc"
    assert BEACON.hex() == "a3f0ad74e5423aebfd80d3ef4346578335a9a72aeaee59ff6cb3582b35133d50"


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("ERC1967Proxy", "EIP-1967 implementation"),
        ("BeaconProxy", "beacon proxy"),
        ("SafeProxy", "Safe proxy"),
        ("Lib_ResolvedDelegateProxy", "delegates calls"),
    ],
)
def test_real_proxies_are_named(name: str, pattern: str) -> None:
    """By their runtime code, in which no function of theirs is found but the Safe's masterCopy()."""
    found = interface_of(read_contract(CONTRACTS[name]["runtime"]), {})
    assert not found.code.is_creation
    assert [one.name for one in found.proxies] == [pattern]
    assert {one.hash for one in found.functions} <= {hash_of("masterCopy()")}


# Machines, and libraries.


def tron_check(instruction: int, at: int, width: int) -> bytes:
    """The check that the head of a function has at this position: of CALLVALUE, CALLTOKENID or CALLTOKENVALUE.

    Its jump has an address of ``width`` bytes.
    """
    target = push((at + 9 + width).to_bytes(width))
    return bytes([instruction, DUP1, ISZERO]) + target + bytes.fromhex("57600080fd5b50")


@pytest.mark.parametrize("width", [1, 2, 3])
def test_code_of_tron_is_read(width: int) -> None:
    """Its functions have their arguments; evmole ends a function at an instruction that only Tron has."""
    selector = hash_of("transfer(address,uint256)")
    at = len(dispatcher([selector])) - 1  # behind the JUMPDEST
    checks = b"".join(
        tron_check(one, at + number * (11 + width), width) for number, one in enumerate((0x34, 0xD3, 0xD2))
    )
    code = dispatcher([selector], function=checks + reads_words(2))
    found = read_contract(code.hex())
    assert found.machine == "Tron"
    assert [(one.selector, one.arguments, one.takes_ether) for one in found.functions] == [
        (selector, "uint256,uint256", False)
    ]
    assert found.code_hash == keccak256(code)
    assert read_contract(CONTRACTS["KVStore"]["runtime"]).machine == "EVM"


def test_a_library_that_is_not_deployed_shows_its_arguments() -> None:
    """It has zeros for its address, and its functions fail where they are not delegated to."""
    selector = hash_of("f(uint256,uint256)")
    start = bytes.fromhex("73" + "00" * 20 + "3014")
    at = len(dispatcher([selector], start=start)) - 1
    check = bytes([DUP2, ISZERO]) + push(bytes([at + 9])) + bytes.fromhex("57600080fd5b")
    code = dispatcher([selector], function=check + reads_words(2), start=start)
    assert [one.arguments for one in read_contract(code.hex()).functions] == ["uint256,uint256"]


@pytest.mark.parametrize("width", [1, 2])
def test_a_function_that_wants_calldata_of_one_size_shows_its_arguments(width: int) -> None:
    """As Vyper 0.3 writes it: CALLDATASIZE, XOR, and a jump to where it fails."""
    selector = hash_of("f(uint256,uint256)")

    def code(failing: int) -> bytes:
        check = push(b"\x44") + bytes.fromhex("3618") + push(failing.to_bytes(width)) + bytes([JUMPI])
        return dispatcher([selector], body=bytes.fromhex("5b5f5ffd"), function=check + reads_words(2))

    found = read_contract(code(len(code(0)) - 4).hex())
    assert [one.arguments for one in found.functions] == ["uint256,uint256"]


def test_a_check_of_value_without_vyper_s_optimizer_is_read() -> None:
    """CALLVALUE, ISZERO, ISZERO, and a jump to where it fails."""

    def code(failing: int) -> bytes:
        check = bytes.fromhex("341515") + push(failing.to_bytes(2)) + bytes([JUMPI])
        return dispatcher([hash_of("f()")], body=bytes.fromhex("5b5f5ffd"), function=check + b"\0")

    assert [one.takes_ether for one in read_contract(code(len(code(0)) - 4).hex()).functions] == [False]


def test_whether_a_library_takes_ether_is_not_said() -> None:
    """It checks no value, because the contract that delegates to it did."""
    functions = read_contract(CONTRACTS["LibArbitrumL2"]["runtime"]).functions
    assert [one.takes_ether for one in functions] == [None]


# Costs.

_COPIES = b"\x39" + b"".join(b"\x61" + number.to_bytes(2) + b"\xfe" for number in range(1 << 16))
_PIECES = [*(bytes([opcode]) for opcode in range(256)), *map(bytes.fromhex, (
    "6020610100833981519152", "60206101005f39", "5b600056", "5b61010057", "63aabbccdd60e01b", "7f" + "11" * 32,
    "d3801561000057", "d380", "73" + "00" * 20, "363d3d373d3d3d363d73", "a264697066735822", "0000008003000039",
))]  # fmt: skip


@pytest.mark.parametrize("piece", [_COPIES, *_PIECES, b"__" + b"1" * 38], ids=lambda piece: piece[:12].hex())
def test_time_is_in_proportion_to_the_code(piece: bytes) -> None:
    """Eight times the code takes at most 24 times the processor time, once the machine is quiet enough to show it.

    The functions are left to another process.
    """

    def seconds(size: int) -> float:
        code = (piece * (size // len(piece) + 1))[:size]
        digits = code.decode() * 2 if piece[:2] == b"__" else code.hex()
        began = process_time()
        given, libraries = bytes_of_hex(digits)
        for one in codes_of(given):
            document(interface_of(contract_code(one, (), libraries), {}))
        return process_time() - began

    assert any(seconds(128_000) < 24 * seconds(16_000) for _ in range(10))


# Solidity.


def texts_of(declarations: Iterable[str]) -> tuple[list[CodeFunction], dict[bytes, list[Known]], bytes]:
    """Code and directory of a contract with these declarations."""
    functions, directory, body = [], {}, b""
    for line in declarations:
        one = parse_declaration(line)
        hash = hash_of(one.text, one.kind)
        directory[hash] = [Known(one.text, one.kind, declaration=line)]
        if one.kind is Kind.FUNCTION:
            functions.append(CodeFunction(hash, None, one.mutability == "payable"))
        else:
            body += event_code(hash) if one.kind is Kind.EVENT else error_code(hash)
    return functions, directory, body


HARD = [
    "function delete(uint256 a)",
    "function from(address from, uint256 memory_) view returns (uint256 return)",
    "function IContract()",
    "function f((uint256 a, (bytes data, address[] to)[] calls)[2] orders, string s) payable returns ((uint256 a, bool) r)",
    "function f((uint256 a, uint256 a) same)",
    "function cb(function f, function[] g)",
    "function money(fixed128x18 x)",
    "function none(uint256[0] x)",
    "function huge(uint256[4294967296][4294967296] x)",
    "function uint256(uint8 x)",
    "function overloaded(uint256 a)",
    "function overloaded(address a)",
    "event Sent(address indexed from, (uint256 a, bytes b) what, uint256[] values)",
    "event Sent(uint256 indexed a)",
    "event overloaded(uint256 a)",
    "event Hidden(uint256 a) anonymous",
    "error Sent(uint256 a)",
    "error Bad(uint256 a, (uint256 a, bytes b) why)",
    "error Bad(address who)",
    "error Struct1()",
    "function error(bytes1 event)",
    "function $(uint256 $)",
    "function _(uint256 _)",
]


def solc(source: str) -> dict[str, Any]:
    """The ABI and the identifiers that npm's solc makes of a source; skips the test without it."""
    folder = ROOT / "tests" / "clients"
    node = shutil.which("node")
    if node is None or not (folder / "node_modules" / "solc").exists():
        pytest.skip("npm's solc is not installed: npm install --prefix tests/clients")
    script = (
        "import solc from 'solc'; import {readFileSync} from 'fs';"
        "const settings = {outputSelection: {'*': {'*': ['abi', 'evm.methodIdentifiers']}}};"
        "const input = {language: 'Solidity', sources: {'i.sol': {content: readFileSync(0, 'utf8')}}, settings};"
        "console.log(solc.compile(JSON.stringify(input)));"
    )
    command = [node, "--input-type=module", "-e", script]
    done = subprocess.run(command, input=source, cwd=folder, capture_output=True, text=True, check=True)
    output = json.loads(done.stdout)
    errors = [one["formattedMessage"] for one in output.get("errors", ()) if one["severity"] == "error"]
    assert not errors, source + "\n".join(errors)
    (compiled,) = output["contracts"]["i.sol"].values()
    return dict(compiled)


def written_hashes(source: str) -> set[str]:
    """The selectors of the functions that are no comment."""
    lines = (line.strip() for line in source.splitlines())
    return {line.partition("// 0x")[2][:8] for line in lines if line.startswith("function")}


def test_solc_compiles_hard_names_and_types() -> None:
    """Keywords, taken names, empty arrays and the like are comments; every other function keeps its selector."""
    functions, directory, body = texts_of(HARD)
    source = solidity_of(contract(functions, directory, body))
    identifiers = set(solc(source)["evm"]["methodIdentifiers"].values())
    assert identifiers == written_hashes(source)
    comments = {line.split(": ")[1] for line in source.splitlines() if line.startswith("    // 0x")}
    assert comments == {
        "its name is a keyword of Solidity", "another declaration has its name", "solc has no arrays of length 0",
        "solc does not implement fixed point numbers", "an array of it takes more than memory",
    }  # fmt: skip


def assert_solc_compiles(source: str) -> None:
    """To the selectors that are written beside its functions, none of which is a comment."""
    assert set(solc(source)["evm"]["methodIdentifiers"].values()) == written_hashes(source)
    assert ": " not in "".join(line for line in source.splitlines() if line.startswith("    // 0x"))


def test_solc_compiles_the_standards() -> None:
    lines = [str(one) for one in standard_declarations().values()]
    assert_solc_compiles(solidity_of(contract(*texts_of(lines))))


@pytest.mark.long
def test_solc_compiles_the_corpora_s_contracts() -> None:
    for one in artifacts():
        directory = {hash_of(text, kind): [Known(text, kind)] for kind, text in abi_texts(one)}
        found = interface_of(read_contract(one["deployedBytecode"]), directory)
        if found.functions:
            assert_solc_compiles(solidity_of(found))
