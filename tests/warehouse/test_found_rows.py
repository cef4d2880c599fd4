"""How rows are found in memory: by a hash, by their parameters, by a name with a typing error; each beside a plain search."""

from __future__ import annotations

import re
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
from sigdir.warehouse.index.parameter_lists import bounds_of, build_lists, fits
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.index.terms import similar_texts
from tests.serve.support import Row, segment_of, view_of

Array = npt.NDArray[Any]

# A hash.

_LAST = 2**32 - 1


def segment_with(prefixes: list[int]) -> Segment:
    """A segment with these prefixes, row by row."""
    return segment_of([Row(0, 0, "", prefix.to_bytes(4)) for prefix in prefixes], by_hash=True)


@pytest.mark.parametrize("edges", [[], [0, _LAST], [5, 2**31]])
def test_uneven_prefixes(edges: list[int]) -> None:
    """Lookups among prefixes that lie close, far apart and a hundred times in one place, in two segments."""
    many = sorted([*range(7, 300), *(1 << n for n in range(32)), *[2**31 + 2] * 100, *edges])
    view = view_of([segment_with(many), segment_with([5])])
    for prefix in {0, 1, 5, 6, 7, 299, 300, *many[::97], *range(2**31, 2**31 + 4), _LAST - 1, _LAST}:
        expected = [[row for row, each in enumerate(held) if each == prefix] for held in (many, [5])]
        found = view.with_hash(SIGNATURES, prefix.to_bytes(4))
        assert [rows.tolist() for _, rows in found] == [rows for rows in expected if rows]


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


def holds(text: str, shape: Shape) -> bool:
    """The oracle: regular expressions over all parameters."""
    inside = text.partition("(")[2][:-1]
    parameters = split_types(inside) if inside else []
    if not shape.least <= len(parameters) <= shape.most:
        return False
    items = ("*",) if shape.items is None else shape.items
    wanted = "".join({"*": "([^;]+;)*", "?": "[^;]+;"}.get(item, f"{re.escape(item)};") for item in items)
    if not re.fullmatch(wanted, "".join(f"{parameter};" for parameter in parameters)):
        return False
    return all(re.search(rf"[,(]{re.escape(type)}[,)]", f"({inside})") for type in shape.types)


@given(st.lists(texts, max_size=12), shapes)
def test_the_dictionary_finds_what_the_oracle_finds(given: list[str], shape: Shape) -> None:
    """Also where rows are compared one by one, as staged ones are."""
    wanted = [row for row, text in enumerate(given) if holds(text, shape)]
    text = as_readonly(np.frombuffer("".join(given).encode() or b"\0", np.uint8))
    offsets = as_readonly(np.cumsum([0, *map(len, given)]))
    assert build_lists(text, offsets, len(given)).with_shape(shape).tolist() == wanted
    assert np.flatnonzero(fits(text, *bounds_of(text, offsets, np.arange(len(given))), shape)).tolist() == wanted


# A name with a typing error.


letters = st.text("abAB1", min_size=1, max_size=9)


@cache
def distance(one: str, other: str) -> int:
    """Optimal string alignment, as the textbook has it."""
    if not one or not other:
        return len(one) + len(other)
    best = min(distance(one[1:], other) + 1, distance(one, other[1:]) + 1)
    if one[:2] == other[1::-1]:
        best = min(best, distance(one[2:], other[2:]) + 1)
    return min(best, distance(one[1:], other[1:]) + (one[0] != other[0]))


def similar(texts: list[str], typed: str, parts: int = 1, limit: int = 100) -> list[str]:
    rows = [Row(n, n, text, keccak256(text.encode())[:4]) for n, text in enumerate(texts, 1)]
    step = -(-len(rows) // parts)
    return similar_texts([segment_of(rows[at : at + step]) for at in range(0, len(rows), step)], typed, limit)


@given(names=st.lists(letters, min_size=1, max_size=30, unique=True), typed=st.text("abAB1", min_size=4, max_size=9))
def test_the_names_are_those_of_the_fewest_errors(names: list[str], typed: str) -> None:
    """All names of one error; without one those of two, for names of six letters or more."""
    near = {name: distance(typed.lower(), name.lower()) for name in names}
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
