"""Declarations and canonical texts as trees: the reader for one text, where ``grammar.py`` has checked it.

::

    declaration = [ keyword ] name "(" list ")" [ mutability ] [ "returns (" list ")" ] [ "anonymous" ]
    list        = [ parameter *( "," parameter ) ]
    parameter   = ( word / "(" list ")" ) *( "[" *digit "]" ) [ "indexed" ] [ name ]

``parse_declaration`` reads a spelled declaration (``grammar_rows.py`` has its form), ``canonical_declaration`` and
``parameter_types`` read a canonical text, which has no words beside its types. Which words and widths exist is the
grammar's subject.

The types of ``parameter_types`` are for decoding: they are bounded in depth and length because they are walked by
recursion, and each of their values takes at least a word of data: tuples and arrays of no elements are refused.
``split_types`` cuts a list into the texts of its types, however deep they nest.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sigdir.signatures.errors import SigdirError
from sigdir.signatures.evidence import Kind

MAX_DECLARATION_BYTES = 16_384
MAX_NAME_BYTES = 128
MAX_TUPLES = 32
"""Tuples within each other in a declaration, with its own list."""
MAX_DEPTH = 16
"""Tuples and arrays within each other in a type that is decoded."""
MAX_TEXT = 8192
"""Characters of a text that is decoded."""
_MAX_DIGITS = 18  # of an array's length

RESERVED = frozenset(["calldata", "indexed", "memory", "payable", "storage"])
"""Words that cannot be a parameter's name, because they mean something where a name stands."""
MUTABILITIES = frozenset(["view", "pure", "payable"])
KINDS = {"function": Kind.FUNCTION, "event": Kind.EVENT, "error": Kind.ERROR}
"""The kinds by their keywords."""


class BadDeclaration(SigdirError, ValueError):
    """A text that is no spelled declaration."""


class BadTypeList(BadDeclaration):
    """A type list that cannot be read: ``problem`` is a phrase, ``column`` counts from 1, 0 for the whole text."""

    def __init__(self, problem: str, text: str, column: int = 0) -> None:
        shown = text if len(text) <= 200 else text[:200] + "..."
        super().__init__(f"{problem} at column {column} in {shown!r}" if column else f"{problem}: {shown!r}")
        self.problem = problem
        self.column = column


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a parameter, of a value that is returned, or of a component, with its name where one is declared.

    It is a tuple of ``members``, an array of ``element``, or an elementary type.
    """

    text: str
    """As in a canonical text: `(address,uint256)[]`."""
    name: str = ""
    indexed: bool = False
    components: tuple[Type, ...] | None = None
    """Those of a tuple, or of the tuples in an array; None without tuples."""

    @property
    def is_array(self) -> bool:
        return self.text.endswith("]")

    @property
    def members(self) -> tuple[Type, ...] | None:
        return None if self.is_array else self.components

    @property
    def element(self) -> Type | None:
        """That of an array, without a name."""
        return Type(self.text[: self.text.rindex("[")], components=self.components) if self.is_array else None

    @property
    def length(self) -> int | None:
        """That of an array; None for arrays of any length."""
        digits = self.text[self.text.rindex("[") + 1 : -1] if self.is_array else ""
        return int(digits) if digits else None

    @property
    def arrays(self) -> str:
        """What makes it an array of words or tuples: `[2][]`, "" for none."""
        _, bracket, rest = self.text[self.text.rfind(")") + 1 :].partition("[")
        return bracket + rest

    @property
    def has_names(self) -> bool:
        """Whether a component has a name."""
        return any(one.name or one.has_names for one in self.components or ())

    def __str__(self) -> str:
        """As spelled in a declaration."""
        written = self.text
        if self.components is not None:
            written = f"({', '.join(map(str, self.components))}){self.arrays}"
        return written + (" indexed" if self.indexed else "") + (f" {self.name}" if self.name else "")

    def abi(self, of_event: bool = False) -> dict[str, Any]:
        """As in an ABI entry. The parameters of an event have ``indexed``."""
        entry: dict[str, Any] = {"name": self.name, "type": self.text}
        if self.components is not None:
            entry |= {"type": f"tuple{self.arrays}", "components": [component.abi() for component in self.components]}
        return entry | {"indexed": self.indexed} if of_event else entry


Spelled = Callable[[Type], str]


@dataclass(frozen=True, slots=True)
class Declaration:
    """A parsed declaration."""

    kind: Kind
    """UNKNOWN for a text without a keyword."""
    name: str
    inputs: tuple[Type, ...] = ()
    outputs: tuple[Type, ...] = ()
    """What a function returns."""
    mutability: str = "nonpayable"
    """Of a function: view, pure, payable or nonpayable."""
    anonymous: bool = False

    @property
    def text(self) -> str:
        """The canonical text: `transfer(address,uint256)`."""
        return f"{self.name}({','.join(one.text for one in self.inputs)})"

    @property
    def indexed(self) -> tuple[bool, ...]:
        """For each parameter whether it is a topic of its event."""
        return tuple(one.indexed for one in self.inputs)

    def __str__(self) -> str:
        """As spelled: the text that was parsed."""
        return self.written(str, str)

    def written(self, taken: Spelled, returned: Spelled, visibility: str = "") -> str:
        """The declaration, with its parameters and what it returns spelled by these functions."""
        keyword = f"{self.kind.name.lower()} " if self.kind != Kind.UNKNOWN else ""
        text = f"{keyword}{self.name}({', '.join(map(taken, self.inputs))}){visibility}"
        if self.mutability != "nonpayable":
            text += f" {self.mutability}"
        if self.outputs:
            text += f" returns ({', '.join(map(returned, self.outputs))})"
        return text + (" anonymous" if self.anonymous else "")

    def abi_entry(self) -> dict[str, Any]:
        """The entry of an ABI, as JSON has it. A declaration without a keyword becomes a function."""
        inputs = [one.abi(self.kind == Kind.EVENT) for one in self.inputs]
        entry = {"type": self.kind.name.lower(), "name": self.name, "inputs": inputs}
        if self.kind == Kind.EVENT:
            return entry | {"anonymous": self.anonymous}
        if self.kind == Kind.ERROR:
            return entry
        outputs = [one.abi() for one in self.outputs]
        return entry | {"type": "function", "outputs": outputs, "stateMutability": self.mutability}


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


def parse_declaration(text: str) -> Declaration:
    """A declaration in the form of ``grammar_rows.py``; raises BadDeclaration."""
    found = _Reader(text, with_words=True).declaration()
    if str(found) != text:
        raise BadDeclaration(f"not a spelled declaration: {text[:200]!r}")
    return found


def parsed_declaration(text: str) -> Declaration | None:
    """The same; None for what is no spelled declaration."""
    try:
        return parse_declaration(text)
    except BadDeclaration:
        return None


def canonical_declaration(text: str, kind: Kind) -> Declaration:
    """A canonical text as a declaration without names; raises BadDeclaration if it is too long or nested too deeply."""
    found = _Reader(text, with_words=False).declaration()
    return Declaration(kind, found.name, found.inputs)


def parameter_types(text: str) -> tuple[Type, ...]:
    """The types of a canonical text's parameters; raises BadTypeList."""
    if len(text) > MAX_TEXT:
        raise BadTypeList(f"a text of {len(text)} characters; at most {MAX_TEXT} are decoded", text)
    reader = _Reader(text, with_words=False, at=text.find("(") + 1)
    parameters, _ = reader.parameters(1)
    if reader.undecodable is not None:
        raise reader.undecodable
    return parameters


_unnamed = lru_cache(maxsize=1024)(Type)  # a long text has the same few words again and again

NAME_PATTERN = r"[A-Za-z_$][A-Za-z0-9_$]*"
_NAME = re.compile(NAME_PATTERN)
_TOKENS = re.compile(r"[(),]|[A-Za-z0-9_$]+|\[\d*\]|.", re.DOTALL)
_SPELLED_TOKENS = re.compile(r" *([(),]|[A-Za-z0-9_$]+|\[\d*\]|[^ ])")
_WORD = re.compile(r"[a-z]+(?:\d+(?:x\d+)?)?")


class _Reader:
    """Reads the tokens of one text from left to right; raises BadTypeList where it cannot go on.

    ``undecodable`` is the first reason why no contract takes the parameters, or why they are not decoded.
    """

    def __init__(self, text: str, *, with_words: bool, at: int = 0) -> None:
        if with_words and len(text) > MAX_DECLARATION_BYTES:
            raise BadDeclaration(f"a declaration of over {MAX_DECLARATION_BYTES:,} characters")
        self._text, self._with_words = text, with_words
        self._tokens = (_SPELLED_TOKENS if with_words else _TOKENS).finditer(text, at)
        self.undecodable: BadTypeList | None = None
        self._column, self._next = 0, ""
        self._take()

    def _take(self) -> str:
        """The next token; the one after it is ``_next``, which is empty at the end."""
        taken, token = self._next, next(self._tokens, None)
        self._next, self._column = (
            (token[token.lastindex or 0], token.start(token.lastindex or 0) + 1) if token else ("", len(self._text))
        )
        return taken

    def _bad(self, problem: str) -> BadTypeList:
        return self.undecodable or BadTypeList(problem, self._text, self._column)

    def _expect(self, token: str) -> None:
        if self._next != token:
            raise self._bad("a parenthesis that is not closed" if not self._next else f"unknown type {self._next!r}")
        self._take()

    def _takes(self, word: str) -> bool:
        return self._next == word and bool(self._take())

    def declaration(self) -> Declaration:
        kind, name = Kind.UNKNOWN, self._take()
        if self._with_words and self._next != "(":
            kind, name = KINDS.get(name, Kind.UNKNOWN), self._take()
        if not _NAME.fullmatch(name):
            raise self._bad("no name")
        self._expect("(")
        inputs, _ = self.parameters(1)
        mutability = self._take() if self._next in MUTABILITIES else "nonpayable"
        outputs: tuple[Type, ...] = ()
        if self._takes("returns"):
            self._expect("(")
            outputs, _ = self.parameters(1)
        anonymous = self._takes("anonymous")
        if self._next:
            raise self._bad(f"{self._next!r} after the list")
        return Declaration(kind, name, inputs, outputs, mutability, anonymous)

    def parameters(self, level: int) -> tuple[tuple[Type, ...], int]:
        """The parameters up to the parenthesis that closes their list, and how deep their types nest."""
        found: list[Type] = []
        depth = 0
        if self._next != ")":
            while not found or self._takes(","):
                parameter, nested = self._parameter(level)
                found.append(parameter)
                depth = max(depth, nested)
        self._expect(")")
        return tuple(found), depth

    def _parameter(self, level: int) -> tuple[Type, int]:
        components, depth, column = None, 0, self._column
        if self._next == "(":
            self._check_depth(level, column)
            if level == MAX_TUPLES:
                raise self._bad(f"tuples nested more than {MAX_TUPLES} deep")
            self._take()
            components, depth = self.parameters(level + 1)
            if not components:
                self._note("a tuple without members, which no contract takes", column)
            text, depth = f"({','.join(component.text for component in components)})", depth + 1
            self._check_depth(depth, column)
        elif _WORD.fullmatch(self._next):
            text = self._take()
        else:
            raise self._bad(f"unknown type {self._next!r}" if self._next else "a parenthesis that is not closed")
        while self._next[:1] == "[" and self._next != "[":
            self._check_length(self._next[1:-1])
            depth += 1
            self._check_depth(depth, self._column)
            text += self._take()
        indexed = self._with_words and self._takes("indexed")
        name = self._take() if self._with_words and _NAME.fullmatch(self._next) else ""
        is_plain = components is None and not (name or indexed)
        return _unnamed(text) if is_plain else Type(text, name, indexed, components), depth

    def _check_length(self, digits: str) -> None:
        if len(digits) > _MAX_DIGITS:
            self._note(f"an array whose length has {len(digits)} digits", self._column)
        elif digits and not int(digits):
            self._note("an array without elements, which no contract takes", self._column)

    def _check_depth(self, depth: int, column: int) -> None:
        if depth > MAX_DEPTH:
            self._note(f"nested more than {MAX_DEPTH} deep", column)

    def _note(self, problem: str, column: int) -> None:
        self.undecodable = self.undecodable or BadTypeList(problem, self._text, column)


def is_parameter_name(name: Any) -> bool:
    """Whether a JSON value is a name that a declaration can have."""
    if not isinstance(name, str) or name in RESERVED or len(name) > MAX_NAME_BYTES:
        return False
    return _NAME.fullmatch(name) is not None
