"""Many calls as columns: each call gets the values that it gets alone, or none."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from eth_abi.abi import encode
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.abi_columns import exact_rows
from sigdir.signatures.abi_decoder import Budget, attempt, layout_of
from sigdir.signatures.types import parameter_types
from tests.signatures.test_calldata import canonical, for_eth_abi, values_of, word

ENOUGH = 12  # calls of one layout, so that they are read by columns


def alone(data: bytes, text: str) -> tuple[Any, ...] | None:
    found = attempt(data, text, Budget.of(len(data)))
    return found.values if found.exact else None


@st.composite
def groups(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A text, and encoded values for it, some with a byte changed."""
    kinds = draw(st.lists(canonical, max_size=3))
    types = [parameter_types(f"f({kind})")[0] for kind in kinds]
    calls = []
    for _ in range(draw(st.integers(1, 3))):
        values = tuple(draw(values_of(type)) for type in types)
        encoded = encode([for_eth_abi(kind) for kind in kinds], values)
        calls += [encoded] * ENOUGH
        if encoded:
            for _ in range(draw(st.integers(0, 2))):
                changed = bytearray(encoded)
                changed[draw(st.integers(0, len(encoded) - 1))] = draw(st.integers(0, 255))
                calls.append(bytes(changed))
    return f"f({','.join(kinds)})", draw(st.permutations(calls))


@given(groups())
def test_a_row_has_the_values_that_it_has_alone(group: tuple[str, list[bytes]]) -> None:
    """Whatever stands before it; a changed byte changes its row alone."""
    text, calls = group
    sizes: dict[int, list[bytes]] = defaultdict(list)
    for call in calls:
        sizes[len(call)].append(call)
    for same in sizes.values():
        found = exact_rows(same, layout_of(text))
        assert len(found) == len(same)
        for call, values in zip(same, found, strict=True):
            assert values is None or repr(values) == repr(alone(call, text))  # True is no 1


def test_what_no_encoder_makes_has_no_values() -> None:
    """Numbers out of range, padding, offsets, lengths, and text that is not UTF-8; the rows beside them are read."""
    good = word(32) + word(3) + b"abc".ljust(32, b"\0")
    bad = [
        word(64) + good[32:], good[:32] + word(2) + good[64:], good[:-1] + b"\1", good[:64] + b"\xff" + good[65:],
        word(2**255) + good[32:], good[:32] + word(2**255) + good[64:],
    ]  # fmt: skip
    for first in (good, *bad):
        calls = [first, *[good] * ENOUGH, *bad]
        found = exact_rows(calls, layout_of("f(string)"))
        assert found == [alone(call, "f(string)") for call in calls]
        assert found[1 : 1 + ENOUGH] == [("abc",)] * ENOUGH
    for type, wrong in {"uint8": 256, "int8": 128, "bool": 2, "address": 1 << 160, "bytes31": 1}.items():
        calls = [*[word(0)] * ENOUGH, word(wrong)]
        assert exact_rows(calls, layout_of(f"f({type})"))[-1] is None
