"""The grammar: examples, every reject with its column, and the plain form compared with the compiled one."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sigdir.signatures.candidates import Candidates, Entry, pack
from sigdir.signatures.canonicalise import OTHER_COLLECTION, BatchResult, canonicalise, canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN, Collection
from sigdir.signatures.grammar import BAD_ENTRY, MAX_TEXT_BYTES, OK, PLACEHOLDER, REASONS, GrammarError, normalise
from sigdir.signatures.grammar_rows import normalise_rows
from sigdir.signatures.keccak import keccak256
from tests.examples import examples
from tests.signatures.strategies import (
    ALIASES,
    BAD_ENDS,
    BAD_PARAMETERS,
    EXACT,
    INTEGER_WIDTHS,
    VISIBILITY,
    Broken,
    Valid,
    any_text,
    broken,
    broken_by,
    valid,
)

Array = npt.NDArray[Any]

COMBINATIONS = list(product([UNKNOWN, FUNCTIONS, EVENTS], [FUNCTIONS, EVENTS]))
"""Every kind that an input may declare, with every default."""


class Outcome(NamedTuple):
    """The result for one text: a reject has no text, an accepted row has no reason and column 0."""

    text: str
    collection: int
    reason: str
    column: int


def one(text: str | bytes, declared_kind: int = UNKNOWN, default: int = FUNCTIONS) -> Outcome:
    """The outcome by the grammar in plain Python. A reject's collection is unknown: 0."""
    try:
        signature = normalise(text, declared_kind, default)
    except GrammarError as error:
        return Outcome("", UNKNOWN, error.reason, error.column)
    return Outcome(signature.text, signature.collection, "", 0)


_BETWEEN = b")"
"""Separates the texts of a batch: a read past an end would close a list and show."""


def columns(texts: list[bytes]) -> tuple[Array, Array, Array]:
    """Texts in the form that the kernel takes: data, starts, ends."""
    sizes = np.fromiter(map(len, texts), np.int32, len(texts))
    ends = np.cumsum(sizes + len(_BETWEEN), dtype=np.int32) - np.int32(len(_BETWEEN))
    return np.frombuffer(_BETWEEN.join(texts), np.uint8), ends - sizes, ends


def rows(texts: list[bytes], declared_kind: int = UNKNOWN, default: int = FUNCTIONS) -> list[Outcome]:
    """The same by the compiled grammar."""
    result = normalise_rows(*columns(texts), np.full(len(texts), declared_kind, np.uint8), default)
    found = result.texts().to_pylist(), result.collections.tolist(), result.reasons.tolist(), result.columns.tolist()
    return [
        Outcome(text, UNKNOWN if code else collection, REASONS[code], column)
        for text, collection, code, column in zip(*found, strict=True)
    ]


def both(text: str, declared_kind: int = UNKNOWN, default: int = FUNCTIONS) -> Outcome:
    """The outcome for one text, after checking that both forms give the same."""
    alone = one(text, declared_kind, default)
    assert rows([text.encode()], declared_kind, default) == [alone]
    return alone


def label(value: object) -> str:
    """A parameter as part of a test's name, cut because some texts are long."""
    return repr(value)[:60]


# Examples.

ACCEPTED: list[tuple[str, str]] = [
    ("transfer(address,uint256)", "transfer(address,uint256)"),
    *((f"f(({alias}[],{alias} a)[3])", f"f(({word}[],{word})[3])") for alias, word in ALIASES.items()),
    (f"f({','.join(EXACT)})", f"f({','.join(EXACT)})"),
    ("f(fixed8x1,ufixed256x80,fixed128x18)", "f(fixed8x1,ufixed256x80,fixed128x18)"),
    # address payable: the word belongs to the type, arrays may follow
    ("f(address payable payable)", "f(address)"),
    ("f(address payablE)", "f(address)"),
    ("f(address  payable [ ] memory to)", "f(address[])"),
    ("f(uint256 payable x)", "f(uint256)"),
    (f"f(bool[{10**40}])", f"f(bool[{10**40}])"),
    # names that are words of the language
    ("fUNCTION()", "fUNCTION()"),
    ("tuple(uint)", "tuple(uint256)"),
    ("mapping(uint)", "mapping(uint256)"),
    ("f(uint uint, bool tuple, int event)", "f(uint256,bool,int256)"),
    # the external function type stays as solc writes it
    ("f(function (uint, (bool)) external view returns (bytes memory) [2] memory cb)", "f(function[2])"),
    ("f(function(function(uint) external) external pure returns(uint)cb,int)", "f(function,int256)"),
    ("f(function() payable external returns (uint)[])", "f(function[])"),
    # tails
    ("function f(uint a) external view virtual override(A, B) only(1, (2)) returns (uint, L.T memory) ;", "f(uint256)"),
    ('function f() only("é") returns (uint é)', "f()"),
    *((f"f(uint) {word}", "f(uint256)") for word in VISIBILITY),
    ("f(uint) override(A)view;", "f(uint256)"),
    # white space of every kind
    ("\t\n\v\f\r f \t\n\v\f\r( \t\n\v\f\ruint \t\n\v\f\ra \t\n\v\f\r) \t\n\v\f\r", "f(uint256)"),
]
"""What the declarations that are composed of parts do not hold, or hold by chance: each type word, and odd ones."""


def test_each_width() -> None:
    for word, widths in (("uint", INTEGER_WIDTHS), ("int", INTEGER_WIDTHS), ("bytes", range(1, 33))):
        texts = {f"f({word}{width})": width in widths for width in range(300)}
        found = rows([text.encode() for text in texts])
        assert found == list(map(one, texts))
        assert [outcome.reason == "" for outcome in found] == list(texts.values())


@pytest.mark.parametrize(("written", "canonical"), ACCEPTED, ids=label)
def test_accepted(written: str, canonical: str) -> None:
    """A written form becomes its canonical text, whatever kind the input declares."""
    for declared_kind, default in COMBINATIONS:
        assert both(written, declared_kind, default).text == canonical


REJECTED: list[tuple[str, str, int]] = [
    *(broken_by(part, ["f", "(", "bool", ","], (")",), [""]) for part in BAD_PARAMETERS),
    *(broken_by(part, [], (), [""]) for part in BAD_ENDS),
    ("", "empty", 1),
    (" " * (MAX_TEXT_BYTES + 5), "empty", MAX_TEXT_BYTES + 6),
    ("f(" + "uint," * 20_000 + "uint)", "too_long", MAX_TEXT_BYTES + 1),
    ("fé()", "bad_name", 2),
    ("\ufefff()", "bad_name", 1),
    ("Function f()", "bad_name", 10),
    ("f(uint;)", "bad_name", 7),
    ("f(function(uint) internal cb)", "bad_name", 27),
    ("f(\0)", "unknown_type", 3),
    ("f(uint99999999999999999999)", "bad_width", 3),
    ("f(uint[3)", "bad_array", 7),
    ("f(uint[", "bad_array", 7),
    ("f() returns (uint", "unbalanced", 18),
    ("event  E(bool indexed a,bool indexed b,bool indexed c,bool indexed d,bool e);", "too_many_indexed", 8),
    ("event E(" + "bool indexed," * 4 + "bool indexed) anonymous", "too_many_indexed", 7),
    ("f ", "bad_entry", 3),
    ("function", "bad_entry", 9),
    ("f()x", "bad_entry", 4),
    ("f()external", "bad_entry", 4),
    ("f() x", "bad_entry", 5),
    ("event E() anonymously", "bad_entry", 11),
    ("f()\0", "bad_entry", 4),
]


@pytest.mark.parametrize(("written", "reason", "column"), REJECTED, ids=label)
def test_rejected(written: str, reason: str, column: int) -> None:
    """A reject has its reason and the column where it was noticed, whatever kind the input declares."""
    for declared_kind, default in COMBINATIONS:
        assert both(written, declared_kind, default) == Outcome("", UNKNOWN, reason, column)


# Collections.

FOUR_INDEXED = "E(uint indexed,uint indexed,uint indexed,uint indexed)"


@pytest.mark.parametrize(
    ("written", "declared_kind", "default", "collection", "reason"),
    [
        # A keyword is no name in its own collection.
        ("function(uint)", FUNCTIONS, EVENTS, UNKNOWN, "bad_name"),
        ("function(uint256)", UNKNOWN, FUNCTIONS, UNKNOWN, "bad_name"),
        ("function(uint256)", EVENTS, FUNCTIONS, EVENTS, ""),
        ("function()", UNKNOWN, EVENTS, EVENTS, ""),
        ("event function()", UNKNOWN, FUNCTIONS, EVENTS, ""),
        ("event()", EVENTS, FUNCTIONS, UNKNOWN, "bad_name"),
        ("event()", FUNCTIONS, EVENTS, FUNCTIONS, ""),
        ("event(uint indexed)", UNKNOWN, FUNCTIONS, UNKNOWN, "bad_name"),
        ("function event(uint)", UNKNOWN, EVENTS, FUNCTIONS, ""),
        # An event has at most three indexed parameters, an anonymous one four.
        (FOUR_INDEXED, UNKNOWN, FUNCTIONS, UNKNOWN, "too_many_indexed"),
        (FOUR_INDEXED, FUNCTIONS, EVENTS, FUNCTIONS, ""),
        ("function " + FOUR_INDEXED, EVENTS, EVENTS, FUNCTIONS, ""),
        (FOUR_INDEXED + " anonymous", UNKNOWN, FUNCTIONS, EVENTS, ""),
    ],
)
def test_what_depends_on_the_collection(
    written: str, declared_kind: int, default: int, collection: int, reason: str
) -> None:
    """It is that of the keyword, else the declared one, else that of events for an indexed parameter, else the default."""
    found = both(written, declared_kind, default)
    assert (found.collection, found.reason) == (collection, reason)


# Length and depth.


def test_longest_text() -> None:
    """A text of 65,536 bytes, spaces included, is read; one byte more is not, and neither is a longer canonical text."""
    name = "f" * (MAX_TEXT_BYTES - len("(uint256)"))
    assert both(f"{name}(uint256)").text == f"{name}(uint256)"
    assert both(f"f{name}(uint256)") == Outcome("", UNKNOWN, "too_long", MAX_TEXT_BYTES + 1)
    short = f"g{' ' * (MAX_TEXT_BYTES - len('g(bool)'))}(bool)"
    assert both(short).text == "g(bool)"
    assert both(short + " ") == Outcome("", UNKNOWN, "too_long", MAX_TEXT_BYTES + 1)
    assert both(f"{name}(uint)").text == f"{name}(uint256)"
    assert both(f"f{name}(uint)") == Outcome("", UNKNOWN, "too_long", MAX_TEXT_BYTES + 1)


def test_aliases_that_double_a_text_fit() -> None:
    """The text that grows most has room, even if it is then rejected, and its neighbours are unaffected."""
    most = b"f(" + b"fixed," * ((MAX_TEXT_BYTES - 8) // 6) + b"fixed)"
    half = b"f(" + b"ufixed," * 4_000 + b"fixed)"
    texts = [most, half, b"f(" + b"(fixed," * 9_000, b"g(fixed)", half, b"g(int)"]
    result = rows(texts)
    assert result == list(map(one, texts))
    assert [outcome.reason for outcome in result] == ["too_long", "", "unbalanced", "", "", ""]


def test_nesting_has_no_limit_but_the_length() -> None:
    """Neither form recurses."""
    depth = 4_000
    text = f"f({'(bool a,' * depth}int{')[] x' * depth})"
    assert both(text).text == f"f({'(bool,' * depth}int256{')[]' * depth})"
    assert both(text[:-1]) == Outcome("", UNKNOWN, "unbalanced", len(text))
    assert both(text + ")") == Outcome("", UNKNOWN, "unbalanced", len(text) + 1)
    assert both(f"f(function{'(' * depth}{')' * depth} external cb)").text == "f(function)"


# The two forms, and the properties of both.


@settings(max_examples=examples(200))
@given(valid())
def test_valid_declarations_become_their_canonical_text(declaration: Valid) -> None:
    for declared_kind, default in COMBINATIONS:
        collection = declaration.collection(declared_kind, default)
        assert both(declaration.written, declared_kind, default) == Outcome(declaration.canonical, collection, "", 0)


@settings(max_examples=examples(200))
@given(broken())
def test_broken_declarations_are_rejected_where_they_break(declaration: Broken) -> None:
    for declared_kind, default in COMBINATIONS:
        outcome = both(declaration.written, declared_kind, default)
        assert outcome == Outcome("", UNKNOWN, declaration.reason, declaration.column)


# The error of one text.


@pytest.mark.parametrize(
    ("text", "reason", "column", "message"),
    [
        ("f(bool,uint7)", "bad_width", 8, "bad width 'uint7' at column 8 in 'f(bool,uint7)'"),
        ("f(" + "uint," * 1_000, "unbalanced", 5_003, ""),
        ("f(\ud800)", "encoding", 3, ""),  # no str that can be written as UTF-8
    ],
    ids=label,
)
def test_an_error_shows_reason_column_and_text(text: str, reason: str, column: int, message: str) -> None:
    """In below 300 characters, however long the text is."""
    with pytest.raises(GrammarError) as caught:
        normalise(text)
    assert (caught.value.reason, caught.value.column) == (reason, column)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 300


# One text by the compiled grammar.


def alone(text: str, collection: int) -> Outcome:
    """The outcome for one text by the compiled grammar, after checking its digest."""
    try:
        canonical, digest, *_ = canonicalise_one(text, collection)
    except GrammarError as error:
        return Outcome("", UNKNOWN, error.reason, error.column)
    assert digest == keccak256(canonical.encode())
    return Outcome(canonical, collection, "", 0)


@given(any_text(), st.sampled_from([FUNCTIONS, EVENTS]))
@example(b"", FUNCTIONS)
@example("f(\u00e9)".encode(), FUNCTIONS)
@example(b"event f(uint)", FUNCTIONS)
@example(b"function f(uint)", EVENTS)
@example(b"f(uint indexed a)", FUNCTIONS)
@example(b"f(" + b"uint," * 9_000 + b"uint)", FUNCTIONS)
@example(b"f(" + b"uint," * 14_000 + b"uint)", FUNCTIONS)
def test_canonicalise_one_agrees_with_plain_python(raw: bytes, collection: int) -> None:
    """Both give the same canonical text or the same error; a declaration of the other collection has a reason of its own."""
    text = raw.decode(errors="replace")
    expected = one(text, collection, collection)
    if not expected.reason and expected.collection != collection:
        expected = Outcome("", UNKNOWN, OTHER_COLLECTION, 1)
    assert alone(text, collection) == expected


# Whole batches: encoding, declared hashes, and that nothing gets lost.


def batch_result(entries: list[Entry], default: int = FUNCTIONS) -> BatchResult:
    """The result of canonicalising one batch."""
    (batch,) = pack(entries, 0)
    return canonicalise(batch, default)


def rejects(result: BatchResult) -> list[tuple[int, str, int, str]]:
    """The rejected rows: line, reason, column, text as shown."""
    rows = result.rejected
    reasons = [REASONS[code] for code in rows.reasons.tolist()]
    return list(zip(rows.lines.tolist(), reasons, rows.columns.tolist(), rows.text.to_pylist(), strict=True))


def accepted(result: BatchResult) -> dict[int, list[str]]:
    """The accepted texts of each collection."""
    none: dict[int, list[str]] = {FUNCTIONS: [], EVENTS: []}
    return none | {collection.code: rows.text.to_pylist() for collection, rows in result.accepted.items()}


@settings(max_examples=examples(200))
@given(
    st.lists(st.tuples(any_text(), st.sampled_from([UNKNOWN, FUNCTIONS, EVENTS])), min_size=1, max_size=10),
    st.sampled_from([FUNCTIONS, EVENTS]),
)
def test_a_batch_gives_each_candidate_the_outcome_of_the_grammar(texts: list[tuple[bytes, int]], default: int) -> None:
    """Every candidate is accepted or rejected with its reason, in input order, whatever its bytes.

    Each has a declared kind of its own. A canonical text normalises to itself.
    """
    found = batch_result([Entry(text, line, kind) for line, (text, kind) in enumerate(texts, 1)], default)
    result = [one(text, kind, default) for text, kind in texts]
    assert found.read == len(texts)
    assert [reject[:3] for reject in rejects(found)] == [
        (line, outcome.reason, outcome.column) for line, outcome in enumerate(result, 1) if outcome.reason
    ]
    expected: dict[int, list[str]] = {FUNCTIONS: [], EVENTS: []}
    for outcome in result:
        if not outcome.reason:
            expected[outcome.collection].append(outcome.text)
            assert one(outcome.text, outcome.collection) == outcome
    assert accepted(found) == expected


@pytest.mark.parametrize(
    ("text", "column", "shown"),
    [
        (b"\xff", 1, "\\xff"),
        (b"f(uint) \xc3\xa9 \xe2\x82", 12, "f(uint) é \\xe2\\x82"),
        (b"\xed\xa0\x80()", 1, "\\xed\\xa0\\x80()"),  # a surrogate
        (b"9f(uint7 \xfe", 10, "9f(uint7 \\xfe"),
    ],
)
def test_encoding(text: bytes, column: int, shown: str) -> None:
    """Text that is not UTF-8 is rejected at its first bad byte, before it is parsed, and shown escaped."""
    assert one(text) == Outcome("", UNKNOWN, "encoding", column)
    found = batch_result([Entry(b"f(uint)", 1), Entry(text, 2), Entry("g(é)".encode(), 3), Entry(b"h()", 4)])
    assert rejects(found) == [(2, "encoding", column, shown), (3, "unknown_type", 3, "g(é)")]
    assert accepted(found)[FUNCTIONS] == ["f(uint256)", "h()"]


TRANSFER = b"transfer(address to, uint value)"
TRANSFER_DIGEST = bytes.fromhex("a9059cbb2ab09eb219583f4a59a5d0623ade346d962bcd4e46b11da047c9049b")


def changed(digest: bytes, at: int) -> bytes:
    """A digest with one bit of one byte flipped."""
    return digest[:at] + bytes([digest[at] ^ 1]) + digest[at + 1 :]


def test_declared_hash_is_checked_to_its_last_byte() -> None:
    """A row is rejected unless its declared hash, of 4 or 32 bytes, is that of its canonical text; it need have none."""
    wrong = [bytes(4), bytes(32)]
    wrong += [changed(TRANSFER_DIGEST[:width], at) for width in (4, 32) for at in range(width)]
    declared = [TRANSFER_DIGEST[:4], *wrong, b"", TRANSFER_DIGEST]
    found = batch_result([Entry(TRANSFER, line, UNKNOWN, value) for line, value in enumerate(declared)])
    assert rejects(found) == [(line, "hash_mismatch", 0, TRANSFER.decode()) for line in range(1, len(wrong) + 1)]
    assert accepted(found)[FUNCTIONS] == ["transfer(address,uint256)"] * 3


def test_the_first_reason_counts() -> None:
    """Of an entry that its reader rejected neither encoding nor text nor hash is checked; without a text there is no hash."""
    entries = [Entry(b"f()", 1, UNKNOWN, b"", PLACEHOLDER), Entry(b"\xff", 2, UNKNOWN, b"\1\2\3\4", BAD_ENTRY)]
    entries += [Entry(b"g()", 3, UNKNOWN, b"", OK), Entry(b"\xff", 4, UNKNOWN, bytes(4))]
    entries += [Entry(b"f(uint7)", 5, UNKNOWN, bytes(4)), Entry(b"", 6, UNKNOWN, keccak256(b""))]
    found = batch_result(entries)
    assert [reject[:3] for reject in rejects(found)] == [
        (1, "placeholder", 0), (2, "bad_entry", 0), (4, "encoding", 1), (5, "bad_width", 3), (6, "empty", 1),
    ]  # fmt: skip
    assert accepted(found)[FUNCTIONS] == ["g()"]


@pytest.mark.parametrize(("declared_kind", "other"), [(FUNCTIONS, EVENTS), (EVENTS, FUNCTIONS)])
def test_every_reject_of_a_batch_is_in_its_declared_collection(declared_kind: int, other: int) -> None:
    """Unless a keyword names another; rejects for encoding and by readers too."""
    texts = [text.encode() for text, _, _ in REJECTED if not text.startswith(("function", "event", "error"))]
    entries = [Entry(text, line, declared_kind) for line, text in enumerate([*texts, b"\xff"], 1)]
    entries += [Entry(b"f()", 1, declared_kind, b"", PLACEHOLDER), Entry(b"f()", 1, declared_kind, bytes(4))]
    found = batch_result(entries, other).rejected.collections.to_pylist()
    assert [Collection.of_name(name).code for name in found] == [declared_kind] * len(entries)


def test_a_reject_is_shown_up_to_the_longest_text() -> None:
    long = b"f" * (MAX_TEXT_BYTES + 10)
    assert rejects(batch_result([Entry(long, 7)])) == [(7, "too_long", MAX_TEXT_BYTES + 1, "f" * MAX_TEXT_BYTES)]


def test_candidates_need_not_name_anything() -> None:
    """A batch without declared kinds, hashes and reader reasons is canonicalised by its texts and the default."""
    batch = Candidates(*columns([b"f(uint)", b"g(", b"E(bool indexed)"]), np.arange(1, 4), 5)
    functions, events = canonicalise(batch, FUNCTIONS), canonicalise(batch, EVENTS)
    assert accepted(functions) == {FUNCTIONS: ["f(uint256)"], EVENTS: ["E(bool)"]}
    assert accepted(events) == {FUNCTIONS: [], EVENTS: ["f(uint256)", "E(bool)"]}
    assert rejects(functions) == rejects(events) == [(2, "unbalanced", 3, "g(")]
    assert functions.file == 5
