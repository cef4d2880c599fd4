"""JavaScript and TypeScript with ABIs in them: TypeChain's factories, wagmi's output, `parseAbi([...])`.

Go's texts and comments are written alike, so abigen's bindings with their ABI as a text are read in the same way.

Lists and objects that are written out are read as JSON values::

    export const abi = [{ type: "function", name: "f", inputs: [PARAMETER], }] as const;

is a value with the list ``[{"type": "function", "name": "f", "inputs": [{"...": null}]}]`` inside. What a spread, a
variable or a call puts into an ABI stands elsewhere; it is one reject, as is an entry with such a part.

TypeChain's types of a contract, `.ts` and `.d.ts`, have `"transfer(address,uint256)": FunctionFragment` and the like. ethers
5's have the text of each function and event, ethers 6's that of each event and of overloaded functions. Of the other
functions they have names and the types of TypeScript, which do not tell those of the ABI, so they are not read.

Invariants
    Nothing is evaluated. An expression that is no literal becomes ``{"...": null, "...1": ..., "...2": ...}`` with
    the lists, objects and texts in it. So a search finds what is written inside a call, a function or a class, and
    no reader takes the expression for a parameter, a type or a name. An object with a spread or a computed key,
    and what is spread into a list, are expressions too.
    One pass; time and memory grow in proportion to the source. Nothing recurses.

Theory
    Tokens are cut by one regular expression. Brackets of all kinds open groups. What stands between two separators
    of a group is an item: a literal, `key: value`, or an expression. A block of code is a group of expressions,
    so the whole source is one value, and no grammar of the language is needed.
    A slash begins a regular expression if an operator or a keyword stands before it; a quote that is not closed on
    its line is a mark. A quote after a backslash is a mark too: where one quote is not closed, each other quote of
    its kind on the line follows a backslash, and would search the rest of the line again. The texts of templates are
    read up to `${`, which opens a group.

Source: ECMAScript 2024, section 12, Lexical Grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.contracts import contract_of_file
from sigdir.pipeline.formats.json_contracts import holds_something, read_value
from sigdir.pipeline.formats.json_reader import DOCUMENT_VALUES
from sigdir.pipeline.source import Source, numbered_matches
from sigdir.signatures.candidates import Entry, ReadTask
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import Kind, Sighting, Witness

ENDINGS = (*(f".{module}{language}s{x}" for module in ("", "c", "m") for language in "jt" for x in ("", "x")), ".go")
_SIGN = re.compile(rb"""\binputs\\?["']?\s*:|["'`](?:function|event|error)\s+[\w$]+\s*\(""")
"""What a source with an ABI has somewhere. A source without it, as most are, is not parsed."""


def is_javascript(source: Source) -> bool:
    """Whether a file's name is that of JavaScript, TypeScript or Go."""
    return source.has_ending(*ENDINGS)


def looks_like(source: Source) -> bool:
    """By its name and by an ABI in it, because a source may begin with anything."""
    if not is_javascript(source) or b"\0" in source.head:  # a film may be called .ts
        return False
    return holds_something(source, source.parsed(_literals, "JavaScript source"))


def read(source: Source) -> Iterator[ReadTask]:
    return read_value(source, source.parsed(_literals, "JavaScript source"))


def _literals(name: str, raw: bytes) -> Any:
    return parse_literals(name, raw) if _SIGN.search(raw) else None


# TypeChain's types.

_TYPED = re.compile(
    rb"""["']([A-Za-z_$][\w$]*+\([^"'\n]*+(?<=\)))["'](?:\s*+\))?:\s*+"""
    rb"""(?:(FunctionFragment|TypedContractMethod\b)|EventFragment|TypedContractEvent\b)"""
)


def has_types(source: Source) -> bool:
    return is_javascript(source) and next(type_entries(source), None) is not None


def type_entries(source: Source) -> Iterator[Entry]:
    function, event = (
        Sighting(kind, Witness.DECLARED, "", contract_of_file(source)) for kind in (Kind.FUNCTION, Kind.EVENT)
    )
    for line, found in numbered_matches(_TYPED, source.parsed(_as_is, "TypeScript source")):
        kind, sighting = (FUNCTIONS, function) if found[2] else (EVENTS, event)
        yield Entry(found[1], line, kind, sighting=sighting)


def _as_is(_name: str, raw: bytes) -> bytes:
    return raw


_EXPRESSION = "..."
_ABI_CALLS = frozenset(["parseAbi", "parseAbiItem"])
"""viem's functions whose arguments are declarations."""

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?<!\\)(?P<text>"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')
    |(?P<word>[A-Za-z_$\u0080-\uffff][\w$]*)
    |(?P<number>\.?\d[\w.]*)
    |(?P<mark>\.\.\.|=>|.)""",
    re.DOTALL | re.VERBOSE,
)
_REGULAR_EXPRESSION = re.compile(r"/(?:[^/\\\n\[]|\\.|\[(?:[^\]\\\n]|\\.)*+\])++/\w*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*+", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|\r\n|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": ""}
_CLOSING = {"[": "]", "{": "}", "(": ")", "${": "}"}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None}
_BEFORE_DIVISION = ")]}"
_BEFORE_EXPRESSION = frozenset(["return", "typeof", "case", "of", "in", "new", "delete", "void", "else", "do"])


class _Part(NamedTuple):
    """One token or group of an item."""

    kind: str
    """text, word, number, mark or group."""
    value: Any


class _Group:
    """A bracket that is open: its items so far, and the parts of the item in work."""

    def __init__(self, opening: str, callee: str = "") -> None:
        self.opening = opening
        self.callee = callee
        """The name of the function that the bracket calls."""
        self.items: list[Any] = []
        self.members: dict[str, Any] = {}
        self.has_unknown_members = False
        self.parts: list[_Part] = []

    def end_item(self) -> None:
        parts, self.parts = self.parts, []
        if self.opening == "{":
            self._end_member(parts)
        elif parts:
            self.items.append(_value(parts))

    def _end_member(self, parts: list[_Part]) -> None:
        parts = _without_readonly(parts)
        if not parts:
            return
        optional = len(parts) > 2 and _is_mark(parts[1], "?")
        at = 2 if optional else 1
        if len(parts) > at and parts[0].kind in ("word", "text", "number") and _is_mark(parts[at], ":"):
            self.members[str(parts[0].value)] = value = _value(parts[at + 1 :])
            self.items.append(value)
        elif len(parts) == 1 and parts[0].kind == "word":
            self.members[parts[0].value] = _expression([])
        else:
            self.has_unknown_members = True
            self.items += _inside(parts)

    def value(self) -> Any:
        """The value of a closed group."""
        if self.opening == "[" or self.callee in _ABI_CALLS:
            return self.items
        if self.opening == "{" and not self.has_unknown_members:
            return self.members
        return _expression(self.items)


def _expression(items: list[Any]) -> dict[str, Any]:
    """The object that stands for what is no literal, with the lists, objects and texts in it."""
    inside = (item for item in items if isinstance(item, list | dict | str))
    return {_EXPRESSION: None} | {f"{_EXPRESSION}{number}": item for number, item in enumerate(inside, 1)}


def _is_mark(part: _Part, mark: str) -> bool:
    return part.kind == "mark" and part.value == mark


def _inside(parts: list[_Part]) -> list[Any]:
    """The groups and texts of an expression."""
    return [part.value for part in parts if part.kind in ("group", "text")]


def _value(parts: list[_Part]) -> Any:
    """The value of an item: a literal, or the object that stands for an expression."""
    literal = _without_type(_without_readonly(parts))
    if len(literal) == 1:
        kind, value = literal[0]
        if kind in ("text", "group"):
            return value
        if kind == "number":
            return int(value) if value.isdecimal() and len(value) < 20 else None
        if value in _WORDS:
            return _WORDS[value]
    if [part.kind for part in literal] == ["mark", "number"] and literal[0].value == "!":  # minified: !0 is true
        return literal[1].value == "0"
    texts, marks = literal[::2], literal[1::2]
    if len(literal) % 2 and all(part.kind == "text" for part in texts) and all(_is_mark(m, "+") for m in marks):
        return "".join(part.value for part in texts)
    return _expression(_inside(parts))


def _without_readonly(parts: list[_Part]) -> list[_Part]:
    """The parts after `readonly`, which is a name if a colon follows."""
    at = 0
    while at + 1 < len(parts) and parts[at] == _Part("word", "readonly") and not _is_mark(parts[at + 1], ":"):
        at += 1
    return parts[at:]


def _without_type(parts: list[_Part]) -> list[_Part]:
    """The parts before `as const`, `as Abi`, `satisfies Abi`."""
    for at, part in enumerate(parts):
        if at and part.kind == "word" and part.value in ("as", "satisfies"):
            return parts[:at]
    return parts


def parse_literals(name: str, raw: bytes) -> Any:
    """All lists and objects of a source as one JSON value; ``name`` is the input's. Raises BadInput if it is too large."""
    if sum(map(raw.count, (b",", b"[", b"{", b"(", b";"))) > DOCUMENT_VALUES:
        raise BadInput(name, f"a JavaScript source of over {DOCUMENT_VALUES:,} values")
    return _Parser(raw.decode("utf-8", "surrogateescape")).value()


class _Parser:
    def __init__(self, code: str) -> None:
        self._code = code
        self._at = 0
        self._divisions_to = 0
        """Up to here a slash begins no regular expression."""
        self._open = [_Group("")]
        self._last = _Part("mark", ";")

    def value(self) -> Any:
        while self._at < len(self._code):
            found = _TOKEN.match(self._code, self._at)
            if found is None:  # a lone surrogate, which no class of the pattern has
                self._at += 1
                continue
            start, self._at = self._at, found.end()
            kind, written = str(found.lastgroup), found[0]
            if kind == "space":
                continue
            if kind == "mark":
                self._mark(written, start)
            else:
                self._take(_Part(kind, _text(written[1:-1]) if kind == "text" else written))
        while len(self._open) > 1:
            self._close()
        self._open[0].end_item()
        return _expression(self._open[0].items)

    def _mark(self, mark: str, start: int) -> None:
        if mark in "[{(":
            self._open.append(_Group(mark, self._last.value if mark == "(" and self._last.kind == "word" else ""))
            self._last = _Part("mark", mark)
        elif mark in "]})":
            self._close_to(mark)
        elif mark in ",;":
            self._open[-1].end_item()
            self._last = _Part("mark", mark)
        elif mark == "`":
            self._template("")
        elif mark == "/" and start >= self._divisions_to and self._may_begin_regular_expression():
            found = _REGULAR_EXPRESSION.match(self._code, start)
            if found:
                self._at = found.end()
            else:  # the line's other slashes are not tried, because each would search the rest of the line again
                line_end = self._code.find("\n", start)
                self._divisions_to = line_end if line_end >= 0 else len(self._code)
            self._take(_Part("number", "0"))
        else:
            self._take(_Part("mark", mark))

    def _take(self, part: _Part) -> None:
        self._open[-1].parts.append(part)
        self._last = part

    def _may_begin_regular_expression(self) -> bool:
        kind, value = self._last
        if kind == "word":
            return value in _BEFORE_EXPRESSION
        return kind == "mark" and value not in _BEFORE_DIVISION

    def _close_to(self, mark: str) -> None:
        """Close the group that the bracket belongs to, and groups inside it that were never closed."""
        for depth in range(len(self._open) - 1, max(0, len(self._open) - 1 - _MAX_UNCLOSED), -1):
            if _CLOSING[self._open[depth].opening] == mark:
                while len(self._open) > depth + 1:
                    self._close()
                is_template = self._open[-1].opening == "${"
                self._close()
                self._last = _Part("mark", mark)
                if is_template:
                    self._template("${")
                return

    def _close(self) -> None:
        group = self._open.pop()
        group.end_item()
        self._open[-1].parts.append(_Part("group", group.value()))

    def _template(self, before: str) -> None:
        """A template from its backtick, or from the end of an expression in it."""
        found = _TEMPLATE.match(self._code, self._at)
        text, self._at = (found[0], found.end()) if found else ("", self._at)
        if self._code.startswith("${", self._at):
            self._at += 2
            self._take(_Part("mark", "${"))
            self._open.append(_Group("${"))
            self._last = _Part("mark", "{")
            return
        self._at += 1
        self._take(_Part("mark", "`") if before else _Part("text", _text(text)))


_MAX_UNCLOSED = 64
"""A closing bracket looks so far back for its opening one. Brackets of types and of text in JSX need not match."""


def _text(written: str) -> str:
    return _ESCAPE.sub(_unescaped, written) if "\\" in written else written


def _unescaped(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    if digits:
        return chr(min(int(digits, 16), 0x10FFFF))
    return _ESCAPED.get(found[4], found[4]) if found[4] else ""
