"""Bytecode: what is in a contract's code, and which ABI entries it proves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.bytecode import (
    MAX_BYTES,
    BadBytecode,
    analyse,
    bytes_of_hex,
    contract_key,
    other_machine,
    runtime_code,
    runtime_code_of_creation,
    witness_of,
)
from sigdir.signatures.code_scan import scan_code
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.keccak import keccak256
from tests.examples import examples
from tests.pipeline.support import corpus
from tests.signatures.assembly import SHL, dispatcher, error_code, event_code, metadata, plain_error_code, push

TRANSFER = keccak256(b"transfer(address,uint256)")
APPROVE = keccak256(b"approve(address,uint256)")
TRANSFERRED = keccak256(b"Transfer(address,address,uint256)")
UNAUTHORIZED = keccak256(b"Unauthorized()")


def artifacts() -> list[dict[str, Any]]:
    """The corpora's artifacts with runtime code; skips the test without them."""
    documents = [json.loads(path.read_bytes()) for path in sorted(corpus("artifacts").glob("*.json"))]
    return [document for document in documents if document["deployedBytecode"] != "0x"]


def abi_texts(document: dict[str, Any]) -> Iterator[tuple[Kind, str]]:
    """Kind and canonical text of each entry with a selector, spelled here without the code under test."""
    for entry in document["abi"]:
        if entry["type"] in ("function", "event", "error"):
            yield Kind[entry["type"].upper()], f"{entry['name']}({','.join(map(_type, entry['inputs']))})"


def _type(parameter: dict[str, Any]) -> str:
    if not parameter["type"].startswith("tuple"):
        return str(parameter["type"])
    return f"({','.join(map(_type, parameter['components']))}){parameter['type'][5:]}"


def test_the_runtime_code_inside_of_creation_code_is_found() -> None:
    """For each of the 81 artifacts it equals its runtime code, where the constructor deploys another contract too."""
    for document in artifacts():
        runtime, creation = (bytes_of_hex(document[key])[0] for key in ("deployedBytecode", "bytecode"))
        assert scan_code(creation).returned == runtime, document["contractName"]


VYPER = json.loads((Path(__file__).parent / "data" / "vyper.json").read_text())
"""Runtime code and selectors of `data/token.vy` by several versions of Vyper, whose dispatchers differ."""


@pytest.mark.parametrize("version", list(VYPER))
def test_vyper_s_dispatchers_are_read(version: str) -> None:
    """Lists of comparisons, sparse buckets and dense tables: every selector is found, and no other."""
    code = runtime_code(VYPER[version]["runtime"])
    assert code.selectors == {bytes.fromhex(one) for one in VYPER[version]["selectors"]}
    assert witness_of(Kind.EVENT, TRANSFERRED, code) is Witness.COMPILED


CONTRACTS = json.loads((Path(__file__).parent / "data" / "contracts.json").read_text())
"""Runtime code, and creation code of some, with their source and licence."""


def runtime_of(name: str) -> bytes:
    return bytes.fromhex(CONTRACTS[name]["runtime"])


@pytest.mark.parametrize("name", [name for name, contract in CONTRACTS.items() if "creation" in contract])
def test_creation_code_gives_the_part_that_it_returns(name: str) -> None:
    """A proxy and a library without functions by solc, a token by Vyper with a constructor."""
    assert scan_code(bytes.fromhex(CONTRACTS[name]["creation"])).returned == runtime_of(name)
    code = runtime_code_of_creation(CONTRACTS[name]["creation"])
    assert code == runtime_code(CONTRACTS[name]["runtime"])


def test_runtime_code_is_no_creation_code() -> None:
    """Also where it has no functions, copies a constant from behind an INVALID, or creates a contract."""
    assert [name for name in CONTRACTS if name != "EraVM" and scan_code(runtime_of(name)).returned is not None] == []


def returns(size: int, part: int, offset: int, place: bytes = b"\0") -> bytes:
    """Copies a part of the code to memory, and returns so many bytes from the place."""
    copy = push(part.to_bytes(2)) + push(offset.to_bytes(2)) + push(b"\0") + b"\x39"
    return copy + push(size.to_bytes(2)) + push(place) + b"\xf3\xfe"


RUNTIME = dispatcher([TRANSFER[:4]])
SWAPPED = bytes.fromhex(f"61001161{len(RUNTIME):04x}90600039") + returns(len(RUNTIME), 0, 0)[9:]
"""The offset is pushed before the size."""
LENGTH = f"{len(RUNTIME):04x}"
END = f"{len(RUNTIME) + 4:04x}"
VYPER_0_2 = bytes.fromhex(f"61{END}56{RUNTIME.hex()}5b61000461{END}0361000460003961000461{END}036000f3")
"""The runtime code comes first, and its size is the difference of its end and its begin."""
VYPER_0_3_1 = bytes.fromhex(f"61{LENGTH}61001963000000003961{LENGTH}6020016300000000f3fe")
"""It copies to the place that four zero bytes are, and returns the immutables too: their size is added."""


def clones(offset: int) -> bytes:
    """ERC-1167's creation code, which writes 0 as RETURNDATASIZE."""
    return bytes.fromhex(f"3d60{len(RUNTIME):02x}8060{offset:02x}3d3981f3")


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        (VYPER_0_2, True),
        (VYPER_0_3_1 + RUNTIME, True),
        (returns(len(RUNTIME), len(RUNTIME), 16) + RUNTIME, True),
        (returns(len(RUNTIME) + 32, len(RUNTIME), 16) + RUNTIME, True),  # immutables follow
        (returns(len(RUNTIME) - 1, len(RUNTIME), 16) + RUNTIME, False),
        (returns(len(RUNTIME), len(RUNTIME), 16, b"\x20") + RUNTIME, False),  # other memory
        (returns(len(RUNTIME), len(RUNTIME), 17) + RUNTIME, False),  # beyond the end
        (b"\0" + returns(len(RUNTIME), len(RUNTIME), 16) + RUNTIME, False),  # data of code that stops
        (b"\0\x5b" + returns(len(RUNTIME), len(RUNTIME), 18) + RUNTIME, False),  # no jump leads there
        (SWAPPED + RUNTIME, True),
        (clones(10) + RUNTIME, True),
        (bytes.fromhex("3d" * 7 + "f1") + clones(18) + RUNTIME, False),  # what a call returned has an unknown size
        (b"\x60\x04\x56\xfe\x5b" + returns(len(RUNTIME), len(RUNTIME), 21) + RUNTIME, True),  # a jump leads there
    ],
)
def test_what_creation_code_is(code: bytes, is_found: bool) -> None:
    """The part that is copied last is returned, from the memory to which it was copied; data is not read."""
    assert scan_code(code).returned == (RUNTIME if is_found else None)


def test_a_topic_that_the_optimizer_moved_behind_the_code_is_compiled() -> None:
    """KVStore's only event is no PUSH32. A topic that lies in the code and is not copied proves nothing."""
    topic = keccak256(b"DataSaved(address,string,string)")
    code = runtime_code(CONTRACTS["KVStore"]["runtime"])
    assert push(topic) not in code.code
    assert witness_of(Kind.EVENT, topic, code) is Witness.COMPILED
    assert witness_of(Kind.EVENT, keccak256(b"xDataSaved(address,string,string)"), code) is Witness.DECLARED
    offset = code.code.index(topic).to_bytes(2)
    elsewhere = code.code.replace(push(offset), push(bytes(2)))
    assert elsewhere != code.code
    assert witness_of(Kind.EVENT, topic, analyse(elsewhere)) is Witness.DECLARED


IS_ERROR, IS_EVENT = {Kind.ERROR, Kind.UNKNOWN}, {Kind.EVENT}
MASK = b"\xff" * 4
"""solc refuses an error with this selector."""
# One event in 256 begins with a zero byte, one in 65,536 with two.
ZERO_TOPICS = (
    bytes.fromhex("00fffc2da0b561cae30d9826d37709e9421c4725faebc226cbbb7ef5fc5e7349"),  # ProxyCreated(address)
    bytes.fromhex("000049f5799cce70676e1ad243c1c038b85388c2ffbf0890cf3366385756c3f2"),  # Zeros93524()
)


@pytest.mark.parametrize(
    ("digest", "part", "kinds"),
    [
        (TRANSFER, b"", {Kind.FUNCTION, Kind.UNKNOWN}),  # an ABI that calls a function of the code an error is forged
        *((UNAUTHORIZED, code(UNAUTHORIZED[:4]), IS_ERROR) for code in (error_code, plain_error_code)),
        (UNAUTHORIZED, push(UNAUTHORIZED[:4] + bytes(28)), IS_ERROR),
        (bytes.fromhex("00000002") + UNAUTHORIZED[4:], push(b"\0\2") + push(b"\xe0") + bytes([SHL]), IS_ERROR),
        (MASK + UNAUTHORIZED[4:], error_code(MASK), set()),
        (TRANSFERRED, event_code(TRANSFERRED), IS_EVENT),
        *((TRANSFERRED, part, set()) for part in (TRANSFERRED, push(TRANSFERRED[:31]), push(TRANSFERRED)[:-1])),
        *((topic, event_code(topic.lstrip(b"\0")), IS_EVENT) for topic in ZERO_TOPICS),
    ],
)
def test_what_code_proves(digest: bytes, part: bytes, kinds: set[Kind]) -> None:
    """A function by the dispatcher; an error by its selector, shifted, plain or as a whole word; an event by its topic, which
    compilers push without the zeros before it. An entry that does not say its kind is a function or an error.
    """
    code = analyse(dispatcher([TRANSFER[:4]], part) + metadata())
    assert {kind for kind in Kind if witness_of(kind, digest, code) is Witness.COMPILED} == kinds


@given(st.integers(1, 2**32 - 2), st.integers(0, 31))
def test_a_selector_is_found_however_far_it_is_shifted(selector: int, zeros: int) -> None:
    """solc cuts zero bits from the end of a selector and shifts further; every cut is read."""
    selector = selector >> zeros << zeros or 1 << zeros
    value = selector >> zeros
    code = push(value.to_bytes((value.bit_length() + 7) // 8)) + push(bytes([224 + zeros])) + bytes([SHL])
    assert selector.to_bytes(4) in analyse(code).error_selectors


@pytest.mark.parametrize("shift", [0, 8, 0xA0, 0xDF, 0xE1, 0xFF])
def test_a_constant_shifted_elsewhere_is_no_selector(shift: int) -> None:
    """Only a word whose lower 28 bytes are zero has a selector."""
    code = push(b"\x12\x34\x56\x79") + push(bytes([shift])) + bytes([SHL])
    assert b"\x12\x34\x56\x79" not in analyse(code).error_selectors


def test_metadata_is_no_part_of_a_contract_s_key() -> None:
    """Two builds that differ in the hash of their metadata are one contract; another code is another contract."""
    code = dispatcher([TRANSFER[:4]])
    first, second = (analyse(code + metadata(bytes([n]) * 32)) for n in (1, 2))
    assert contract_key(first.code) == contract_key(second.code) == keccak256(code)[:8]
    assert contract_key(analyse(dispatcher([APPROVE[:4]])).code) != contract_key(first.code)


def test_a_topic_in_the_metadata_is_not_read() -> None:
    """The metadata's hash is 32 bytes that anybody may choose."""
    code = dispatcher([TRANSFER[:4]]) + metadata(b"\x7f" + TRANSFERRED[:31])
    assert analyse(code).topics == frozenset()


@pytest.mark.parametrize(
    "place",
    ["__$" + "5d" * 17 + "$__", "__contracts/Library.sol:Library_________", "__Library_______________________________"],
)
def test_unlinked_libraries_are_noted(place: str) -> None:
    """The address of a library that is not linked is read as zeros; everything around it is read."""
    assert len(place) == 40
    text = "0x" + dispatcher([TRANSFER[:4]]).hex() + "73" + place + "7f" + TRANSFERRED.hex() + "73" + place
    code = runtime_code(text)
    assert code.libraries == 2
    assert witness_of(Kind.FUNCTION, TRANSFER, code) is Witness.COMPILED
    assert witness_of(Kind.EVENT, TRANSFERRED, code) is Witness.COMPILED


ONLY = "only code of the EVM is read"


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", "empty", "no bytecode"),
        (" 0x\n", "empty", "no bytecode"),
        ("0x60f", "not_hex", "bytecode of 3 hex digits, an odd number"),
        ("60__short", "not_hex", "bytecode has '_' at digit 3"),
        ("0x6\u0966", "not_hex", "bytecode has '\u0966' at digit 2"),
        ("0x" + "00" * (MAX_BYTES + 1), "too_long", "bytecode of 1,048,577 bytes; at most 1,048,576 are read"),
        ("0xeff00000", "other_machine", f"code of Stylus, Arbitrum's WebAssembly; {ONLY}"),
        (CONTRACTS["EraVM"]["runtime"], "other_machine", f"code of EraVM, zkSync Era's machine; {ONLY}"),
    ],
)
def test_what_is_no_bytecode(text: str, reason: str, detail: str) -> None:
    with pytest.raises(BadBytecode) as caught:
        runtime_code(text)
    assert (caught.value.reason, str(caught.value)) == (reason, detail)


@pytest.mark.parametrize("cut", [slice(-1), slice(-32), slice(32, None), slice(1, None)])
def test_code_that_only_resembles_eravm_s_is_read(cut: slice) -> None:
    """EraVM's is an odd number of words and begins as its compilers write it. Data behind a STOP is code of the EVM."""
    code = runtime_of("EraVM")
    assert other_machine(code)
    assert bytes_of_hex(code[cut].hex()) == (code[cut], 0)
    assert other_machine(bytes.fromhex("0000008003000039") + code[8:])
    assert not other_machine(bytes(len(code)))


@settings(max_examples=examples(300))
@given(st.binary(max_size=400))
def test_any_bytes_are_read(code: bytes) -> None:
    """Nothing in code raises, and all that is found has the length of a hash."""
    found = analyse(code)
    assert {len(one) for one in found.topics} <= {32}
    assert {len(one) for one in found.selectors | found.error_selectors} <= {4}
    assert len(found.code) <= len(code)
    assert (scan_code(code).returned or b"") in code
