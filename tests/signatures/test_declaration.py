"""Declarations: one spelling for every written form, and the way to an ABI entry and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sigdir.signatures.abi import abi_entry
from sigdir.signatures.candidates import Entry, Sightings, pack
from sigdir.signatures.canonicalise import canonicalise, canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.evidence import LISTED, Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import MAX_TEXT_BYTES, OK, GrammarError, declaration, normalise
from sigdir.signatures.grammar_rows import normalise_rows, spell
from sigdir.signatures.types import MAX_DECLARATION_BYTES, MAX_NAME_BYTES, MAX_TUPLES, BadDeclaration, parse_declaration
from sigdir.warehouse.evidence.mapped import BatchSightings, sightings_table
from tests.signatures.strategies import Valid, any_text, valid
from tests.signatures.test_grammar import columns

SPELLED = [
    (
        "function  transfer( address to,uint amount ) external returns(bool)",
        "function transfer(address to, uint256 amount) returns (bool)",
    ),
    (
        "event Transfer(address indexed from, address to indexed, uint value) anonymous;",
        "event Transfer(address indexed from, address indexed to, uint256 value) anonymous",
    ),
    ("f(tuple(uint a, address payable b)[ 2 ] calldata orders)", "f((uint256 a, address b)[2] orders)"),
    ("f(uint) public view", "function f(uint256) view"),
    ("function f(function(uint) external returns (bool) done) constant", "function f(function done) view"),
    ("function f() returns (L.T x, byte)", "function f()"),
    ("function f() returns () payable", "function f() payable"),
    ("Transfer(address indexed)", "event Transfer(address indexed)"),
    ("f(uint)", ""),
    (f"f(uint {'n' * MAX_NAME_BYTES})", f"f(uint256 {'n' * MAX_NAME_BYTES})"),
    (f"function f(uint {'n' * (MAX_NAME_BYTES + 1)})", "function f(uint256)"),
]


def spelled(text: str, kind: Kind = Kind.UNKNOWN) -> tuple[Kind | None, str]:
    """The kind and the declaration of one text, "" for none; no kind of one that is refused."""
    try:
        collection = normalise(text, EVENTS if kind is Kind.EVENT else UNKNOWN).collection
    except GrammarError:
        return None, ""
    found = canonicalise_one(text, collection, kind)
    return found.kind, found.declaration


def declaration_of(entry: dict[str, Any]) -> tuple[Kind | None, str]:
    """The same of an ABI entry; "" where it is a reject."""
    found = abi_entry(entry, 1)
    return spelled(found.text.decode(), found.sighting.kind) if found.reject_reason == OK else (None, "")


@pytest.mark.parametrize(("written", "declaration"), SPELLED)
def test_a_declaration_has_one_spelling(written: str, declaration: str) -> None:
    """Spaces, aliases, locations, visibility and modifiers are gone; a text that says no more is none."""
    assert spelled(written)[1] == declaration


@pytest.mark.parametrize(
    ("collection", "stated", "written", "kind", "declaration"),
    [
        (UNKNOWN, Kind.EVENT, "Set(uint a)", Kind.EVENT, "event Set(uint256 a)"),
        (UNKNOWN, Kind.EVENT, "error Low(uint a)", Kind.ERROR, "error Low(uint256 a)"),
        (EVENTS, Kind.UNKNOWN, "Set(uint a)", Kind.EVENT, "event Set(uint256 a)"),
        (UNKNOWN, Kind.EVENT, "Set(uint256)", Kind.EVENT, ""),
        (UNKNOWN, Kind.UNKNOWN, "Set(uint256)", Kind.UNKNOWN, ""),
        (FUNCTIONS, Kind.UNKNOWN, "f(uint indexed a)", Kind.UNKNOWN, "f(uint256 a)"),
        (UNKNOWN, Kind.UNKNOWN, "f(uint indexed a)", Kind.EVENT, "event f(uint256 indexed a)"),
        (FUNCTIONS, Kind.UNKNOWN, "f(uint) view", Kind.FUNCTION, "function f(uint256) view"),
    ],
)
def test_the_keyword_decides_before_what_the_input_states(
    collection: int, stated: Kind, written: str, kind: Kind, declaration: str
) -> None:
    """The kind is that of the keyword, else the stated one, else that of the words after the list."""
    [found] = spelled_rows([written.encode()], collection, stated)
    assert found == (kind, declaration)


def spelled_rows(texts: list[bytes], collection: int, stated: int) -> list[tuple[int, str]]:
    """The kind and the declaration of each text, from the compiled form."""
    declared, kinds = (np.full(len(texts), value, np.uint8) for value in (collection, stated))
    rows = normalise_rows(*columns(texts), declared, stated=kinds)
    return list(zip(rows.kinds.tolist(), [text or "" for text in rows.declarations().to_pylist()], strict=True))


def test_every_parameter_of_the_longest_text_may_have_a_name() -> None:
    """Nested tuples have the most names for their bytes; they have no declaration, because they are nested too deeply."""
    deep = (MAX_TEXT_BYTES - 3) // 3
    text = f"f({'(' * deep}{')a' * deep})"
    assert spelled_rows([text.encode()], UNKNOWN, Kind.UNKNOWN) == [(Kind.UNKNOWN, "")]
    assert canonicalise_one(text, FUNCTIONS).text == text.replace("a", "")


def test_too_long_and_too_deep_have_no_declaration() -> None:
    """A declaration has at most MAX_DECLARATION_BYTES, and tuples MAX_TUPLES levels with the list."""
    long = "function f(" + ",".join(f"uint a{n}" for n in range(MAX_DECLARATION_BYTES // 10)) + ")"
    assert spelled(long) == (Kind.FUNCTION, "")
    inner = MAX_TUPLES - 1
    assert spelled(f"function f({'(' * inner}uint{')' * inner} a)")[1].endswith(" a)")
    assert spelled(f"function f({'(' * (inner + 1)}uint{')' * (inner + 1)} a)")[1] == ""
    with pytest.raises(BadDeclaration):
        parse_declaration(f"function f({'(' * 5000}uint256{')' * 5000})")


@given(valid())
@example(Valid("f(uint a)", "f(uint256)", "", event_like=False))
def test_a_declaration_has_the_types_of_the_canonical_text(declaration: Valid) -> None:
    """Whatever was written: spelled twice is spelled once, it parses, and its types are those of the canonical text."""
    found = spelled(declaration.written)
    kind, text = found
    if text:
        assert spelled(text) == found
        parsed = parse_declaration(text)
        assert str(parsed) == text
        assert parsed.text == normalise(text).text == declaration.canonical
        assert parsed.name == declaration.canonical.partition("(")[0]
        assert parsed.abi_entry()["type"] == (kind or Kind.FUNCTION).name.lower()
        keyword = "function " if kind == Kind.UNKNOWN else ""
        assert declaration_of(parsed.abi_entry()) == (kind or Kind.FUNCTION, keyword + text)


@given(
    st.lists(any_text(), min_size=1, max_size=6),
    st.sampled_from([UNKNOWN, FUNCTIONS, EVENTS]),
    st.sampled_from(list(Kind)),
)
def test_a_batch_equals_its_rows_in_plain_python(texts: list[bytes], collection: int, stated: Kind) -> None:
    """The compiled speller gives for each row what the same functions give in plain Python, also for broken texts."""
    for found, text in zip(spelled_rows(texts, collection, stated), texts, strict=True):
        canonical, out, notes = bytearray(2 * len(text) + 16), bytearray(3 * len(text) + 64), dict[int, int]()
        reason, _, length, belongs = declaration(text, 0, len(text), collection, FUNCTIONS, canonical, 0, notes)
        kind, size = int(stated), 0
        if reason == OK and canonical[:length] != text:
            kind, size = spell(text, len(text), canonical, 0, length, notes, stated, belongs, out, 0)
        if reason == OK and canonical[:length] == text:
            kind = found[0]  # one that is written canonically keeps what is stated, but for fixed-point types
        assert found == (kind, out[:size].decode())


ENTRY = {
    "type": "function",
    "name": "place",
    "inputs": [{
        "name": "orders", "type": "tuple[]",
        "components": [{"name": "owner", "type": "address"}, {"name": "", "type": "uint"}],
    }],
    "outputs": [{"name": "ok", "type": "bool"}],
    "stateMutability": "payable",
}  # fmt: skip


DEEP: dict[str, Any] = {"type": "bool"}
"""A tuple that is nested too deeply for a declaration, which costs nothing else."""
for _ in range(5000):
    DEEP = {"type": "tuple", "components": [DEEP]}


INDEXED = {"name": "a", "type": "byte", "indexed": True}
NO_NAMES = ["a b", "1", "é", "memory", "n" * (MAX_NAME_BYTES + 1), 7, ["a"]]
NAMELESS = "function place(bool) payable returns (bool ok)"
NO_LISTS = [{"a": 1}, [7], [{"type": 7}], [{"type": "uint7"}], [{"type": "bool) g(bool"}], [{}]]


def changed(**fields: Any) -> dict[str, Any]:
    return {key: value for key, value in (ENTRY | fields).items() if value is not None}


@pytest.mark.parametrize(
    ("entry", "kind", "declaration"),
    [
        (ENTRY, Kind.FUNCTION, "function place((address owner, uint256)[] orders) payable returns (bool ok)"),
        (changed(type=None, inputs=None, outputs=None, stateMutability=None), Kind.FUNCTION, "function place()"),
        (changed(inputs=[], outputs=[], stateMutability=None, constant=True), Kind.FUNCTION, "function place() view"),
        (changed(inputs=[], outputs=[], stateMutability=None, payable=True), Kind.FUNCTION, "function place() payable"),
        (changed(type="error", inputs=[]), Kind.ERROR, "error place()"),
        (
            changed(type="event", inputs=[INDEXED], anonymous=True),
            Kind.EVENT,
            "event place(bytes1 indexed a) anonymous",
        ),
        # Names that are no identifiers, that mean something else, or that are too long are left out.
        *((changed(inputs=[{"name": name, "type": "bool"}]), Kind.FUNCTION, NAMELESS) for name in NO_NAMES),
        # Wrong returns cost the returns, wrong inputs the entry.
        *((changed(inputs=[], outputs=list), Kind.FUNCTION, "function place() payable") for list in NO_LISTS),
        *((changed(inputs=list), None, "") for list in NO_LISTS),
        (changed(inputs=[DEEP]), Kind.FUNCTION, ""),
        (changed(name="a b"), None, ""),
        (changed(name=7), None, ""),
        (changed(type="constructor"), None, ""),
        (changed(type=7), None, ""),
    ],
)
def test_the_declaration_of_an_abi_entry(entry: dict[str, Any], kind: Kind | None, declaration: str) -> None:
    """An entry's names, mutability and returns are in its declaration, as far as they are of the specification's shape."""
    assert declaration_of(entry) == (kind, declaration)


@pytest.mark.parametrize(
    "text",
    ["", "f", "f(uint256", "f(uint256))", "function f() view view", "x f()", "f(uint256  a)", "f(a b c)", "f() x"],
)
def test_other_texts_are_no_declarations(text: str) -> None:
    with pytest.raises(BadDeclaration):
        parse_declaration(text)


_STATED = [
    LISTED,
    Sighting(Kind.FUNCTION, Witness.DECLARED, contract=Contract.at("a.sol", "A")),
    Sighting(Kind.EVENT),
    Sighting(Kind.ERROR, Witness.DECLARED),
    Sighting(contracts=7, verified=True),
]


def sightings_of(entries: list[Entry]) -> list[Sighting]:
    """What a batch says about each accepted row."""
    [batch] = pack(entries, 0)
    accepted = canonicalise(batch).accepted.values()
    return [one for rows in accepted for one in rows.sightings or [LISTED] * len(rows.text)]


_EQUAL = (
    "function f(uint a)", "set(uint value)", "function f( uint256 a ) public", "function f(uint b)", "f(uint)",
    "event E(uint)", "event F(uint)", "event E(uint a)", "event E( uint )", "event E(uint a)",
)  # fmt: skip


@given(st.lists(st.tuples(any_text(), st.sampled_from(_STATED)), min_size=1, max_size=8))
@example([(text.encode(), LISTED) for text in _EQUAL])
def test_the_sightings_of_a_batch_are_those_of_its_rows(rows: list[tuple[bytes, Sighting]]) -> None:
    """What a reader states is kept; kind and declaration are added from the text, in a batch as for each row alone."""
    entries = [Entry(text, line, sighting=sighting) for line, (text, sighting) in enumerate(rows, 1)]
    found = sightings_of(entries)
    alone = [sighting for entry in entries for sighting in sightings_of([entry])]
    assert sorted(map(repr, found)) == sorted(map(repr, alone))


@given(st.lists(st.tuples(st.sampled_from(_STATED), st.sampled_from(["", "f(bool a)", "f(bool b)"])), max_size=8))
def test_sightings_as_columns(values: list[tuple[Sighting, str]]) -> None:
    """Columns hold the sightings that they were made of, filtered too, and are the same at rest."""
    sightings = tuple(sighting._replace(declaration=text) for sighting, text in values)
    columns = Sightings.of(sightings)
    assert tuple(columns) == columns[:] == sightings
    keep = np.arange(len(sightings)) % 2 == 0
    assert tuple(columns.filter(keep)) == sightings[::2]
    at_rest = sightings_table(np.arange(len(sightings)), 1, 1, None, BatchSightings.of(columns)).to_pylist()
    assert [(row["kind"], row["witness"], row["contract"], row["declaration"]) for row in at_rest] == [
        (one.kind, one.witness, one.contract and one.contract.name, one.declaration or None) for one in sightings
    ]
