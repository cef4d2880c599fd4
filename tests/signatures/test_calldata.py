"""Decoding calldata: values that eth-abi encodes come back, and any other data gives a reason, never an exception."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.abi_decoder import REASONS, SELECTOR_BYTES, Budget, DecodeAttempt, as_json, attempt, checksummed
from sigdir.signatures.types import Type, parameter_types
from tests.signatures.strategies import types


def word(value: int) -> bytes:
    return value.to_bytes(32, "big", signed=value < 0)


def attempt_of(arguments: bytes, text: str) -> DecodeAttempt:
    return attempt(arguments, text, Budget.of(SELECTOR_BYTES + len(arguments)))


def values_of(type: Type) -> st.SearchStrategy[Any]:
    """Any value of a type."""
    if type.members is not None:
        return st.tuples(*map(values_of, type.members))
    if type.element is not None:
        longest = 3 if type.length is None else type.length
        return st.lists(values_of(type.element), min_size=type.length or 0, max_size=longest).map(tuple)
    word = type.text
    if word in ("bool", "string"):
        return st.booleans() if word == "bool" else st.text(max_size=40)
    if word in ("bytes", "function", "address"):
        sizes = {"bytes": (0, 70), "function": (24, 24), "address": (20, 20)}[word]
        raw = st.binary(min_size=sizes[0], max_size=sizes[1])
        return raw.map(lambda value: "0x" + value.hex()) if word == "address" else raw
    if word.startswith("bytes"):
        count = int(word[5:])
        return st.binary(min_size=count, max_size=count)
    width, _, decimals = word.lstrip("uintfxed").partition("x")
    bits = int(width)
    numbers = st.integers(0, 2**bits - 1) if word[0] == "u" else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return numbers.map(lambda value: Decimal(f"{value}E-{decimals}")) if decimals else numbers


@pytest.mark.parametrize(
    "address",
    [
        "0x52908400098527886E0F7030069857D2E4169EE7", "0xde709f2102306220921060314715629080e2fb77",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    ],
)  # fmt: skip
def test_an_address_has_the_capitals_of_eip_55(address: str) -> None:
    """By its vectors, whatever the case was, also inside of tuples and arrays."""
    assert checksummed(address.lower()) == checksummed("0x" + address[2:].upper()) == address
    [type] = parameter_types("f((address[],string))")
    value = ((address.lower(),), address.lower())
    assert as_json(type, value, checksums=True) == [[address], address.lower()]
    assert as_json(type, value) == [[address.lower()], address.lower()]


def is_small(text: str) -> bool:
    """Whether the type has at most 50 elements and no empty tuple, which eth-abi does not know."""
    try:
        parameters = parameter_types(f"f({text})")
    except ValueError:
        return False
    return elements(parameters[0]) <= 50


def elements(type: Type) -> int:
    if type.members is not None:
        return sum(map(elements, type.members))
    return (3 if type.length is None else type.length) * elements(type.element) if type.element else 1


canonical = types.map(lambda part: part.canonical).filter(is_small)


def for_eth_abi(text: str) -> str:
    return text.replace("function", "bytes24")


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[str], tuple[Any, ...]]:
    kinds = draw(st.lists(canonical, max_size=4))
    return kinds, tuple(draw(values_of(parameter_types(f"f({kind})")[0])) for kind in kinds)


@given(calls())
def test_encoded_values_are_decoded(call: tuple[list[str], tuple[Any, ...]]) -> None:
    """Any values of any types come back, the attempt is exact, and JSON can represent them."""
    kinds, values = call
    found = attempt_of(encode([for_eth_abi(kind) for kind in kinds], values), f"f({','.join(kinds)})")
    assert (found.values, found.exact, found.left_over) == (values, True, 0)
    assert [type.text for type in found.types] == kinds
    for type, value in zip(found.types, values, strict=True):
        as_json(type, value)


@given(calls(), st.data())
def test_any_data_is_decoded_or_has_a_reason(call: tuple[list[str], tuple[Any, ...]], data: st.DataObject) -> None:
    """Changed and random data raises nothing; an attempt is exact if its values encode to the same bytes."""
    kinds, values = call
    encoded = bytearray(encode([for_eth_abi(kind) for kind in kinds], values))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        encoded[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40))
    for arguments in (bytes(encoded), data.draw(st.binary(max_size=300))):
        found = attempt_of(arguments, f"f({','.join(kinds)})")
        if found.values is None:
            assert found.reason in REASONS
            assert found.detail
        else:
            again = encode([for_eth_abi(kind) for kind in kinds], found.values)
            assert found.exact == (again == arguments)
            assert 0 <= found.left_over <= len(arguments)


@pytest.mark.parametrize(
    ("text", "arguments", "reason", "detail"),
    [
        ("f(uint256)", b"", "too_short", "a value needs 32 bytes at byte 4, but the data has 4 bytes"),
        ("f(uint8)", word(256), "bad_padding", "the word at byte 4"),
        ("f(bool)", word(2), "bad_padding", "the word at byte 4"),
        ("f(uint8,address)", word(1) + word(1 << 160), "bad_padding", "the word at byte 36"),
        ("f(int8)", word(128), "bad_padding", "the word at byte 4"),
        ("f(bytes3)", b"abcd" + bytes(28), "bad_padding", "the word at byte 4"),
        ("f(bytes)", word(32) + word(1) + b"ab" + bytes(30), "bad_padding", "the word at byte 68"),
        ("f(string)", word(32) + word(1) + b"\xff" + bytes(31), "bad_utf8", "before byte 100 is not UTF-8"),
        ("f(string)", word(0) + word(1), "bad_offset", "the offset at byte 4"),
        ("f(string)", word(2**256 - 1), "bad_offset", "the offset at byte 4"),
        ("f(string)", word(32) + word(2**256 - 1), "too_short", "bytes at byte 68, but the data has 68 bytes"),
        ("f(uint256[])", word(32) + word(2**256 - 1), "too_short", "a value needs 32 bytes at byte 68"),
        ("f(uint256[][])", word(32) + word(1) + word(0), "bad_offset", "the offset at byte 68"),
        ("f(())", b"", "bad_type", "a tuple without members"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_reason_why_a_text_does_not_decode(text: str, arguments: bytes, reason: str, detail: str) -> None:
    """Positions count from the selector's first byte."""
    found = attempt_of(arguments, text)
    assert (found.values, found.reason) == (None, reason)
    assert detail in found.detail


def test_offsets_that_share_their_target_stop_at_the_work_limit() -> None:
    """3,000 words that stand for 10^9 values stop at the work limit; the text that comes first is decoded."""
    array = word(1000) + word(32_000) * 1000  # all offsets point right behind them
    arguments = word(32) + 3 * array
    budget = Budget.of(SELECTOR_BYTES + len(arguments))
    found = [attempt(arguments, text, budget) for text in ["f(uint256)", *["f(uint256[][][])"] * 50]]
    assert [one.reason for one in found] == ["", *["too_much"] * 50]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("uint48", 2**48 - 1, 2**48 - 1), ("int48", -1, -1), ("uint56", 1, "1"), ("int256", -(2**255), str(-(2**255))),
        ("bool", True, True), ("bytes2", b"\0\xff", "0x00ff"), ("bytes", b"", "0x"), ("string", "é\0", "é\0"),
        ("address", "0x" + "ab" * 20, "0x" + "ab" * 20), ("fixed8x80", Decimal(-1).scaleb(-80), "-0." + "0" * 79 + "1"),
        ("(uint8,uint64[])[1]", ((1, (2, 3)),), [[1, ["2", "3"]]]),
    ],
)  # fmt: skip
def test_the_kind_of_a_json_value_depends_on_its_type(kind: str, value: Any, expected: Any) -> None:
    """Integers of at most 48 bits are numbers and wider ones are text, whatever the value is."""
    [type] = parameter_types(f"f({kind})")
    assert as_json(type, value) == expected
