"""Nested type lists: the one parser of the parameters of a signature.

::

    list      = [ type *( "," type ) ]
    type      = ( word / "(" list ")" ) *( "[" *digit "]" )

``split_types`` cuts a list into the texts of its types, however deep they nest. ``parameter_types`` gives the
types of a canonical text as a tree, bounded in depth and length because it is walked by recursion. Each of its
values takes at least a word of data: tuples and arrays of no elements are refused. Which words and widths exist is the
grammar's subject (``grammar.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sigdir.signatures.errors import SigdirError

MAX_DEPTH = 16
"""Tuples and arrays within each other."""
MAX_TEXT = 8192
"""Characters of a text."""
_MAX_DIGITS = 18  # of an array's length


class BadTypeList(SigdirError, ValueError):
    """A type list that cannot be read: ``problem`` is a phrase, ``column`` counts from 1, 0 for the whole text."""

    def __init__(self, problem: str, text: str, column: int = 0) -> None:
        shown = text if len(text) <= 200 else text[:200] + "..."
        super().__init__(f"{problem} at column {column} in {shown!r}" if column else f"{problem}: {shown!r}")
        self.problem = problem
        self.column = column


@dataclass(frozen=True, slots=True)
class Type:
    """A canonical type: a tuple of ``members``, an array of ``element``, or an elementary type.

    ``length`` is None for arrays of any length; ``depth`` counts the tuples and arrays within each other.
    """

    text: str
    members: tuple[Type, ...] | None = None
    element: Type | None = None
    length: int | None = None
    depth: int = 0


_MARKS = re.compile("[(),]")


def split_types(text: str) -> list[str]:
    """Cut a type list at the commas that stand in no tuple; raises BadTypeList. An empty list is one empty text."""
    found, depth, start = [], 0, 0
    for mark in _MARKS.finditer(text):
        if mark[0] == "," and depth == 0:
            found.append(text[start : mark.start()])
            start = mark.end()
        depth += (mark[0] == "(") - (mark[0] == ")")
        if depth < 0:
            raise BadTypeList("a parenthesis that closes none", text, mark.end())
    if depth:
        raise BadTypeList("a parenthesis that is not closed", text, len(text))
    return [*found, text[start:]]


@lru_cache(maxsize=4096)
def one_type(kind: str) -> str:
    """The type as written; raises ValueError where it is empty, several types or not balanced.

    The grammar decides whether it is a type. Cached, because a whole dump has a few thousand types.
    """
    if split_types(kind) != [kind] or not kind:
        raise ValueError("not one type")
    return kind


_TOKENS = re.compile(r"[(),]|[A-Za-z0-9_$]+|\[\d*\]|.", re.DOTALL)
_WORD = re.compile(r"[a-z]+(?:\d+(?:x\d+)?)?")


def parameter_types(text: str) -> tuple[Type, ...]:
    """The types of a canonical text's parameters; raises BadTypeList."""
    if len(text) > MAX_TEXT:
        raise BadTypeList(f"a text of {len(text)} characters; at most {MAX_TEXT} are decoded", text)
    tokens = _TOKENS.finditer(text, text.find("(") + 1)
    return _members(tokens, text, 1)


def _members(tokens: Iterator[re.Match[str]], text: str, depth: int) -> tuple[Type, ...]:
    """The types up to the parenthesis that closes their list; the one that opened it was read."""
    found: list[Type] = []
    for token in tokens:
        word, column = token[0], token.start() + 1
        if word == ")":
            return tuple(found)
        if word == "(":
            _check_depth(depth, text, column)
            found.append(_tuple_type(_members(tokens, text, depth + 1), text, column))
        elif word[0] == "[" and word[-1] == "]" and found:
            found[-1] = _array_type(found[-1], word, text, column)
        elif _WORD.fullmatch(word):
            found.append(_word_type(word))
        elif word != ",":
            raise BadTypeList(f"unknown type {word!r}", text, column)
    raise BadTypeList("a parenthesis that is not closed", text, len(text))


_word_type = lru_cache(maxsize=1024)(Type)  # a long text has the same few words again and again


def _tuple_type(members: tuple[Type, ...], text: str, column: int) -> Type:
    if not members:
        raise BadTypeList("a tuple without members, which no contract takes", text, column)
    depth = 1 + max(member.depth for member in members)
    _check_depth(depth, text, column)
    return Type("(" + ",".join(member.text for member in members) + ")", members, depth=depth)


def _array_type(element: Type, brackets: str, text: str, column: int) -> Type:
    length, depth = brackets[1:-1], element.depth + 1
    if len(length) > _MAX_DIGITS:
        raise BadTypeList(f"an array whose length has {len(length)} digits", text, column)
    if length and not int(length):
        raise BadTypeList("an array without elements, which no contract takes", text, column)
    _check_depth(depth, text, column)
    return Type(element.text + brackets, element=element, length=int(length) if length else None, depth=depth)


def _check_depth(depth: int, text: str, column: int) -> None:
    if depth > MAX_DEPTH:
        raise BadTypeList(f"nested more than {MAX_DEPTH} deep", text, column)
