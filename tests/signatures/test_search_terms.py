"""The grammar of searches by structure: what is understood, and what is refused with its column."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.search_terms import MANY, BadSearch, SearchTerms, Shape, is_structured, parse_terms

READ = {
    "(address,uint256)": SearchTerms(shape=Shape(("address", "uint256"))),
    "(address to, uint amount , *)": SearchTerms(shape=Shape(("address", "uint256", "*"))),
    "()": SearchTerms(shape=Shape(())),
    "swap (address)": SearchTerms("*swap*", Shape(("address",))),
    "swap* ((uint,address)[],?)": SearchTerms("swap*", Shape(("(uint256,address)[]", "?"))),
    "swap*(*)": SearchTerms("swap*", Shape(("*",))),
    "swap type:uint type:bytes params:2..": SearchTerms("*swap*", Shape(None, 2, types=("uint256", "bytes"))),
    "params:2..4 kind:error": SearchTerms(shape=Shape(None, 2, 4), kind=Kind.ERROR),
    "params:0 witness:compiled standard:ERC-20": SearchTerms(
        shape=Shape(None, 0, 0), witness=Witness.COMPILED, standard="ERC-20"
    ),
    'standard:"uniswap V3 pool" type:"(address, uint)"': SearchTerms(
        shape=Shape(types=("(address,uint256)",)), standard="uniswap V3 pool"
    ),
    "usage:>1000 source:4byte": SearchTerms(usage=(1001, MANY), source="4byte"),
    "usage:5..9 params:>2": SearchTerms(shape=Shape(None, 3), usage=(5, 9)),
    "params:..2 usage:<3": SearchTerms(shape=Shape(None, 0, 2), usage=(0, 2)),
    "since:1970-01-02 before:1970-01-03T00:00+00:00": SearchTerms(since=86_400 * 10**6, before=2 * 86_400 * 10**6),
}


@pytest.mark.parametrize("entered", READ)
def test_a_search_is_understood(entered: str) -> None:
    """Types are canonical, and each term has its words."""
    found = parse_terms(entered)
    assert found._replace(understood=()) == READ[entered]
    assert is_structured(entered)
    assert all(found.understood)


REFUSED = {
    "(uint7)": 2, "(address,,bool)": 10, "(address, foo)": 11, "x (address": 3, "foo:bar": 1, "a* b": 4, "kind:x": 6,
    "params:x": 8, "params:1..y": 8, "usage:>": 7, "usage:<0": 7, "params:..": 8, "usage:1.5": 7, "usage:-1": 7, "since:soon": 7, "parameters:bool": 1, "Kind:error": 1, "a standard:ERC-21": 12, 'type:"(bool, foo)"': 14, "(a)b)": 2, "x* )": 4, "type:*": 6, "(bool) (bool)": 9,
    " ".join(["type:bool"] * 9): 86, "*" * 1001: 1001,
}  # fmt: skip


@pytest.mark.parametrize("entered", REFUSED)
def test_what_cannot_be_read_has_its_column(entered: str) -> None:
    with pytest.raises(BadSearch) as found:
        parse_terms(entered)
    assert found.value.column == REFUSED[entered]
    assert f"at column {REFUSED[entered]}" in str(found.value)


@given(st.text("(),*?[] aU8uint:kind.<é\0", max_size=60))
def test_any_text_is_understood_or_refused(entered: str) -> None:
    """With a column inside of it."""
    column = 1
    try:
        parse_terms(entered)
    except BadSearch as error:
        column = error.column
    assert 1 <= column <= len(entered) + 1


@pytest.mark.parametrize(
    "entered",
    ["transfer", "transfer(address,ui", "function f(uint a)", "function f (uint a)", "f (uint a) returns (bool)", "0xa9059cbb", "0xa9059cbb:", ""],
)  # fmt: skip
def test_texts_and_pieces_are_no_searches_by_structure(entered: str) -> None:
    assert not is_structured(entered)


@pytest.mark.parametrize("entered", ["foo:bar", "transfer foo:bar", "foo:bar (uint256)"])
def test_an_unknown_keyword_is_a_keyword(entered: str) -> None:
    """No text has a colon: the word is refused by its name, and not looked for."""
    assert is_structured(entered)
