"""Calls of Uniswap's Universal Router: each command is unpacked at its input, or a sentence says why it is not."""

from __future__ import annotations

from typing import Any

from eth_abi.abi import encode
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.abi_decoder import layout_of
from sigdir.signatures.inner_calls import commands_by_text
from sigdir.signatures.readings import MAX_READINGS, Form, Reading
from sigdir.signatures.types import Type
from tests.signatures.test_calldata import for_eth_abi, values_of
from tests.signatures.test_readings import TRANSFER, call, calldata, names_of
from tests.signatures.test_readings import read as read_input

EXECUTE, WITHOUT_DEADLINE = "execute(bytes,bytes[],uint256)", "execute(bytes,bytes[])"
ME, TOKEN, OTHER = ("0x" + digits * 20 for digits in ("11", "22", "33"))
MODIFY = "modifyLiquidities(bytes,uint256)"
TRANSFER_CALL = call(TRANSFER, ME, 7)


def read(data: bytes) -> Reading:
    [reading] = read_input(calldata(data), [EXECUTE, WITHOUT_DEADLINE, MODIFY, TRANSFER, "mint(address)"])
    return reading


def inside(reading: Reading) -> dict[tuple[int, ...], Reading]:
    """The readings directly inside, by their places."""
    [candidate, *_] = reading.candidates
    return {one.path: one.reading for one in candidate.nested}


def texts(reading: Reading) -> list[str]:
    return [one.candidates[0].attempt.text if one.candidates else one.note for one in inside(reading).values()]


PERMIT = encode(
    ["((address,uint160,uint48,uint48),address,uint256)", "bytes"], [((TOKEN, 5, 6, 0), OTHER, 9), b"\1" * 65]
)
SWAP = encode(["address", "uint256", "uint256", "bytes", "bool"], [ME, 10, 9, bytes(43), True])
UNWRAP = encode(["address", "uint256"], [ME, 9])


def test_a_swap_with_a_permit_is_unpacked() -> None:
    """Names and values of each command; the bit that allows it to fail is said and is no part of the command."""
    reading = read(call(EXECUTE, bytes([0x0A, 0x00, 0x8C]), [PERMIT, SWAP, UNWRAP], 1))
    permit, swap, unwrap = (inside(reading)[1, number] for number in range(3))
    assert permit.candidates[0].attempt.types[0].name == "permitSingle"
    assert permit.candidates[0].attempt.values == (((TOKEN, 5, 6, 0), OTHER, 9), b"\1" * 65)
    assert swap.candidates[0].attempt.text == "V3_SWAP_EXACT_IN(address,uint256,uint256,bytes,bool)"
    assert names_of(swap.candidates[0]) == ("recipient", "amountIn", "amountOutMin", "path", "payerIsUser")
    assert (swap.data, swap.form, swap.note) == (SWAP, Form.PACKED, "")
    assert (unwrap.candidates[0].attempt.values, unwrap.note) == ((ME, 9), "If it fails, the others go on.")


POOL = (TOKEN, OTHER, 3000, 60, "0x" + "00" * 20)


def test_actions_in_commands_in_a_plan() -> None:
    """A sub plan holds a v4 swap, which holds actions; a call of the position manager is looked up."""
    swap = encode(["((address,address,uint24,int24,address),bool,uint128,uint128,bytes)"], [(POOL, True, 5, 4, b"")])
    settle = encode(["address", "uint256"], [TOKEN, 5])
    v4 = encode(["bytes", "bytes[]"], [bytes([0x06, 0x0C, 0x0F]), [swap, settle, settle]])
    plan = encode(["bytes", "bytes[]"], [bytes([0x10, 0x12]), [v4, TRANSFER_CALL]])
    outer = read(call(WITHOUT_DEADLINE, b"\x21", [plan]))
    sub_plan = inside(outer)[1, 0]
    assert texts(outer) == ["EXECUTE_SUB_PLAN(bytes,bytes[])"]
    assert texts(sub_plan) == ["V4_SWAP(bytes,bytes[])", "V3_POSITION_MANAGER_CALL(bytes)"]
    assert [text.split("(")[0] for text in texts(inside(sub_plan)[1, 0])] == [
        "SWAP_EXACT_IN_SINGLE", "SETTLE_ALL", "TAKE_ALL",
    ]  # fmt: skip
    assert texts(inside(sub_plan)[1, 1]) == [TRANSFER]


def test_actions_of_the_position_manager() -> None:
    actions = encode(["bytes", "bytes[]"], [b"\x0d\x11", [encode(["address", "address"], [TOKEN, OTHER]),
                      encode(["address", "address", "address"], [TOKEN, OTHER, ME])]])  # fmt: skip
    reading = read(call(MODIFY, actions, 1))
    assert texts(inside(reading)[0,]) == ["SETTLE_PAIR(address,address)", "TAKE_PAIR(address,address,address)"]


def test_what_cannot_be_unpacked_has_a_sentence() -> None:
    """An unknown command, an input that does not fit, and commands without inputs, each beside one that is unpacked."""
    reading = read(call(EXECUTE, bytes([0x3B, 0x04, 0x0C, 0x0B]), [b"\1\2", SWAP[:64], UNWRAP], 1))
    found = {path: one.note for path, one in inside(reading).items()}
    assert found == {
        (0,): "It has 4 commands and 3 inputs.",
        (1, 0): "0x3b is no known command of Uniswap's Universal Router.",
        (1, 1): (
            "Its input does not fit SWEEP(address,address,uint256): "
            "a value needs 96 bytes at byte 0, but the data has 64 bytes."
        ),
        (1, 2): "",
    }
    assert inside(reading)[1, 0].data == b"\1\2"


def test_a_call_of_another_contract_with_this_text_is_no_router() -> None:
    """Its calls are found as in any other; why there are no commands is said."""
    reading = read(call(EXECUTE, b"\x3b", [TRANSFER_CALL], 1))
    assert {path: one.candidates[0].attempt.text for path, one in inside(reading).items() if one.candidates} == {
        (1, 0): TRANSFER
    }
    assert inside(reading)[0,].note == "No command is unpacked. 0x3b is no known command of Uniswap's Universal Router."


@settings(deadline=None)
@given(st.data())
def test_each_shape_of_the_table_comes_back(data: st.DataObject) -> None:
    """Any values of a command, encoded by eth-abi, are those that its node has, under the text of its shape."""
    commands = commands_by_text()[EXECUTE].shapes.items()
    shapes = [(number, one.text) for number, shapes in commands for one in shapes if not one.is_call]
    number, text = data.draw(st.sampled_from(shapes))
    types: tuple[Type, ...] = layout_of(text).types
    values: tuple[Any, ...] = tuple(data.draw(values_of(type)) for type in types)
    encoded = encode([for_eth_abi(type.text) for type in types], values)
    node = inside(read(call(EXECUTE, bytes([number]), [encoded], 1)))[1, 0]
    assert (node.candidates[0].attempt.text, node.candidates[0].attempt.values) == (text, values)


def test_many_commands_are_bounded() -> None:
    """Inputs that share their bytes, more than a tree has readings."""
    count = 3000
    offsets = (32 * count).to_bytes(32) * count
    inputs = count.to_bytes(32) + offsets + len(UNWRAP).to_bytes(32) + UNWRAP
    commands = count.to_bytes(32) + (b"\x0c" * count).ljust(-(-count // 32) * 32, b"\0")
    head = b"".join(number.to_bytes(32) for number in (96, 96 + len(commands), 1))
    reading = read(call(EXECUTE, b"", [], 1)[:4] + head + commands + inputs)
    assert len(inside(reading)) == MAX_READINGS
    assert "more calls" in reading.note
