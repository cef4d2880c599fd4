"""Vyper code as statements: logical lines with their indentation, without comments, line breaks in brackets and bodies.

A statement is the text of its tokens, separated by spaces. Vyper's statements are those of Python, apart from
`struct X:`, `event X:`, `interface X:`, `flag X:`, so Python's ``ast`` parses the rest. Strings become ``""``: nothing
in them has a meaning for a signature, and ``ast`` warns about their escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_BYTES = 1 << 22
"""The largest source. The largest contracts have 200 kB."""
MAX_TOKENS = 4_096
"""The most tokens of a statement that is parsed. ``ast`` recurses, so deeper and longer ones are refused."""
MAX_DEPTH = 32

_LEXEME = re.compile(
    r"""
      (?P<space>  [ \t\f\r]++ | \#[^\n]*+ | \\\r?\n )
    | (?P<newline> \n )
    | (?P<string> [rRbBfFuUxX]{0,2} (?: \"{3} (?:[^"\\]|\\.|"(?!""))*+ (?:\"{3}|\Z)
                                      | '{3}  (?:[^'\\]|\\.|'(?!''))*+ (?:'{3}|\Z)
                                      | "     (?:[^"\\\n]|\\.)*+ "?
                                      | '     (?:[^'\\\n]|\\.)*+ '? ) )
    | (?P<name>   [^\W\d]\w*+ )
    | (?P<number> \d\w*+ (?:\.\d\w*+)? )
    | (?P<mark>   -> | \*\* | // | << | >> | := | \.\.\. | [=!<>]= | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NUMBER = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|[0-9](?:_?[0-9])*(?:\.[0-9](?:_?[0-9])*)?"
)
# A line that begins a declaration, also where a bracket was left open above it.
_DECLARATION = re.compile(
    r"@|(?:def|struct|event|interface|flag|enum|from|import)[ \t]|[^\W\d]\w*+:[ \t]*(?:public|constant|immutable)[ \t]*\("
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Statement(NamedTuple):
    """One logical line. ``tokens`` is empty if it has too many or is nested too deeply."""

    line: int
    indent: int
    tokens: list[str]

    @property
    def text(self) -> str:
        return " ".join(self.tokens)

    def before(self, ending: str) -> str:
        """The tokens up to a mark outside of brackets: the colon that begins a block, the `=` in front of a value."""
        depth = 0
        for at, mark in enumerate(self.tokens):
            depth += (mark in _OPENING) - (mark in _CLOSING)
            if mark == ending and not depth:
                return " ".join(self.tokens[:at])
        return self.text


def statements(code: str) -> Iterator[Statement]:
    """The statements of a source in order, docstrings left out."""
    tokens: list[str] = []
    line, began, begin_of_line, indent, depth, deepest = 1, 1, 0, 0, 0, 0
    for found in _LEXEME.finditer(code):
        kind, text = found.lastgroup, found[0]
        if kind == "newline" and (depth <= 0 or _DECLARATION.match(code, found.end())):
            if tokens and tokens != ['""']:
                yield Statement(began, indent, tokens if len(tokens) <= MAX_TOKENS and deepest <= MAX_DEPTH else [])
            tokens, depth, deepest = [], 0, 0
        if kind not in ("newline", "space"):
            if not tokens:
                began, indent = line, found.start() - begin_of_line
            depth += (text in _OPENING) - (text in _CLOSING)
            deepest = max(deepest, depth)
            if len(tokens) <= MAX_TOKENS:
                tokens.append(_plain(kind, text))
        if "\n" in text:
            line += text.count("\n")
            begin_of_line = found.start() + text.rindex("\n") + 1
    if tokens and tokens != ['""']:
        yield Statement(began, indent, tokens if len(tokens) <= MAX_TOKENS and deepest <= MAX_DEPTH else [])


def _plain(kind: str | None, text: str) -> str:
    if kind == "string":
        return '""'
    if kind == "number" and not _NUMBER.fullmatch(text):
        return "?"  # Python would warn about some of them
    return text
