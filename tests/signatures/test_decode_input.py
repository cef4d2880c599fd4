"""What people paste, as inputs: texts to try that stand before the bytes, and anonymous logs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from sigdir.signatures.decode_input import BadInput, inputs_of_fields, inputs_of_text
from sigdir.signatures.given_contract import contract_of_abi
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.reading_json import ordered
from sigdir.signatures.readings import Candidate, Confidence, Form, Input, Known
from tests.signatures.test_bytecode import CONTRACTS
from tests.signatures.test_calldata import word
from tests.signatures.test_readings import OTHER, TO, TRANSFER, call, names_of, read

EVENT = "event LogNote(bytes4 indexed sig, address indexed usr, uint value) anonymous"
SIG, USER, VALUE = "0x" + "12345678".ljust(64, "0"), "0x" + TO[2:].zfill(64), "0x" + word(9).hex()
DATA = "0x" + call(TRANSFER, OTHER, 5).hex()


def best_of(inputs: Iterable[Input], *known: Known) -> Candidate:
    """The best of all alternatives: the last word may be a topic or the data."""
    found = ordered([reading for input in inputs for reading in read(input, known)])[0].best
    assert found is not None
    return found


def test_words_are_topics_where_the_declaration_says_so() -> None:
    """The last word of a log is a topic or its data: a declaration decides, that of the contract's ABI before a standard's.

    The ABI's alone is sure: another contract may index other parameters.
    """
    text = "Upgraded(address)"
    words = f"0x{keccak256(text.encode()).hex()} {USER}"
    for declaration, split in (("event Upgraded(address indexed who)", (0,)), ("event Upgraded(address who)", ())):
        found = best_of(inputs_of_text(words), Known(text).declared_as(declaration))
        assert (found.split, found.attempt.values, found.confidence) == (split, (TO,), Confidence.MEDIUM)
        assert found.reasons[-1] == "the last word may be a topic or the data"
    parameters = [("from", "address"), ("to", "address"), ("tokenId", "uint256")]
    erc721 = [{"name": name, "type": type, "indexed": True} for name, type in parameters]
    contract = contract_of_abi([{"type": "event", "name": "Transfer", "inputs": erc721}])
    words = f"0x{keccak256(b'Transfer(address,address,uint256)').hex()} {USER} {USER} {VALUE}"
    found = best_of(input._replace(contract=contract) for input in inputs_of_text(words))
    assert (found.split, names_of(found)) == ((0, 1, 2), ("from", "to", "tokenId"))
    assert found.confidence is Confidence.HIGH


@pytest.mark.parametrize(
    "text",
    [
        f"{EVENT}\n{SIG}\n{USER}\n{VALUE}",
        f"{EVENT};\n{SIG} {USER} {VALUE}",
        f"{EVENT} {SIG} {USER} {VALUE}",
        f"anonymous\n{EVENT.removesuffix(' anonymous')}\ntopic0: {SIG}\ntopic1: {USER}\ndata: {VALUE}",
        f"event Other(string); {EVENT}; {SIG} {USER} {VALUE}",
        "\n".join([EVENT.replace("(", "(\n  ").replace(", ", ",\n  ").replace(") ", "\n) "), SIG, USER, VALUE]),
    ],
)
def test_an_anonymous_log_has_its_event_before_it(text: str) -> None:
    """On a line or before a semicolon, as it is declared: with names, and what is indexed."""
    found = best_of(inputs_of_text(text))
    assert (found.known.text, names_of(found)) == ("LogNote(bytes4,address,uint256)", ("sig", "usr", "value"))
    assert (found.attempt.values, found.split) == ((b"\x12\x34\x56\x78", TO, 9), (0, 1))


def test_an_anonymous_log_may_have_data_alone() -> None:
    found = best_of(inputs_of_text(f"E(uint256 a, address b) anonymous\n{VALUE}{USER[2:]}"))
    assert found.attempt.values == (9, TO)


def test_a_log_may_have_its_event_before_it() -> None:
    """One that is not anonymous keeps its first topic as the hash."""
    [input] = inputs_of_text(f"E(uint256 indexed a)\n{SIG}\n{VALUE}\n0x")
    assert input == Input(Form.LOG, b"", (bytes.fromhex(SIG[2:]), word(9)), texts=("E(uint256 indexed a)",))


def test_a_text_may_have_line_ends_and_lines_of_blanks() -> None:
    """Between parentheses a line end is a blank; elsewhere it ends the text, and so do blanks in front of bytes."""
    [one] = inputs_of_text("f(\n  uint256 a,\n  bool b\n)\n \n\t0x12345678")
    assert (one.texts, one.data) == (("f(   uint256 a,   bool b )",), bytes.fromhex("12345678"))
    [other] = inputs_of_text("f()  0x12345678")
    assert (other.texts, other.data) == (("f()",), bytes.fromhex("12345678"))


def test_calldata_may_have_its_text_before_it() -> None:
    """Tried before those of the directory; the names of its parameters are those of the text."""
    found = best_of(inputs_of_text(f"function transfer(address recipient, uint amount) external;\n{DATA}"))
    assert (found.known.text, names_of(found)) == (TRANSFER, ("recipient", "amount"))


def test_json_that_is_pasted_says_what_its_data_is() -> None:
    """Its `as` counts as that of a request does; what the command or the request says comes before it."""
    text = json.dumps({"data": DATA, "as": "revert"})
    assert [inputs_of_text(text, form)[0].form for form in (Form.AUTO, Form.CALLDATA)] == [Form.REVERT, Form.CALLDATA]
    with pytest.raises(BadInput, match="'poem' is none of"):
        inputs_of_text(text.replace("revert", "poem"))


def test_a_blank_text_is_none() -> None:
    """As the parameter `text=` of an address has it."""
    assert inputs_of_fields({"data": DATA, "texts": ["", " "]}) == inputs_of_fields({"data": DATA})


def test_fields_may_say_that_an_event_is_anonymous_in_its_text() -> None:
    [input] = inputs_of_fields({"topics": [SIG, USER], "data": VALUE, "texts": [EVENT]})
    assert input.anonymous
    assert best_of([input]).split == (0, 1)


@pytest.mark.parametrize("empty", ["", "0x", None])
def test_of_the_names_of_calldata_the_one_counts_that_is_not_empty(empty: str | None) -> None:
    """Nodes write `input`, some programs an empty `data` beside it. A log's data may be empty beside a transaction's input."""
    for names in ({"data": empty, "input": DATA}, {"input": empty, "data": DATA}):
        for fields in (names, {"as": "calldata"} | names):
            assert [one.data.hex() for one in inputs_of_fields(fields)] == [DATA[2:]]
    for same in (DATA.upper(), DATA[2:]):
        assert inputs_of_fields({"data": DATA, "input": same})[0].data.hex() == DATA[2:]
    with pytest.raises(BadInput, match="input: it differs from data"):
        inputs_of_fields({"data": DATA, "input": VALUE})
    [log] = inputs_of_fields({"topics": [SIG, USER], "data": "0x", "input": DATA})
    [returned] = inputs_of_fields({"as": "return", "selector": "0x70a08231", "data": "0x", "input": DATA})
    [nothing] = inputs_of_fields({"data": "0x", "input": "0x"})
    assert (log.data, returned.data, nothing.data) == (b"", b"", b"")


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"result": {"blockNumber": "0x1", "input": DATA, "to": TO}}, Form.AUTO),
        ({"result": DATA, "as": "revert"}, Form.REVERT),
        ({"result": None, "error": {"code": 3, "message": "execution reverted", "data": DATA}}, Form.AUTO),
        ({"result": [{"topics": [SIG], "data": DATA}]}, Form.LOG),
        ({"result": DATA, "as": "return", "selector": "0x70a08231"}, Form.RETURN),
    ],
)
def test_a_node_s_answer_is_what_it_has(value: dict[str, Any], form: Form) -> None:
    """As an object, as its text, as the text of a list of one, and as a text in ``data``."""
    answer = {"jsonrpc": "2.0", "id": 1} | value
    inputs = [
        inputs_of_fields(answer), inputs_of_text(json.dumps(answer), form), inputs_of_text(json.dumps([answer]), form)
    ]  # fmt: skip
    if form is not Form.RETURN:
        inputs.append(inputs_of_fields({"data": json.dumps(answer)}, form))
    assert [(one.form, one.data.hex()) for [one, *_] in inputs] == [(form, DATA[2:])] * len(inputs)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (EVENT, "the bytes are missing"),
        ("anonymous", "the bytes are missing"),
        ("f(uint256)\nhello", "is not a hex digit"),
        ("f()\n" * 9 + "0x12345678", "at most 8 texts"),
        (f"f({'x' * 9000})\n0x12345678", "of 8192 characters"),
        (f"{SIG} " * 6, "5 topics; a log has at most 4"),
        ("0x" + CONTRACTS["EraVM"]["runtime"], "code of EraVM"),  # it is no calldata and no log
        ("0xeff00000" + "ab" * 100, "code of Stylus"),
        ('{"jsonrpc": "2.0", "id": 1, "result": {"logs": []}}', "a node's answer with one"),
        ('{"jsonrpc": "2.0", "id": 1, "result": [{"data": "0x"}, {"data": "0x"}]}', "a node's answer with one"),
        ('{"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "no"}}', "a node's answer with one"),
        ("0x1", "an odd number of hex digits: 1$"),
        ("0xa9", "1 byte; a selector has 4"),
        (json.dumps({"topics": [SIG, SIG[:-1]]}), "topics: topic 1: an odd number of hex digits: 63$"),
        (json.dumps({"topics": [SIG, SIG, SIG[:-1] + "g"]}), "topics: topic 2: 'g' at digit 64 is not a hex digit$"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        inputs_of_text(text)


def test_a_text_that_is_none_is_answered_with_its_reason() -> None:
    [input] = inputs_of_text("f(uint7, see below)\n0x12345678")
    [reading] = read(input, [])
    assert [(one.decodes, one.attempt.reason) for one in reading.candidates] == [(False, "bad_type")]


@pytest.mark.parametrize("name", [name for name, one in CONTRACTS.items() if one["runtime"].startswith("73")])
def test_code_of_a_library_is_code(name: str) -> None:
    """It begins with its own address, which is zeros until it is deployed."""
    [found] = inputs_of_text(CONTRACTS[name]["runtime"])
    assert found.form is Form.CODE
