"""What decoding costs is bounded by the bytes of its input: elements, texts, splits of logs, and the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import process_time
from typing import Any

import orjson
import pytest

from sigdir.serve.pages.page import indented
from sigdir.signatures.contract import contract_code, interface_of
from sigdir.signatures.decode_input import inputs_of_fields
from sigdir.signatures.evidence import Kind
from sigdir.signatures.interface_forms import abi_of, solidity_of
from sigdir.signatures.interface_forms import document as contract_document
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.reading_json import document, ordered
from sigdir.signatures.readings import Known
from tests.signatures.assembly import push
from tests.signatures.test_calldata import word
from tests.signatures.test_readings import answered

RATIO = 64
SELECTOR = keccak256(b"f()")[:4]
Directory = Mapping[bytes, Sequence[Known]]


def asked(data: bytes, *texts: str) -> dict[str, Any]:
    return {"data": "0x12345678" + data.hex(), "texts": list(texts)}


def answer_to(fields: Any, known: Directory, **settings: int) -> tuple[dict[str, Any], bytes]:
    """The answer to one input, as a value and as JSON."""
    readings = answered(inputs_of_fields(fields), known, **settings)
    found = document(ordered([reading for some in readings for reading in some]))
    return found, orjson.dumps(found)


def log(texts: Sequence[str], data: bytes = b"") -> dict[str, Any]:
    topics = [keccak256(texts[0].encode()), *[word(1)] * 3]
    return {"topics": ["0x" + topic.hex() for topic in topics], "data": "0x" + data.hex(), "texts": list(texts)}


def eight(parameters: str) -> list[str]:
    return [f"f{number}({parameters})" for number in range(8)]


def named(number: int, size: int) -> Known:
    return Known("a" * size + f"{number}()")


SHARED = word(32) + word(1000) + word(32 * 1000) * 1000 + word(len(SELECTOR)) + SELECTOR.ljust(32, b"\0")
CALLS = asked(SHARED, "f(bytes[])")
"""Calls as the arguments of `f(bytes[])`, all of them the same bytes."""
LONG = ",".join(["uint8"] * 1200)
DECLARED = f"function f({', '.join(['uint8 a'] * 1500)})"
HOSTILE: dict[str, tuple[dict[str, Any], Directory]] = {
    "a log and eight long texts": (log([f"E{n}({','.join(['uint8,uint16'] * 590)})" for n in range(8)], word(1) * 1177), {}),
    "arrays in arrays": (
        asked(word(32) + word(1000) + word(1) * 1000, *eight("uint8" + "[1]" * 15 + "[]")), {},
    ),
    "tuples in tuples": (asked(word(1) * 1000, *eight("(" * 15 + ",".join(["uint8"] * 1000) + ")" * 15)), {}),
    "strings of control characters": (asked(word(32) + word(32_000) + b"\1" * 32_000, *eight("string")), {}),
    "fixed-point numbers": (asked(word(32) + word(1000) + word(1 << 127) * 1000, *eight("ufixed128x80[]")), {}),
    "calls that share their bytes": (CALLS, {SELECTOR: [named(n, 1) for n in range(8)]}),
    "calls of long names": (CALLS, {SELECTOR: [named(n, 8000) for n in range(8)]}),
    "calls of long texts": (CALLS, {SELECTOR: [Known(f"f{n}({LONG})") for n in range(8)]}),
    "calls of long declarations": (CALLS, {SELECTOR: [Known(f"f{n}()", declaration=DECLARED) for n in range(8)]}),
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Kernels are compiled before a clock runs."""
    answer_to(asked(b"", "f(uint8)"), {})
    interface_of(contract_code(push(SELECTOR), ()), {})


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_is_bounded_by_its_input(name: str) -> None:
    """In bytes, and in processor time: without the bounds it is seconds to minutes."""
    fields, known = HOSTILE[name]
    began = process_time()
    found, json = answer_to(fields, known)
    assert process_time() - began < 2
    assert len(json) <= RATIO * len(orjson.dumps(fields))
    assert found["candidates"], "the outer level is always there"


@pytest.mark.parametrize("size", [30, 60_000])
def test_a_list_of_one_selector_is_bounded(size: int) -> None:
    """However many texts a selector has and however long they are. What was not tried is said."""
    known = {SELECTOR: [named(number, size) for number in range(100)]}
    fields = {"data": "0x" + SELECTOR.hex()}
    found, json = answer_to(fields, known, spare=32)
    assert len(json) <= RATIO * len(orjson.dumps(fields))
    untried = 100 - len(found["candidates"])
    assert (found["texts"], found["note"].split(" ")[:3]) == (100, [str(untried), "known", "texts"])


def test_a_text_alone_is_tried_however_long_it_is() -> None:
    found, _ = answer_to({"data": "0x" + SELECTOR.hex()}, {SELECTOR: [named(0, 65_000)]})
    assert [one["reason"] for one in found["candidates"]] == ["bad_type"]
    assert "note" not in found


ERRORS = [bytes([0x10, *number.to_bytes(3)]) for number in range(6000)]
CODES: dict[str, tuple[int, Callable[[int], list[Known]]]] = {
    "many texts of one selector": (50, lambda _: [named(n, 20) for n in range(100)]),
    "many selectors": (6000, lambda number: [Known(f"E{number}(uint256)")]),
    "long names": (300, lambda number: [named(number, 16_000)]),
    "wide and deep": (300, lambda number: [Known(f"E{number}({'(' * 30}{LONG}{')' * 30})")]),
    "deep many times": (300, lambda number: [Known(f"E{number}({','.join(['(' * 30 + 'uint8' + ')' * 30] * 150)})")]),
    "long declarations": (300, lambda _: [Known("E()", declaration=DECLARED)]),
}  # fmt: skip


@pytest.mark.parametrize("name", CODES)
def test_the_interface_of_code_is_bounded_by_the_code(name: str) -> None:
    """In bytes, as JSON and as a page has it, and in processor time. What has no room is counted."""
    count, texts = CODES[name]
    code = b"".join(push(hash) for hash in ERRORS[:count]).ljust(32 << 10, b"\0")
    known = {
        hash: [one._replace(kind=Kind.ERROR) for one in texts(number)] for number, hash in enumerate(ERRORS[:count])
    }
    began = process_time()
    contract = interface_of(contract_code(code, ()), known)
    json = orjson.dumps(contract_document(contract))
    page = len(indented(abi_of(contract))) + len(solidity_of(contract))
    assert process_time() - began < 4
    assert max(len(json), page) <= RATIO * 2 * len(code)
    shown = sum(len(error.texts) for error in contract.errors)
    assert shown + contract.left_out == sum(map(len, known.values()))
    assert bool(contract.note) == bool(contract.left_out)


def test_small_code_has_room_for_its_texts() -> None:
    """A diamond's dispatcher: thirty selectors in a kilobyte, with five texts each."""
    code = b"".join(push(hash) for hash in ERRORS[:30]).ljust(1024, b"\0")
    texts = [Known(f"setSomething{n}(address,uint256,bytes)", Kind.ERROR) for n in range(5)]
    assert interface_of(contract_code(code, ()), dict.fromkeys(ERRORS[:30], texts)).left_out == 0


def test_members_of_a_struct_have_names_of_their_own() -> None:
    """Also where one has the name that another without a name would get."""
    text = "E((uint8,uint8,uint8))"
    selector = keccak256(text.encode())[:4]
    known = Known(text, Kind.ERROR, declaration="error E((uint8 _1, uint8, uint8 _1_) one)")
    contract = interface_of(contract_code(push(selector), ()), {selector: [known]})
    assert "struct Struct1 { uint8 _1; uint8 _1_; uint8 _2; }" in solidity_of(contract)


def test_topics_that_fit_the_last_parameters_are_found_at_once() -> None:
    """Among all choices of three of a thousand parameters; the others are not looked at."""
    text = f"E({'uint8,' * 1000}uint256,uint256,uint256)"
    topics = ["0x" + topic.hex() for topic in [keccak256(text.encode()), *[word(1 << 255)] * 3]]
    found, _ = answer_to({"topics": topics, "data": "0x" + (word(1) * 1000).hex(), "texts": [text]}, {})
    indexed = [number for number, one in enumerate(found["candidates"][0]["parameters"]) if one["indexed"]]
    assert indexed == [1000, 1001, 1002]
