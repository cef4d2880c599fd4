"""Declarations as people write them, composed from parts: valid ones with the canonical text they
must become, broken ones with the reason and column of their reject.

A part is a list of tokens and its canonical text. A declaration joins parts with any white space
between them. The expected text is composed from the parts and never read from the written form:
nothing here shares code with the grammar under test.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

from sigdir.signatures.collections import EVENTS, FUNCTIONS

ALIASES = {
    "uint": "uint256",
    "int": "int256",
    "byte": "bytes1",
    "fixed": "fixed128x18",
    "ufixed": "ufixed128x18",
}
INTEGER_WIDTHS = range(8, 257, 8)
EXACT = (
    "address", "bool", "string", "bytes", "function",
    *(f"bytes{n}" for n in range(1, 33)),
    *(f"{sign}{n}" for sign in ("uint", "int") for n in INTEGER_WIDTHS),
)  # fmt: skip
"""The type words that are canonical as written, without the fixed-point types."""

VISIBILITY = (
    "external", "public", "internal", "private", "pure", "view", "payable", "nonpayable", "constant",
    "virtual", "override",
)  # fmt: skip
"""The words that may follow a bare signature."""

_RESERVED = frozenset(["memory", "calldata", "storage", "payable", "indexed", "external", "view", "pure", "returns"])
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_$"
_NAME_BYTES = _LETTERS + "0123456789"
_GAPS = ("", " ", "  ", "\t", "\n", "\r\n", " \v\f ")


class Part(NamedTuple):
    """A piece of a declaration: its tokens as written, and its canonical text."""

    tokens: tuple[str, ...]
    canonical: str


class Valid(NamedTuple):
    """A declaration that must be accepted, whatever kind the input declares."""

    written: str
    canonical: str
    keyword: str
    """`function`, `event`, `error`, or nothing."""
    event_like: bool
    """Whether it contains `indexed` or `anonymous`."""

    def collection(self, declared_kind: int, default: int) -> int:
        """The collection it belongs to, from its keyword, else the declared kind, else its own form."""
        if self.keyword:
            return EVENTS if self.keyword == "event" else FUNCTIONS
        return declared_kind or (EVENTS if self.event_like else default)


class Broken(NamedTuple):
    """A declaration that must be rejected, whatever kind the input declares."""

    written: str
    reason: str
    column: int


def spaced(tokens: list[str], gaps: list[str], apart: int = -1) -> tuple[str, list[int]]:
    """Write tokens with gaps around them: the text, and the column (from 1, in bytes) of each token and of the end.

    Two words are at least a space apart, and so is the token ``apart``.
    """
    text, columns = gaps[0], []
    for number, token in enumerate(tokens):
        if number:
            gap = gaps[number % len(gaps)]
            words = text[-1:] in _NAME_BYTES and token[0] in _NAME_BYTES
            text += gap or (" " if words or number == apart else "")
        columns.append(len(text.encode()) + 1)
        text += token
    text += gaps[-1]
    return text, [*columns, len(text.encode()) + 1]


gap_lists = st.lists(st.sampled_from(_GAPS), min_size=1, max_size=5)

words = st.one_of(
    st.sampled_from(["f", "_", "$", "$0", "a9", "transfer", "ETH_$_usd", "uint", "tuples", "eventful", "functions"]),
    st.builds(str.__add__, st.sampled_from(_LETTERS), st.text(_NAME_BYTES, max_size=12)),
)
names = st.one_of(
    words.filter(lambda word: word not in ("function", "event")),
    st.sampled_from(["constructor", "fallback", "receive", "error", "returns", "indexed", "storage", "anonymous"]),
)
"""Names of declarations: any identifier except the two keywords that a collection rejects."""

parameter_names = words.filter(lambda word: word not in _RESERVED)

_arguments = st.sampled_from(
    [(), ("1",), ("A", ",", "B"), ("(", "x", ")", ",", "(", ")"), ('"é"',), ("uint", "a")]
).map(lambda tokens: ("(", *tokens, ")"))
_returns = st.just(()) | _arguments.map(lambda tokens: ("returns", *tokens))


def _plain(word: str) -> Part:
    return Part((word,), word)


_function_types = st.builds(
    lambda arguments, words, returns: Part(("function", *arguments, *words, *returns), "function"),
    _arguments,
    st.lists(st.sampled_from(["external", "view", "pure", "payable"]), max_size=2),
    _returns,
)

_fixed_words = st.builds(
    lambda sign, width, decimals: _plain(f"{sign}{width}x{decimals}"),
    st.sampled_from(["fixed", "ufixed"]),
    st.sampled_from(INTEGER_WIDTHS),
    st.integers(1, 80),
)

elementary_types = st.one_of(
    st.sampled_from([Part((alias,), canonical) for alias, canonical in ALIASES.items()]),
    st.sampled_from(EXACT).map(_plain),
    _fixed_words,
    st.just(Part(("address", "payable"), "address")),
    _function_types,
)


@st.composite
def _array_types(draw: st.DrawFn, elements: st.SearchStrategy[Part]) -> Part:
    tokens, canonical = draw(elements)
    for length in draw(st.lists(st.one_of(st.none(), st.integers(1, 10**20)), min_size=1, max_size=3)):
        digits = () if length is None else (str(length),)
        tokens += ("[", *digits, "]")
        canonical += "[" + "".join(digits) + "]"
    return Part(tokens, canonical)


@st.composite
def _parameters(draw: st.DrawFn, types: st.SearchStrategy[Part], *, indexed: bool = False) -> Part:
    """A type and what may follow it, in any order."""
    tokens, canonical = draw(types)
    following = ["indexed"] if indexed else []
    following += draw(st.lists(st.sampled_from(["memory", "calldata", "payable"]), max_size=1))
    following += draw(st.lists(parameter_names, max_size=1))
    return Part((*tokens, *draw(st.permutations(following))), canonical)


def _listed(parts: list[Part]) -> Part:
    """Parts as a list in parentheses."""
    tokens = [token for part in parts for token in (",", *part.tokens)]
    return Part(("(", *tokens[1:], ")"), "(" + ",".join(part.canonical for part in parts) + ")")


@st.composite
def _tuple_types(draw: st.DrawFn, members: st.SearchStrategy[Part]) -> Part:
    """A tuple with or without the word `tuple`, its members named or not, possibly empty."""
    tokens, canonical = _listed(draw(st.lists(_parameters(members), max_size=3)))
    return Part(("tuple", *tokens) if draw(st.booleans()) else tokens, canonical)


types = st.recursive(elementary_types, lambda inner: st.one_of(_array_types(inner), _tuple_types(inner)), max_leaves=6)

_parameter = _parameters(types)


@st.composite
def _tails(draw: st.DrawFn, keyword: str) -> tuple[str, ...]:
    """What may follow the parameter list of a function or of a bare signature."""
    known = st.sampled_from(VISIBILITY) | (parameter_names.filter("anonymous".__ne__) if keyword else st.nothing())
    words = draw(st.lists(st.tuples(known, st.just(()) | _arguments), max_size=3))
    return (*(token for word, arguments in words for token in (word, *arguments)), *draw(_returns))


@st.composite
def valid(draw: st.DrawFn) -> Valid:
    """A declaration, or a bare signature, with any of its optional parts."""
    keyword = draw(st.sampled_from(["", "", "function", "event", "error"]))
    anonymous = keyword in ("", "event") and draw(st.integers(0, 3)) == 0
    parameters, indexed = [], 0
    for _ in range(draw(st.integers(0, 5))):
        mark = indexed < (4 if anonymous else 3) and draw(st.booleans())
        parameters.append(draw(_parameters(types, indexed=mark)))
        indexed += mark
    name = draw(names)
    written, canonical = _listed(parameters)
    head = [*([keyword] if keyword else []), name, *written]
    tail = ["anonymous"] if anonymous else []
    if keyword in ("", "function") and not anonymous:
        tail += draw(_tails(keyword))
    tail += draw(st.sampled_from([(), (";",)]))
    # After a bare signature a space must come first.
    apart = len(head) if tail and tail[0] != ";" and not keyword else -1
    text, _ = spaced([*head, *tail], draw(gap_lists), apart)
    return Valid(text, name + canonical, keyword, indexed > 0 or anonymous)


END = -1
"""The error is noticed where the text ends."""

BadPart = tuple[tuple[str, ...], str, int]
"""Tokens, reason, index of the token where the error is noticed."""


def _bad_parts(reason: str, *texts: str) -> list[BadPart]:
    """A part of each text; a bar stands before the token where the error is noticed, which is at the end without one."""
    found: list[BadPart] = []
    for text in texts:
        before, bar, after = text.partition("|")
        tokens = (*before.split(), *after.split())
        found.append((tokens, reason, len(before.split()) if bar else END))
    return found


BAD_PARAMETERS = [
    *_bad_parts(
        "unknown_type", "|foo", "|UINT256", "|Bool", "|uint256x", "|uint_8", "|bytesN", "|tuple", "|enum", "|fixedx18",
        "|fixed8X8", "|$", "|,", "bool , |,", "uint , |)", "|[ 3 ]", "|é",
    ),
    *_bad_parts(
        "bad_width", "|uint0", "|uint7", "|uint08", "|uint264", "|uint1000", "|int1", "|int257", "|bytes0", "|bytes33",
        "|bytes032", "|fixed128", "|fixed128x", "|fixed128x0", "|fixed128x81", "|fixed128x018", "|fixed7x18", "|ufixed264x1",
    ),
    *_bad_parts(
        "bad_array", "uint |[ 0 ]", "uint |[ 01 ]", "uint |[ -1 ]", "uint |[ n ]", "uint |[ 0x10 ]", "uint |[ 1_000 ]",
        "uint |[ 1 2 ]", "( ) [ ] |[ )", "uint [ ] |]", "uint a |[ 3 ]",
    ),
    *_bad_parts(
        "library_type", "|L.T", "|L.T storage s", "|mapping ( uint => uint )", "|T storage", "|T [ ] [ 3 ] storage s",
        "uint [ ] |storage s", "( bool ) |storage", "string s |storage",
    ),
    *_bad_parts("bad_name", "uint a |b", "uint |9a", "uint |é", "uint |*", "uint a |= 5", "( ) |9"),
]  # fmt: skip

# Beginnings and ends of a declaration `f(bool)`.
BAD_ENDS = [
    *_bad_parts(
        "bad_name", "f |[ )", "|( bool )", "|9f ( bool )", "|é ( )", "|0xa9059cbb", "function |9f ( )", "modifier |f ( )",
        "f |- g ( )", "function |function ( bool )", "error |function ( bool )", "event |event ( bool )",
    ),
    *_bad_parts(
        "unbalanced", "f |)", "f ( bool ) |)", "function f ( bool ) only ( x", "f ( function ( uint",
        "f ( function ( ) returns uint )",
    ),
    *_bad_parts(
        "bad_entry", "f", "f ( bool ) |( )", "function f ( bool ) |{", "function f ( bool ) |9x", "function f ( bool ) returns",
        "function f ( bool ) returns |uint", "event f ( bool ) |public", "error f ( bool ) |view", "f ( bool ) ; |;",
        "f ( bool ) ; |view",
    ),
]  # fmt: skip


def broken_by(part: BadPart, before: list[str], after: tuple[str, ...], gaps: list[str]) -> Broken:
    """A declaration of these tokens, with one that is wrong among them."""
    tokens, reason, noticed = part
    text, columns = spaced([*before, *tokens, *after], gaps)
    return Broken(text, reason, columns[noticed if noticed == END else len(before) + noticed])


@st.composite
def _opened(draw: st.DrawFn) -> list[str]:
    """A valid declaration up to some parameter, which may be inside of tuples."""
    tokens = [*draw(st.sampled_from([(), ("function",), ("event",), ("error",)])), draw(names)]
    for depth in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            tokens.append("tuple")
        tokens.append("(")
        for part in draw(st.lists(_parameter, max_size=2)):
            tokens += [*part.tokens, ","]
    return tokens


_after = st.sampled_from([(), (")",), (")", ")"), (",", "bool", ")")])
_never_closed: BadPart = ((), "unbalanced", END)


def broken() -> st.SearchStrategy[Broken]:
    """A declaration with one error, anywhere in it."""
    return st.one_of(
        st.builds(broken_by, st.sampled_from(BAD_PARAMETERS), _opened(), _after, gap_lists),
        st.builds(broken_by, st.just(_never_closed), _opened(), st.just(()), gap_lists),
        st.builds(broken_by, st.sampled_from(BAD_ENDS), st.just([]), st.just(()), gap_lists),
    )


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid declaration with one to three bytes removed, inserted or changed."""
    text = bytearray(draw(valid()).written.encode())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        width = draw(st.integers(0, 1))  # bytes replaced
        put = st.sampled_from("()[],;. \t\n0123x8aefnst$_{\0é").map(str.encode) | st.binary(max_size=1)
        text[at : at + width] = draw(put)
    return bytes(text)


def any_text() -> st.SearchStrategy[bytes]:
    """Valid, broken, mutated, and arbitrary bytes."""
    return st.one_of(
        valid().map(lambda declaration: declaration.written.encode()),
        broken().map(lambda declaration: declaration.written.encode()),
        mutated(),
        st.binary(max_size=40),
        st.text("fint(),[]3 ;", max_size=20).map(str.encode),
    )
