"""How rows are found in memory: by a hash, by their parameters, by a name with a typing error; each beside a plain search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.collections import SIGNATURES
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.search_terms import Shape
from sigdir.signatures.types import split_types
from sigdir.warehouse.index.parameter_lists import ParameterLists, bounds_of, build_lists, fits
from sigdir.warehouse.index.segment import Segment, sorted_hashes
from sigdir.warehouse.index.terms import similar_texts
from tests.serve.support import Row, segment_of, view_of

Array = npt.NDArray[Any]

# A hash.

_LAST = 2**32 - 1


def segment_with(prefixes: list[int]) -> Segment:
    """A segment with these prefixes, row by row."""
    rows = len(prefixes)
    hash = np.array(prefixes, ">u4").view(np.uint8).reshape(-1, 4)
    nothing = np.zeros(rows, np.int64)
    return Segment.of(
        rows, nothing, nothing, np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8), hash, sorted_hashes(hash)
    )


SHAPES: dict[str, Callable[[int], int]] = {
    "even": lambda n: n * 42_949,
    "all at the beginning": lambda n: n,
    "all at the end": lambda n: _LAST - n,
    "all alike": lambda _: 7,
    "three in the middle": lambda n: 2**31 + n % 3,
    "doubling": lambda n: 1 << n % 32,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_uneven_prefixes(shape: str) -> None:
    """Lookups among 100,000 unevenly spread prefixes find the rows of the sorted column."""
    order = np.sort(np.array([SHAPES[shape](n) for n in range(100_000)], np.uint32))
    view = view_of([segment_with(order.tolist()), segment_with([5])])
    for prefix in {0, 1, 5, 7, 2**31, 2**31 + 1, _LAST, *order[::9973].tolist()}:
        first, last = (int(np.searchsorted(order, prefix, side)) for side in ("left", "right"))
        expected = [list(range(first, last))] if first < last else []
        found = view.with_hash(SIGNATURES, int(prefix).to_bytes(4, "big"))
        assert [rows.tolist() for _, rows in found] == ([*expected, [0]] if prefix == 5 else expected)


# Parameters.


types = st.recursive(
    st.sampled_from(["address", "uint256", "uint8", "bytes", "bytes32"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda members: f"({','.join(members)})"), inner.map(lambda one: f"{one}[]")
    ),
    max_leaves=4,
)
texts = st.lists(types, max_size=4).map(lambda members: f"f({','.join(members)})")
items = st.lists(st.one_of(types, st.sampled_from(["*", "?"])), max_size=4).map(tuple)
shapes = st.builds(
    Shape, st.none() | items, st.integers(0, 2), st.integers(0, 5), st.lists(types, max_size=2).map(tuple)
)


def columns(given: list[str]) -> tuple[Array, Array]:
    data = as_readonly(np.frombuffer("".join(given).encode() or b"\0", np.uint8))
    return data, as_readonly(np.cumsum([0, *map(len, given)]))


def lists_of(given: list[str]) -> ParameterLists:
    return build_lists(*columns(given), len(given))


def holds(text: str, shape: Shape) -> bool:
    """The oracle: parameters are compared one by one."""
    inside = text.partition("(")[2][:-1]
    parameters = split_types(inside) if inside else []

    def is_whole(type: str) -> bool:
        text = f",{inside},"
        at = text.find(type)
        while at >= 0:
            if text[at - 1] in ",(" and text[at + len(type)] in ",)":
                return True
            at = text.find(type, at + 1)
        return False

    @cache
    def fitting(at: int, item: int) -> bool:
        if item == len(wanted):
            return at == len(parameters)
        if wanted[item] == "*":
            return any(fitting(further, item + 1) for further in range(at, len(parameters) + 1))
        return at < len(parameters) and wanted[item] in ("?", parameters[at]) and fitting(at + 1, item + 1)

    wanted = ("*",) if shape.items is None else shape.items
    return shape.least <= len(parameters) <= shape.most and all(map(is_whole, shape.types)) and fitting(0, 0)


@given(st.lists(texts, max_size=12), shapes)
def test_the_dictionary_finds_what_the_oracle_finds(given: list[str], shape: Shape) -> None:
    """Also where rows are compared one by one, as staged ones are."""
    wanted = [row for row, text in enumerate(given) if holds(text, shape)]
    assert lists_of(given).with_shape(shape).tolist() == wanted
    text, offsets = columns(given)
    assert np.flatnonzero(fits(text, *bounds_of(text, offsets, np.arange(len(given))), shape)).tolist() == wanted


# A name with a typing error.


letters = st.text("abAB1", min_size=1, max_size=9)


def distance(one: str, other: str) -> int:
    """Optimal string alignment without regard to case, as the textbook has it."""
    one, other = one.lower(), other.lower()
    table = [[max(i, j) if not (i and j) else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            best = min(table[i - 1][j - 1] + (one[i - 1] != other[j - 1]), table[i - 1][j] + 1, table[i][j - 1] + 1)
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                best = min(best, table[i - 2][j - 2] + 1)
            table[i][j] = best
    return table[-1][-1]


def similar(texts: list[str], typed: str, parts: int = 1, limit: int = 100) -> list[str]:
    rows = [Row(n, n, text, keccak256(text.encode())[:4]) for n, text in enumerate(texts, 1)]
    step = -(-len(rows) // parts)
    return similar_texts([segment_of(rows[at : at + step]) for at in range(0, len(rows), step)], typed, limit)


@given(names=st.lists(letters, min_size=1, max_size=30, unique=True), typed=st.text("abAB1", min_size=4, max_size=9))
def test_the_names_are_those_of_the_fewest_errors(names: list[str], typed: str) -> None:
    """All names of one error; without one those of two, for names of six letters or more."""
    near = {name: distance(typed, name) for name in names}
    expected = {name for name, errors in near.items() if errors <= 1}
    if not expected and len(typed) >= 6:
        expected = {name for name, errors in near.items() if errors == 2}
    found = similar([f"{name}((bool),uint8)" for name in names], typed, parts=2)
    assert sorted(name.lower() for name in found) == sorted({name.lower() for name in expected})
    assert [near[name] for name in found] == sorted(near[name] for name in found)


KEPT = {"mnit": "mint", "mnit(uint8": "mint(uint8", "mnit(bool)": "mint"}


def test_parameters_are_kept_where_a_row_has_them() -> None:
    """Nothing is like a short or a long name, or one with other letters."""
    texts = ["mint(uint8)", "mint((uint8,bool))", "i((uint8))"]
    assert {typed: similar(texts, typed) for typed in KEPT} == {typed: [found] for typed, found in KEPT.items()}
    assert not any(similar(texts, typed) for typed in ("min", "m" * 65, "m\u00efnt", "int((uint8", ""))


def test_the_more_common_name_comes_first() -> None:
    """Of names with as many errors; the number of names is limited. Those that differ in case alone are one."""
    texts = ["ab1de()", "abide(bool)", "abide(uint8)", "abides()"]
    assert similar(texts, "abxde") == ["abide", "ab1de"]
    assert similar(texts, "abxde", limit=1) == ["abide"]
    for typed, found in {"transfre": "transfer", "Transfre": "Transfer", "tRANSFRE": "transfer"}.items():
        assert similar(["transfer()", "Transfer(bool)", "Transfer(uint8)"], typed) == [found]
