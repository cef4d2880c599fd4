"""Trees of readings: calls inside calls, logs with every split, reverts, and the bounds on hostile input."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import combinations
from time import process_time
from typing import Any

import pytest
from eth_abi.abi import encode
from eth_abi.packed import encode_packed
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.hostile import hostile
from sigdir.signatures.abi import returns_of
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.logs import IndexedHash
from sigdir.signatures.readings import (
    MAX_LEVELS,
    MAX_READINGS,
    Candidate,
    Confidence,
    Form,
    Input,
    Known,
    Membership,
    Reading,
    Readings,
)
from sigdir.signatures.types import parameter_types
from tests.examples import examples
from tests.signatures.test_calldata import calls, for_eth_abi, word

TO, OTHER = "0x" + "ab" * 20, "0x" + "cd" * 20
TRANSFER, APPROVE, MULTICALL = "transfer(address,uint256)", "approve(address,uint256)", "multicall(bytes[])"


def arguments_of(text: str, *values: Any) -> bytes:
    types = [for_eth_abi(type.text) for type in parameter_types(text)]
    return encode(types, values) if types else b""


def call(text: str, *values: Any) -> bytes:
    return keccak256(text.encode())[:4] + arguments_of(text, *values)


def answered(inputs: Sequence[Input], known: Mapping[bytes, Sequence[Known]], **settings: int) -> list[list[Reading]]:
    """The readings of each input in a directory that has these texts for hashes."""
    readings = Readings(inputs, **settings)
    while wanted := readings.wanted():
        readings.supply({hash: known.get(hash, ()) for hash in wanted})
    return readings.results()


def read(input: Input, texts: Iterable[str | Known]) -> list[Reading]:
    """The readings of one input in a directory of these texts."""
    known: dict[bytes, list[Known]] = {}
    for one in (text if isinstance(text, Known) else Known(text) for text in texts):
        digest = keccak256(one.text.encode())
        known.setdefault(digest, []).append(one)
        known.setdefault(digest[:4], []).append(one)
    return answered([input], known)[0]


def supplied(data: bytes, known: list[Known], form: Form = Form.CALLDATA) -> list[Reading]:
    """The readings of bytes whose selector has these texts."""
    return answered([Input(form, data)], {data[:4]: known})[0]


def best(input: Input, *texts: str | Known) -> Candidate:
    found = read(input, texts)[0].best
    assert found is not None
    return found


def names_of(candidate: Candidate) -> tuple[str, ...]:
    return tuple(one.name for one in candidate.attempt.types)


def texts_inside(candidate: Candidate) -> list[tuple[tuple[int, ...], str]]:
    """Path and best text of each call directly inside."""
    return [(nested.path, nested.reading.candidates[0].attempt.text) for nested in candidate.nested]


def calldata(data: bytes) -> Input:
    return Input(Form.CALLDATA, data)


# Calls inside calls.


@settings(max_examples=examples(60))
@given(calls(), st.integers(1, 5))
def test_a_call_is_found_at_any_depth(random_call: tuple[list[str], tuple[Any, ...]], depth: int) -> None:
    """Any call in multicalls of multicalls is decoded in its place, with the values that eth-abi encoded."""
    kinds, values = random_call
    text = f"inner({','.join(kinds)})"
    data = call(text, *values)
    for _ in range(depth):
        data = call(MULTICALL, [b"", data, b"\1"])
    found = best(calldata(data), text, MULTICALL)
    for _ in range(depth):
        [nested] = found.nested
        assert nested.path == (0, 1)
        found = nested.reading.candidates[0]
        assert found.attempt.exact
    assert found.attempt.text == text
    assert found.attempt.values == values


def test_bytes_that_no_text_uses_up_stay_bytes() -> None:
    """A known selector is not enough: the values must use all of the bytes."""
    inner = call(TRANSFER, TO, 7)
    for changed in (inner[:-32], inner + bytes(32), inner[:5] + b"\1" + inner[6:]):
        assert not best(calldata(call(MULTICALL, [changed])), MULTICALL, TRANSFER).nested


def test_safe_transactions_are_unpacked() -> None:
    """multiSend packs operation, address, value and data without padding; its calls are decoded."""
    calls_inside = [(0, TO, 5, call(TRANSFER, OTHER, 7)), (1, OTHER, 0, b"")]
    packed = b"".join(
        encode_packed(["uint8", "address", "uint256", "uint256", "bytes"], [kind, to, value, len(data), data])
        for kind, to, value, data in calls_inside
    )
    found = best(calldata(call("multiSend(bytes)", packed)), "multiSend(bytes)", TRANSFER)
    [nested] = found.nested
    transactions = nested.reading.candidates[0]
    assert (nested.reading.form, nested.reading.data) == (Form.PACKED, packed)
    assert transactions.attempt.text == "transactions((uint8,address,uint256,bytes)[])"
    assert transactions.attempt.values == (tuple(calls_inside),)
    assert texts_inside(transactions) == [((0, 0, 3), TRANSFER)]
    assert not best(calldata(call("multiSend(bytes)", b"")), "multiSend(bytes)").nested


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("multiSend(bytes)", [b"\2" + bytes(84)]), ("multiSend(bytes)", [bytes(84)]), ("multiSend(bytes)", [bytes(86)]),
        ("execute(bytes32,bytes)", [b"\1".ljust(32, b"\0"), arguments_of("f((address,uint256,bytes)[])", []) + bytes(32)]),
        ("modifyLiquidities(bytes,uint256)", [bytes(96), 0]),
        ("multiSend(bytes)", [call(TRANSFER, TO, 7)]),  # a text that is mined for the first bytes of a batch looks so
    ],
)  # fmt: skip
def test_what_is_packed_in_another_way_says_that_its_calls_are_not_shown(text: str, values: list[Any]) -> None:
    """Contracts read some of these: one byte more must not hide all that a call does."""
    [nested] = best(calldata(call(text, *values)), text, TRANSFER).nested
    assert (nested.reading.form, nested.reading.candidates) == (Form.PACKED, [])
    assert "calls in it are not shown" in nested.reading.note


MULTI_SEND_LIBRARY = "0x9641d764fc13c8b624c04430c7356c1c7c8102e2"


@pytest.mark.parametrize(
    ("operation", "to", "note"),
    [(0, TO, ""), (1, MULTI_SEND_LIBRARY, ""), (1, TO, f"a DELEGATECALL: the code at {TO} runs as the caller itself")],
)
def test_a_delegatecall_says_whose_code_runs(operation: int, to: str, note: str) -> None:
    """In a Safe's transaction and in those that it sends together; what it calls itself tells nothing of what it does."""
    text, data = "execTransactionFromModule(address,uint256,bytes,uint8)", call(TRANSFER, OTHER, 7)
    assert best(calldata(call(text, to, 0, data, operation)), text, TRANSFER).note == note
    packed = encode_packed(["uint8", "address", "uint256", "uint256"], [operation, to, 0, 0])
    [nested] = best(calldata(call("multiSend(bytes)", packed)), "multiSend(bytes)").nested
    assert nested.reading.candidates[0].note == note
    if note:
        execute, mode = "execute(bytes32,bytes)", b"\xff".ljust(32, b"\0")
        [nested] = best(calldata(call(execute, mode, bytes.fromhex(to[2:]) + data)), execute).nested
        assert nested.reading.candidates[0].note == note


def test_arguments_beside_their_signature() -> None:
    """Governors and timelocks of Compound: the text is a string, the arguments have no selector."""
    propose = "propose(address[],uint256[],string[],bytes[],string)"
    queue = "queueTransaction(address,uint256,string,bytes,uint256)"
    arguments = arguments_of(TRANSFER, TO, 7)
    data = call(propose, [TO, TO], [0, 0], [TRANSFER, ""], [arguments, call(APPROVE, TO, 1)], "a proposal")
    found = best(calldata(data), propose, APPROVE)
    assert texts_inside(found) == [((3, 0), TRANSFER), ((3, 1), APPROVE)]
    assert found.nested[0].reading.form is Form.ARGUMENTS
    found = best(calldata(call(queue, TO, 0, TRANSFER, arguments, 1)), queue)
    assert texts_inside(found) == [((3,), TRANSFER)]
    for text in ("transfer(address)", "transfer(address,uint)", "pay it", "f(nothing)"):
        assert not best(calldata(call(queue, TO, 0, text, arguments, 1)), queue).nested


@pytest.mark.parametrize(
    ("known", "confidence"),
    [
        ((), "high"),
        (("drain(address,uint256)",), "medium"),
        (("drain(address)",), "medium"),
        (("claim(address,uint256)",), "high"),
    ],
)
def test_a_text_beside_arguments_is_not_sure_where_the_directory_has_another(
    known: tuple[str, ...], confidence: str
) -> None:
    """Its selector is what is called. Who proposes a call may have mined a harmless name for it, and it comes first."""
    queue, text = "queueTransaction(address,uint256,string,bytes,uint256)", "claim(address,uint256)"
    input = calldata(call(queue, TO, 0, text, arguments_of(text, TO, 7), 1))
    texts = {call(text, TO, 0)[:4]: [Known(one) for one in known], input.data[:4]: [Known(queue)]}
    [[reading]] = answered([input], texts)
    [nested] = reading.candidates[0].nested
    found = nested.reading.candidates[0]
    assert (nested.reading.form, found.attempt.text, found.confidence) == (Form.ARGUMENTS, text, confidence)


EXECUTIONS = "executions((address,uint256,bytes)[])"


@pytest.mark.parametrize(
    ("mode", "data", "text", "path"),
    [
        (b"\0", bytes.fromhex(TO[2:]) + word(3) + call(TRANSFER, TO, 7), "execution(address,uint256,bytes)", (2,)),
        (b"\xff", bytes.fromhex(TO[2:]) + call(TRANSFER, TO, 7), "delegation(address,bytes)", (1,)),
        (b"\1", arguments_of(EXECUTIONS, [(TO, 3, call(TRANSFER, TO, 7))]), EXECUTIONS, (0, 0, 2)),
    ],
)
def test_modes_of_erc_7579(mode: bytes, data: bytes, text: str, path: tuple[int, ...]) -> None:
    """The first byte of the mode says how the executions are packed."""
    execute = "execute(bytes32,bytes)"
    found = best(calldata(call(execute, mode.ljust(32, b"\0"), data)), execute, TRANSFER)
    [nested] = found.nested
    assert texts_inside(found) == [((1,), text)]
    assert texts_inside(nested.reading.candidates[0]) == [(path, TRANSFER)]


def test_operations_of_erc_4337() -> None:
    """handleOps: the factory before its call, the account's call, the gas, the paymaster before its data; in this order."""
    handle = "handleOps((address,uint256,bytes,bytes,bytes32,uint256,bytes32,bytes,bytes)[],address)"
    factory = bytes.fromhex(OTHER[2:]) + call("createAccount(address,uint256)", TO, 1)
    paymaster = bytes.fromhex(OTHER[2:]) + (5).to_bytes(16) + (6).to_bytes(16)
    gas = [first.to_bytes(16) + second.to_bytes(16) for first, second in ((1, 2), (3, 4))]
    operation = (TO, 1, factory, call(TRANSFER, TO, 7), gas[0], 0, gas[1], paymaster, b"\1" * 65)
    found = best(calldata(call(handle, [operation], TO)), handle, TRANSFER, "createAccount(address,uint256)")
    assert texts_inside(found) == [
        ((0, 0, 2), "deployment(address,bytes)"), ((0, 0, 3), TRANSFER),
        ((0, 0, 4), "accountGasLimits(uint128,uint128)"), ((0, 0, 6), "gasFees(uint128,uint128)"),
        ((0, 0, 7), "paymaster(address,uint128,uint128,bytes)"),
    ]  # fmt: skip
    deployment, _, *with_gas = (nested.reading.candidates[0] for nested in found.nested)
    assert texts_inside(deployment) == [((1,), "createAccount(address,uint256)")]
    assert [one.attempt.values for one in with_gas] == [(1, 2), (3, 4), (OTHER, 5, 6, b"")]


def test_a_nested_reading_has_its_confidence() -> None:
    """A standard's text is sure; a text whose types fit almost any bytes is not; rivals lower both."""
    inside = [call(TRANSFER, TO, 7), call("spin(uint256)", 7)]
    found = best(calldata(call(MULTICALL, inside)), MULTICALL, TRANSFER, "spin(uint256)")
    assert [nested.reading.candidates[0].confidence for nested in found.nested] == [Confidence.HIGH, Confidence.MEDIUM]


def test_texts_are_ordered_by_fit_then_by_rank() -> None:
    """All texts of a selector are tried; where several fit, the directory's order decides and confidence is lower."""
    data = keccak256(b"f(uint256)")[:4] + word(5)
    [reading] = supplied(data, [Known("a(bytes)"), Known("b(uint256)"), Known("c(uint8)"), Known("d()")])
    assert [(one.attempt.text, one.confidence) for one in reading.candidates] == [
        ("b(uint256)", "medium"), ("c(uint8)", "low"), ("d()", "low"), ("a(bytes)", "none"),
    ]  # fmt: skip
    [reading] = supplied(data, [Known("b(uint256)", witness=Witness.COMPILED), Known("c(uint8)")])
    assert reading.candidates[0].confidence is Confidence.HIGH


@pytest.mark.parametrize(
    "arguments", [word(1) + word(2), b"\1" + word(1)[1:] + word(2)], ids=["a word more", "dirty padding"]
)
@pytest.mark.parametrize("mined", [Witness.LISTED, Witness.COMPILED])
def test_a_text_is_not_sure_where_a_better_known_one_almost_fits(arguments: bytes, mined: Witness) -> None:
    """Contracts take more bytes than they read, and old ones dirty padding. Who mines a text for such a call gets no `high`."""
    data = keccak256(b"drain(address)")[:4] + arguments
    known = [Known("drain(address)", witness=Witness.COMPILED), Known("claim(uint256,uint256)", witness=mined)]
    [reading] = supplied(data, known)
    found = reading.candidates[0]
    assert (found.attempt.text, found.confidence) == ("claim(uint256,uint256)", Confidence.MEDIUM)
    assert found.reasons[-1] == "a text that ranks before it does not fit"
    [outer] = answered(
        [calldata(call(MULTICALL, [data]))], {call(MULTICALL, [])[:4]: [Known(MULTICALL)], data[:4]: known}
    )[0]
    [inner] = outer.candidates[0].nested
    assert inner.reading.candidates[0].confidence is Confidence.MEDIUM


def test_a_text_with_the_selector_of_a_standard_is_never_sure() -> None:
    """It comes first where the standard's does not fit the bytes, and says whose selector it has."""
    mined = "watch_tg_invmru_119a5a98(address,uint256,uint256)"
    data = keccak256(mined.encode())[:4] + word(1) + word(2) + word(3)
    [reading] = supplied(data, [Known("balanceOf(address)"), Known(mined)])
    found = reading.candidates[0]
    assert (found.attempt.text, found.confidence) == (mined, Confidence.MEDIUM)
    assert found.reasons[-1] == "its selector is that of balanceOf(address) of ERC-20"


@pytest.mark.parametrize(
    ("input", "text", "why"),
    [
        (calldata(call("f(uint256)", 7)), "claim(uint256)", f"its selector is 0x{call('claim(uint256)', 0)[:4].hex()}"),
        (
            Input(Form.LOG, b"", (keccak256(TRANSFER.encode()), word(7))), "E(uint256)",
            f"its topic is 0x{keccak256(b'E(uint256)').hex()}",
        ),
        (calldata(call("f(uint256)", 7)), "claim it(uint256)", "no contract has it, because it is no signature"),
    ],
)  # fmt: skip
def test_a_given_text_of_another_hash_comes_last(input: Input, text: str, why: str) -> None:
    """Anybody may write one before the bytes of a link. Its values are shown, with low confidence."""
    [reading] = read(input._replace(texts=(text,)), ["f(uint256)", TRANSFER])
    found = reading.candidates[-1]
    assert (found.attempt.text, found.confidence, found.reasons) == (text, Confidence.LOW, (why,))
    assert (len(reading.candidates), found.attempt.values) == (2, (7,))


def test_a_text_that_a_search_found_is_sure_by_its_contract_alone() -> None:
    guess = Known("guess(uint256)", witness=Witness.SOLVED)
    found = best(calldata(call(guess.text, 7)), guess)
    assert (found.confidence, found.reasons[-1]) == (Confidence.MEDIUM, "a search found it, and no source names it")
    assert best(calldata(call(guess.text, 7)), guess.of_contract(Membership.HAS, "")).confidence is Confidence.HIGH


def test_a_given_text_is_no_surer_than_what_ranks_before_it() -> None:
    """Anybody may write a mined one before the bytes of a link. The directory's order and doubts count for it too."""
    given, meant = "coral_cable_news(uint256)", Known("upgrade()")
    input = calldata(call(given, 7))._replace(texts=(given,))
    for known in ([meant], [meant, Known(given)], [Known(given, witness=Witness.SOLVED)]):
        [[reading]] = answered([input], {input.data[:4]: known})
        found = reading.candidates[0]
        assert (found.attempt.text, found.confidence) == (given, Confidence.MEDIUM)
    assert best(input).confidence is Confidence.HIGH


def test_a_text_is_not_sure_where_a_better_known_one_was_not_tried() -> None:
    """Inputs of a list share their room, and who writes the list may leave none for a long declaration."""
    mined, meant = (
        Known("coral_cable_news(uint256)"),
        Known("upgrade()", declaration=f"function upgrade() {'x' * 9999}"),
    )
    input = calldata(call(mined.text, 7))
    [[reading]] = answered([input], {input.data[:4]: [meant, mined]}, spare=0)
    [found] = reading.candidates
    assert (found.known.text, found.confidence) == (mined.text, Confidence.MEDIUM)
    assert found.reasons[-1] == "a text that ranks before it was not tried"


# Logs.


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, tuple[Any, ...], tuple[int, ...], list[bytes], bytes]:
    """An event's text, its values, a split, and the log that has them."""
    kinds, values = draw(calls())
    splits = [split for count in range(4) for split in combinations(range(len(kinds)), count)]
    split = draw(st.sampled_from(splits))
    topics = []
    for number in split:
        [type] = parameter_types(f"f({kinds[number]})")
        is_word = type.members is None and type.element is None and type.text not in ("bytes", "string")
        encoded = encode([for_eth_abi(kinds[number])], [values[number]])
        topics.append(encoded if is_word else keccak256(encoded))
    rest = [number for number in range(len(kinds)) if number not in split]
    data = encode([for_eth_abi(kinds[number]) for number in rest], [values[number] for number in rest])
    return f"E({','.join(kinds)})", values, split, topics, data


@settings(max_examples=examples(60))
@given(logs())
def test_a_log_of_any_split_is_decoded(log: tuple[str, tuple[Any, ...], tuple[int, ...], list[bytes], bytes]) -> None:
    """With its declaration every split comes back; without one a split that fits."""
    text, values, split, topics, data = log
    input = Input(Form.LOG, data, (keccak256(text.encode()), *topics))
    parameters = enumerate(parameter_types(text))
    types = tuple(replace(one, indexed=number in split) for number, one in parameters)
    declared = best(input, Known(text, Kind.EVENT, types=types))
    assert (declared.split, declared.others, declared.attempt.exact) == (split, (), True)
    for number, value in enumerate(declared.attempt.values or ()):
        assert value == (topics[split.index(number)] if isinstance(value, IndexedHash) else values[number])
    assert best(input, text).attempt.exact


def test_the_probable_split_comes_first_and_the_others_are_shown() -> None:
    """Transfer of ERC-20 by its text alone: three splits fit the words, the one with two real addresses is the first."""
    text = "Moved(address,address,uint256)"
    topics = (keccak256(text.encode()), bytes(12) + b"\xab" * 20, bytes(12) + b"\xcd" * 20)
    found = best(Input(Form.LOG, word(1000), topics), text)
    assert (found.split, found.attempt.values) == ((0, 1), (TO, OTHER, 1000))
    assert found.confidence is Confidence.HIGH
    ambiguous = "Pair(uint256,uint256)"
    found = best(Input(Form.LOG, word(1), (keccak256(ambiguous.encode()), word(2))), ambiguous)
    assert (found.split, found.others, found.confidence) == ((0,), ((1,),), Confidence.MEDIUM)


def test_the_names_are_those_of_a_declaration_with_these_parameters_indexed() -> None:
    """A log of ERC-20 is not given the names of ERC-721, whose event has the same text; without any its names are unknown."""
    text = "Transfer(address,address,uint256)"
    erc721 = "event Transfer(address indexed from, address indexed to, uint256 indexed tokenId)"
    topics = (keccak256(text.encode()), word(int(TO, 16)), word(int(OTHER, 16)))
    found = best(Input(Form.LOG, word(5), topics), Known(text).declared_as(erc721))
    assert (found.split, names_of(found)) == ((0, 1), ("from", "to", "value"))
    other = "Moved(address,address,uint256)"
    declared = Known(other).declared_as("event Moved(address indexed a, address indexed b, uint256 indexed c)")
    found = best(Input(Form.LOG, word(5), (keccak256(other.encode()), *topics[1:])), declared)
    assert (found.split, found.known.types, found.known.declaration) == ((0, 1), (), "")


def test_an_anonymous_log_is_decoded_by_its_text() -> None:
    """All topics are values; without a text nothing is guessed."""
    topics = (b"\x12" * 4 + bytes(28), bytes(12) + b"\xab" * 20)
    input = Input(Form.LOG, word(9), topics, anonymous=True, texts=("LogNote(bytes4,address,uint256)",))
    found = best(input)
    assert (found.attempt.values, found.confidence) == ((b"\x12" * 4, TO, 9), Confidence.MEDIUM)
    [reading] = read(Input(Form.LOG, word(9), topics, anonymous=True), [])
    assert "its text has to be given" in reading.note
    [reading] = read(Input(Form.LOG, word(9)), [])
    assert "its text has to be given" in reading.note


def test_a_log_that_does_not_fit_has_a_reason() -> None:
    text = "E(uint8)"
    hash = keccak256(text.encode())
    for topics, data in (((hash, word(1), word(2)), b""), ((hash, word(256)), b""), ((hash,), b"")):
        [reading] = read(Input(Form.LOG, data, topics), [text])
        assert reading.best is None
        assert reading.candidates[0].attempt.detail


@pytest.mark.parametrize(
    ("text", "number"), [("event E(uint8,address indexed)", 1), ("event E(uint8,address indexed) anonymous", 0)]
)
def test_a_topic_that_does_not_fit_its_declaration_is_named(text: str, number: int) -> None:
    """By its number in the log, whatever stands before its parameter."""
    topics = (keccak256(b"E(uint8,address)"), b"\1" + word(1)[1:])
    [reading] = read(Input(Form.LOG, word(5), topics[1 - number :], anonymous=number == 0, texts=(text,)), [])
    found = reading.candidates[0].attempt
    assert found.reason == "bad_padding"
    assert found.detail == f"topic {number} is out of range for address, or its padding is not zero"


# Reverts.


def test_errors_of_the_language_need_no_directory() -> None:
    assert best(Input(Form.REVERT, call("Error(string)", "too low"))).attempt.values == ("too low",)
    found = best(Input(Form.REVERT, call("Panic(uint256)", 0x11)))
    assert found.note == "panic 0x11: arithmetic overflow or underflow outside of an unchecked block"
    assert read(Input(Form.REVERT, b"\0"), [])[0].note == "1 byte; a selector has 4."
    assert "a code that the compiler does not use" in best(Input(Form.REVERT, call("Panic(uint256)", 7))).note


def test_errors_come_before_functions_in_a_revert() -> None:
    """A custom error and a function of the same selector and types: each is first where it belongs."""
    data = keccak256(b"f(uint256)")[:4] + word(1)
    known = [Known("spend(uint256)"), Known("Spent(uint256)"), Known("other(uint256)", Kind.ERROR)]
    for form, first in ((Form.REVERT, "Spent(uint256)"), (Form.CALLDATA, "spend(uint256)")):
        assert supplied(data, known, form)[0].candidates[0].attempt.text == first
    assert [one.form for one in supplied(data, known, Form.AUTO)] == [Form.CALLDATA, Form.REVERT]


def test_bubbled_reverts_are_decoded() -> None:
    """An error in the bytes of another, and one that a contract copied into a message."""
    failed = "FailedOpWithRevert(uint256,string,bytes)"
    found = best(Input(Form.REVERT, call(failed, 0, "AA23 reverted", call("Panic(uint256)", 0x12))), failed)
    [nested] = found.nested
    assert nested.reading.candidates[0].note == "panic 0x12: division or modulo by zero"
    message = keccak256(b"Error(string)")[:4] + encode(["bytes"], [call("Error(string)", "inner")])
    found = best(Input(Form.REVERT, message))
    assert "not UTF-8" in found.note
    assert found.nested[0].reading.candidates[0].attempt.values == ("inner",)


def test_a_revert_without_data_says_what_that_means() -> None:
    [reading] = read(Input(Form.REVERT, b""), [])
    assert "without a message" in reading.note
    assert [one.form for one in read(Input(Form.AUTO, b""), [])] == [Form.CALLDATA, Form.REVERT]
    [reading] = read(Input(Form.REVERT, b"not enough"), [])
    assert "As text it is 'not enough'" in reading.note


# Hostile input.


BOMB_OF_LEVELS = reduce(lambda data, _: call(MULTICALL, [data]), range(300), call(TRANSFER, TO, 1))
BOMB_OF_CALLS = call(MULTICALL, [call("f()")] * 1300)


def walk(readings: Iterable[Reading]) -> Iterator[Reading]:
    """All readings of trees, outer before inner."""
    for reading in readings:
        yield reading
        for candidate in reading.candidates:
            yield from walk(nested.reading for nested in candidate.nested)


@pytest.mark.parametrize(
    ("data", "most"), [(BOMB_OF_LEVELS, MAX_LEVELS), (BOMB_OF_CALLS, MAX_READINGS)], ids=["levels", "calls"]
)
def test_a_bomb_gets_its_outer_level_and_a_sentence(data: bytes, most: int) -> None:
    [reading] = read(calldata(data), [MULTICALL, TRANSFER, "f()"])
    assert reading.best is not None
    inside = list(walk([reading]))
    assert any("more calls" in one.note for one in inside)
    assert len(inside) == most + 1


@pytest.mark.parametrize("name", list(hostile()))
def test_hostile_calldata_is_answered_within_a_second_and_64_mib(name: str) -> None:
    """Eight texts on 128 KiB, decoded by all of them or refused."""
    arguments, types = hostile()[name]
    selector = b"\1\2\3\4"
    known = [Known(f"f{number}({one})") for number, one in enumerate(types)]
    inner_selector = call(TRANSFER, TO, 1)[:4]
    texts = {selector: known, call("f()"): [Known("f()")], inner_selector: [Known(TRANSFER)]}
    tracemalloc.start()
    began = process_time()  # whatever else the machine computes
    [[reading]] = answered([calldata((selector + arguments)[: 128 << 10])], texts)
    assert process_time() - began < 4  # tracemalloc makes it four times slower
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()
    assert reading.candidates


def test_the_note_of_returned_values_says_what_the_candidates_show() -> None:
    """Where only a text with a standard's selector fits, it is shown, and the note does not say that none fits."""
    mined = "function many_msg_babbage(bytes1) returns (uint256)"
    declared = returns_of([(f"function {TRANSFER} returns (bool)", 2), (mined, 1)])
    returned = Input(Form.RETURN, word(256), selector=call(TRANSFER, TO, 1)[:4], returned=tuple(declared))
    notes = {
        word(256): "No known declaration fits, but one that is probably not meant.", word(1): "",
        word(256)[1:]: "No known declaration fits.",
    }  # fmt: skip
    for data, note in notes.items():
        [reading] = read(returned._replace(data=data), ())
        assert reading.note == note
        assert any(one.decodes for one in reading.candidates) == (note != "No known declaration fits.")
