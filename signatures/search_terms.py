"""The grammar of searches by structure: a name, a parameter list, and terms with a keyword, in any order.

::

    query     = term *( blank term )
    term      = name / "(" list ")" / keyword ":" ( value / DQUOTE value DQUOTE )
    name      = 1*( letter / digit / "_" / "$" / "*" / "?" )
    list      = [ item *( "," item ) ]
    item      = type / "?" / "*"

A name without wildcards is a piece of the name. With ``*``, any run of characters, or ``?``, one, the whole name fits.
In a list ``?`` is one parameter of any type and ``*`` any number of them. Types are read as in a declaration: ``uint``
is ``uint256``, and names beside them are left out. All terms hold together. A value with blanks stands in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sigdir.signatures import standards
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import GrammarError, normalise
from sigdir.signatures.types import KINDS, BadTypeList, split_types

MAX_TERMS_CHARACTERS = 1000
_MAX_TYPES = 8
MANY = 1 << 62
"""More than anything is counted."""


class Shape(NamedTuple):
    """A condition on a parameter list. ``items`` are canonical types, ``?`` and ``*``; None for any list.

    ``least`` and ``most`` bound the number of parameters, inclusive. Each of ``types`` stands somewhere.
    """

    items: tuple[str, ...] | None = None
    least: int = 0
    most: int = MANY
    types: tuple[str, ...] = ()


class SearchTerms(NamedTuple):
    """What a search asks for. ``name`` is a pattern for the whole name, "" for any, ``source`` a piece of a label.

    Times are microseconds since 1970, ``usage`` bounds how often the hash is used, inclusive.
    """

    name: str = ""
    shape: Shape = Shape()
    kind: Kind = Kind.UNKNOWN
    witness: Witness = Witness.SOLVED
    standard: str = ""
    source: str = ""
    usage: tuple[int, int] = (0, MANY)
    since: int | None = None
    before: int | None = None
    understood: tuple[str, ...] = ()
    """The terms in words."""

    @property
    def piece(self) -> str:
        """What the name begins with, ends with or has; "" where it says more."""
        piece = self.name.strip("*")
        return "" if "*" in piece or "?" in piece else piece


class BadSearch(SigdirError, ValueError):
    """A search that cannot be read: ``problem`` is a phrase, ``column`` counts from 1."""

    def __init__(self, problem: str, column: int) -> None:
        super().__init__(f"{problem} at column {column}")
        self.problem, self.column = problem, column


_KEYWORD = re.compile(r"[A-Za-z]{1,20}:(?=\S)")
_TERM = re.compile(r'\s+|(?P<keyword>[A-Za-z]{1,20}):(?:"(?P<quoted>[^"]+)"|(?P<value>\S+))|(?P<name>[A-Za-z0-9_$*?]+)')
_LIST_APART = re.compile(r"[A-Za-z0-9_$]+\s+\((?!.*\breturns\b).*\)")


def is_structured(entered: str) -> bool:
    """Whether an input is a search by structure, and not a hash, a text or a piece of one.

    No text has a colon, so an unknown keyword is one too, and its error names it.
    """
    if entered.startswith("(") or _LIST_APART.fullmatch(entered):
        return True
    return any(c in entered for c in "*?") or any(map(_KEYWORD.match, entered.split()))


def parse_terms(entered: str) -> SearchTerms:
    """Read a search; raises BadSearch."""
    if len(entered) > MAX_TERMS_CHARACTERS:
        raise BadSearch(f"more than {MAX_TERMS_CHARACTERS} characters", MAX_TERMS_CHARACTERS + 1)
    read: dict[str, Any] = {"type": ()}
    understood = []
    for keyword, value, column in _tokens(entered):
        if keyword in read and keyword != "type":
            raise BadSearch(f"a second {keyword}", column)
        try:
            found = _TERMS[keyword][0](value)
        except BadSearch as error:
            raise BadSearch(error.problem, column + error.column - 1) from None
        understood.append(_in_words(keyword, value, found))
        read[keyword] = found if keyword != "type" else (*read["type"], found)
        if len(read["type"]) > _MAX_TYPES:
            raise BadSearch(f"more than {_MAX_TYPES} types", column)
    least, most = read.pop("params", (0, MANY))
    shape = Shape(read.pop("parameters", None), least, most, read.pop("type"))
    return SearchTerms(shape=shape, understood=tuple(understood), **read)


def _tokens(entered: str) -> Iterator[tuple[str, str, int]]:
    """The terms with their keywords, and the columns of their values."""
    at = 0
    while at < len(entered):
        found = _TERM.match(entered, at)
        if entered[at] == "(":
            end = _list_end(entered, at)
            yield "parameters", entered[at + 1 : end], at + 2
            at = end + 1
        elif found is None:
            raise BadSearch(f"unexpected {entered[at]!r}", at + 1)
        else:
            if found.lastgroup:
                word = found["keyword"] or "name"
                if word not in _KEYWORDS:
                    raise BadSearch(f"unknown keyword {word!r}; the keywords are {', '.join(_KEYWORDS)}", at + 1)
                yield word, found[found.lastgroup], found.start(found.lastgroup) + 1
            at = found.end()


def _list_end(entered: str, at: int) -> int:
    depth = 0
    for place in range(at, len(entered)):
        depth += (entered[place] == "(") - (entered[place] == ")")
        if depth == 0:
            return place
    raise BadSearch("no closing parenthesis for the one", at + 1)


def _in_words(keyword: str, value: str, found: Any) -> str:
    """A term, of which ``found`` was read."""
    if keyword == "name" and found != value:
        return f"the name has {value}"
    if keyword == "parameters":
        begins = found[-1:] == ("*",) and found.count("*") == 1 < len(found)
        return f"the parameters {'begin with' if begins else 'are'} ({','.join(found[:-1] if begins else found)})"
    return _TERMS[keyword][1].format(value, found)


def _name(value: str) -> str:
    return value if "*" in value or "?" in value else f"*{value}*"


def _parameters(value: str) -> tuple[str, ...]:
    found, column = [], 1
    try:
        items = split_types(value) if value.strip() else ()
    except BadTypeList as error:
        raise BadSearch(error.problem, max(error.column, 1)) from None
    for item in items:
        found.append(_item(item, column))
        column += len(item) + 1
    return tuple(found)


def _item(item: str, column: int) -> str:
    column += len(item) - len(item.lstrip())
    item = item.strip()
    if item in ("*", "?"):
        return item
    try:
        text = normalise(f"f({item})").text
    except GrammarError as error:
        place = max(1, min(error.column - 2, len(item)))
        raise BadSearch(f"{error.reason.replace('_', ' ')}: {item[:40]!r} is no type", column + place - 1) from None
    if text == "f()":
        raise BadSearch("a type, ? or * is missing", column)
    return text[2:-1]


def _type(value: str) -> str:
    type = _item(value, 1)
    if type in ("*", "?"):
        raise BadSearch("a type, please", 1)
    return type


def _range(value: str) -> tuple[int, int]:
    found = _RANGE.fullmatch(value)
    if not found:
        raise BadSearch("a number as 3, or a range as 2..4, 3.., ..4, >2 or <5, please", 1)
    above, below, least, dots, most = found.groups()
    if above or below:
        return (int(above) + 1, MANY) if above else (0, int(below) - 1)
    return int(least or 0), (int(most) if most else MANY) if dots else int(least)


_RANGE = re.compile(r">([0-9]{1,18})|<([1-9][0-9]{0,17})|([0-9]{1,18}|(?=\.\.[0-9]))(?:(\.\.)([0-9]{1,18})?)?")


def _choice(choices: Mapping[str, Any]) -> Callable[[str], Any]:
    def read(value: str) -> Any:
        if value not in choices:
            raise BadSearch(f"one of {', '.join(choices)}, please", 1)
        return choices[value]

    return read


def _standard(value: str) -> str:
    if value.lower() not in map(str.lower, standards.sources().values()):
        known = "SQL's view standards has the names; one with blanks stands in quotes"
        raise BadSearch(f"unknown standard {value[:40]!r}; {known}", 1)
    return value


def _time(value: str) -> int:
    try:
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise BadSearch("a day as 2026-11-21, or a time as 2026-11-21T08:00Z, please", 1) from None


_TERMS: dict[str, tuple[Callable[[str], Any], str]] = {
    "name": (_name, "the name is like {}"),
    "parameters": (_parameters, ""),
    "type": (_type, "a type is {1}"),
    "params": (_range, "the number of parameters is {}"),
    "kind": (_choice(KINDS), "the kind is {}"),
    "witness": (_choice({one.name.lower(): one for one in Witness}), "the witness is {} or better"),
    "standard": (_standard, "the standard is {}"),
    "source": (str, "a source that names it has {} in its label"),
    "usage": (_range, "it is used {} times"),
    "since": (_time, "first seen since {}"),
    "before": (_time, "first seen before {}"),
}
"""What reads the value of each keyword, and the term in words."""
_KEYWORDS = sorted(_TERMS.keys() - {"parameters"})  # a list has no keyword: parameters:(address) would be one tuple
