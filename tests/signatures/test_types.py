"""The parser of type lists: splitting, the tree, its limits, and the column of an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.types import MAX_DEPTH, BadTypeList, parameter_types, split_types
from tests.signatures.strategies import types


@given(st.lists(types.map(lambda part: part.canonical), min_size=1, max_size=6))
def test_a_list_is_cut_into_its_types(parts: list[str]) -> None:
    """Their trees are compared in test_calldata.py."""
    assert split_types(",".join(parts)) == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("f(bool,Bool)", "unknown type 'Bool' at column 8 in 'f(bool,Bool)'"),
        ("f(bool,())", "a tuple without members, which no contract takes at column 8 in 'f(bool,())'"),
        ("f(bool", "a parenthesis that is not closed at column 6 in 'f(bool'"),
        ("f(bool[1234567890123456789])", "an array whose length has 19 digits at column 7 in "),
        (f"f(bool[{'9' * 5000}])", "an array whose length has 5000 digits at column 7 in "),  # more than int() reads
        ("f(bool,uint8[2][00])", "an array without elements, which no contract takes at column 16 in "),
        ("f(uint8" + "[]" * 16 + "[2])", f"nested more than {MAX_DEPTH} deep at column 40 in "),
        ("f(" + "(" * 17 + "bool" + ")" * 18, f"nested more than {MAX_DEPTH} deep at column 19 in "),
        ("f(" + "bool," * 2000 + "bool)", "a text of 10007 characters; at most 8192 are decoded"),
    ],
)
def test_an_error_shows_the_problem_and_its_column(text: str, message: str) -> None:
    with pytest.raises(BadTypeList) as caught:
        parameter_types(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("text", "column"), [("a)", 2), ("a)(b", 2), ("a,(b", 4)])
def test_parentheses_must_match(text: str, column: int) -> None:
    with pytest.raises(BadTypeList) as caught:
        split_types(text)
    assert caught.value.column == column
