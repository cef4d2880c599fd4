"""Search input, the order of results, and texts as ABIs, without a server."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.serve.pages.record import abi_json
from sigdir.serve.pages.search import find
from sigdir.serve.pages.search_query import parse_search
from sigdir.signatures.abi import abi_entry
from sigdir.signatures.collections import EVENT_SIGNATURES, EVENTS, FUNCTIONS, SIGNATURES, Collection
from sigdir.signatures.grammar import normalise
from sigdir.signatures.keccak import keccak256
from tests.serve.support import Row, segment_of, view_of

TOPIC = "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef"


@pytest.mark.parametrize(
    ("entered", "kind", "digits", "fragment"),
    [
        ("", "nothing", "", ""), ("  ", "nothing", "", ""), ("0x", "nothing", "", ""),
        ("0xA9059CBB", "selector", "a9059cbb", ""), (" a9059cbb ", "selector", "a9059cbb", ""),
        ("0x" + TOPIC, "topic", TOPIC, ""), (TOPIC.upper(), "topic", TOPIC, ""),
        ("0xa9059cbb" + "00" * 64, "calldata", "a9059cbb", ""), ("a9059cbb" + "00" * 32, "calldata", "a9059cbb", ""),
        ("0xa9059cbb 00 00", "calldata", "a9059cbb", ""), ("0xa9059cbb0", "calldata", "a9059cbb", ""),
        ("0x" + "ab" * 20, "address", "abababab", ""),
        ("0xa9", "hex", "a9", ""), ("0xdeadbee", "hex", "deadbee", ""),
        ("a9", "fragment", "", "a9"), ("dead", "fragment", "", "dead"), ("feedbee", "fragment", "", "feedbee"),
        ("abcdefabc", "fragment", "", "abcdefabc"),
        ("transfer", "fragment", "", "transfer"), ("function tran", "fragment", "", "tran"),
        ("function", "fragment", "", "function"), ("error", "fragment", "", "error"),
        ("transfer(address, ui", "fragment", "", "transfer(address,ui"),
        ("transfer(address,uint)", "text", "", "transfer(address,uint256)"),
        ("event Transfer(address indexed a, uint b);", "text", "", "Transfer(address,uint256)"),
        ("grüße", "fragment", "", "grüße"),
        ('"0xa9059cbb",', "selector", "a9059cbb", ""), ("`f(uint)`", "text", "", "f(uint256)"), ("''", "nothing", "", ""),
    ],
)  # fmt: skip
def test_input_is_classified(entered: str, kind: str, digits: str, fragment: str) -> None:
    """By what it looks like; a whole signature has its canonical text and its hash."""
    query = parse_search(entered)
    assert (query.kind, query.digits, query.fragment) == (kind, digits, fragment)
    if kind == "text":
        assert (query.canonical, query.digest) == (fragment, keccak256(fragment.encode()))


@pytest.mark.parametrize(
    ("entered", "problem"), [("f(uint7)", "not a valid width for this type, at column 3"), ("f(uint7", ""), ("f(uint8)", ""),
                             ("f(uint8) x)", "unexpected text after the signature, at column 10")]
)  # fmt: skip
def test_a_problem_is_reported_once_the_text_is_closed(entered: str, problem: str) -> None:
    """What is still being typed has none."""
    assert parse_search(entered).problem == problem


@pytest.mark.parametrize(
    ("entered", "may_be"),
    [("noSuchName", True), ("event noSuch", True), ("f(address", True), ("f((uint8,bool", True), ("0x00000000", True),
     ("?? nonsense !!", False), ("hello world", False), ("f(uint7)", False), ("grüße", False), ("uint256)", False),
     ("0x" + "ab" * 20, False)]
)  # fmt: skip
def test_only_what_the_grammar_accepts_may_be_submitted(entered: str, may_be: bool) -> None:
    """A name and an unfinished signature may become one; an address and what the grammar rejects may not."""
    assert parse_search(entered).may_be_submitted == may_be


@given(entered=st.text(max_size=200))
def test_any_input_is_classified(entered: str) -> None:
    """Nothing fails; only the kind `nothing`, and a search by structure, have neither digits nor a fragment."""
    query = parse_search(entered)
    assert (query.kind in ("nothing", "terms")) == (not query.digits and not query.fragment)
    assert query.kind != "terms" or (query.terms is None) == bool(query.problem)


# Results.

TEXTS = [
    "transferFrom(address,address,uint256)", "retransfer(bool)", "transferAll()", "Transfer(uint256)",
    "transfer(address,uint256)", "transfer()", "other()", "aTransfer()",
]  # fmt: skip


def ranked(fragment: str, parts: int = 1, start: int = 0, size: int = 20) -> tuple[int, list[str]]:
    """The results for a fragment in rows divided into ``parts`` segments."""
    rows = [Row(n, n, text, keccak256(text.encode())[:4]) for n, text in enumerate(TEXTS, 1)]
    step = -(-len(rows) // parts)
    segments = [segment_of(rows[at : at + step], by_hash=True) for at in range(0, len(rows), step)]
    found = find(view_of(segments), SIGNATURES, parse_search(fragment), start, size)
    return found.count, [row.text for row in found.rows]


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_the_best_matches_come_first(parts: int) -> None:
    """A whole text, standards' texts, those of the same name first, then that name, the same beginning, the rest, by age."""
    expected = [
        "transfer(address,uint256)", "transferFrom(address,address,uint256)", "Transfer(uint256)", "transfer()",
        "transferAll()", "retransfer(bool)", "aTransfer()",
    ]  # fmt: skip
    assert ranked("transfer", parts) == (7, expected)
    pages = [ranked("transfer", parts, start, 2)[1] for start in (0, 2, 4, 6, 8)]
    assert pages == [expected[:2], expected[2:4], expected[4:6], expected[6:], []]
    assert ranked("transfer()", parts) == (2, ["transfer()", "aTransfer()"])
    for absent in ("nowhere", "ü", "transfer(address,uint256)x", "t" * 100):
        assert ranked(absent, parts) == (0, [])


def test_a_long_text_is_found_by_its_hash() -> None:
    """Where it is too long to be searched as a part of others, it finds itself alone."""
    long = f"f({','.join(['uint256'] * 40)})"
    rows = [Row(n, n, text, keccak256(text.encode())[:4]) for n, text in enumerate([long, f"g{long}", "f()"], 1)]
    view = view_of([segment_of(rows[:1], by_hash=True), segment_of(rows[1:], by_hash=True)])
    assert [row.text for row in find(view, SIGNATURES, parse_search(long), 0, 9).rows] == [long]
    assert find(view, SIGNATURES, parse_search(f"h{long}"), 0, 9).count == 0


# ABIs.


@pytest.mark.parametrize(
    "text", ["f()", "f(uint256)", "f(address,uint256[3][])", "f((uint256,bool)[],bytes)", "f(((int8)[2],string)[][1])",
             "f(function)", "f(())"]
)  # fmt: skip
@pytest.mark.parametrize(("collection", "kind"), [(SIGNATURES, FUNCTIONS), (EVENT_SIGNATURES, EVENTS)])
def test_an_abi_has_its_text(collection: Collection, kind: int, text: str) -> None:
    """An import of the ABI reads the same text. No parameter of an event is indexed: a text does not say which are."""
    abi = abi_json(collection, text)
    assert abi is not None
    [entry] = json.loads(abi)
    said = {entry.get("anonymous"), *(parameter.get("indexed") for parameter in entry["inputs"])}
    assert said == {False if kind == EVENTS else None}
    read = abi_entry(entry, 1)
    assert normalise(read.text, declared_kind=read.declared_kind).text == text
    assert read.declared_kind == kind


@pytest.mark.parametrize("text", ["f(" + "(" * 40 + "uint256" + ")" * 41, "f(" + ",".join(["uint256"] * 600) + ")"])
def test_a_text_too_long_or_deep_has_no_abi(text: str) -> None:
    assert abi_json(SIGNATURES, text) is None
