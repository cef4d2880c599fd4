"""Rows by their parameters: the dictionary of lists finds what a slow comparison of each text finds."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.columns import as_readonly
from sigdir.signatures.search_terms import Shape, parse_terms
from sigdir.signatures.types import split_types
from sigdir.warehouse.index.parameter_lists import ParameterLists, bounds_of, build_lists, fits

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


def columns(given: list[str]) -> tuple[np.ndarray, np.ndarray]:
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


def test_each_list_is_there_once() -> None:
    """A tuple is one parameter."""
    found = lists_of(["a(bool)", "b(bool)", "c()", "d(bool)", "e(bool,bool)"])
    assert found.text.tobytes() == b"boolbool,bool"
    rows = [found.rows[a:b].tolist() for a, b in pairwise(found.starts)]
    assert rows == [[0, 1, 3], [2], [4]]
    found = lists_of(
        ["f()", "f(address,uint256)", "g(address,uint256,bytes)", "h(uint256[])", "i((address,uint256),bytes)"]
    )
    for query, rows in {"(address,uint256,*)": [1, 2], "(*,bytes)": [2, 4], "type:uint256": [1, 2, 4]}.items():
        assert found.with_shape(parse_terms(query).shape).tolist() == rows
