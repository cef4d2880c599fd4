"""The statements of a source: their words and marks, without comments and bodies, and the contract around each.

A statement knows braces, strings, comments, its first word and the head of a contract, nothing else. So one that
``source_unit.py`` cannot read loses nothing but itself. Bodies are skipped, whatever stands in them.

If a body never closes, statements are looked for inside of it; at the second such body the reading ends.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from sigdir.signatures.grammar import MAX_TEXT_BYTES

ENCODING = ("utf-8", "surrogateescape")  # bytes that are not UTF-8 are kept
MAX_TOKENS = 1 << 20
"""Words and punctuation marks, those in comments too. As many as 5 MiB of real code; the largest contracts have 1 MiB."""

_WORD_OR_MARK = re.compile(rb"[\w$\x80-\xff]++|[^\s\w$\x80-\xff]")
_COMMENT = r"//[^\n\r]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?"
_STRING = r""""(?:[^"\\\n]++|\\.)*+["\n\\]?|'(?:[^'\\\n]++|\\.)*+['\n\\]?"""
"""One that does not close ends with its line."""
_TOKEN = re.compile(
    rf"[\s\u200b\u2060\ufeff]*+(?:(?P<comment>{_COMMENT})|(?P<text>{_STRING}|[A-Za-z0-9_$]++|=>|.))", re.DOTALL
)
_WORD = re.compile(r"[A-Za-z_$]")
_IN_BODY = re.compile(rf"{_COMMENT}|{_STRING}|\{{|\}}", re.DOTALL)
_COMMENT_OR_STRING = re.compile(rf"({_COMMENT})|{_STRING}", re.DOTALL)
_HAVE_BODIES = frozenset(["function", "modifier", "constructor", "fallback", "receive"])
_CONTRACTS = frozenset(["contract", "abstract", "interface", "library"])
_LISTS = frozenset(["import", "using"])
"""A brace in a statement that begins with one of these is neither a body nor its end."""
_AFTER_TEXT = _HAVE_BODIES | _CONTRACTS | _LISTS | {"struct", "enum", "event", "error", "type"}
"""Words that begin the next statement after marks that are none, and where a pragma has no semicolon."""
_CONTRACT_HEAD = re.compile(
    r"(?:abstract\s++)?(contract|interface|library)\s++([A-Za-z0-9_$]++)\s*+(?:[{/]|(?:is|layout)\b)"
)
_NAMED_CONTRACT = re.compile(r"(?:^|abstract )(contract|interface|library) ([A-Za-z0-9_$]+)")


class Scope(NamedTuple):
    """The contract around a statement; the file if the name is empty."""

    contract: str = ""
    is_library: bool = False


class Statement(NamedTuple):
    """A statement outside of bodies."""

    tokens: list[str]
    ending: str
    """The mark after them: `;`, or `{` of a body or a contract; empty where there is none."""
    scope: Scope
    line: int
    """From 1."""
    text: str
    """As written up to its end or its body, cut where it is longer than a text may be."""
    is_closed: bool = True
    """False if its body never closes."""
    is_sure: bool = True
    """False after one that never closes: it may be a part of that body."""

    @property
    def shown(self) -> str:
        """The text on one line, without comments."""
        return " ".join(_COMMENT_OR_STRING.sub(lambda found: " " if found[1] else found[0], self.text).split())


def has_too_many_tokens(code: bytes) -> bool:
    """Whether a source has more than MAX_TOKENS."""
    return len(code) > MAX_TOKENS and next(islice(_WORD_OR_MARK.finditer(code), MAX_TOKENS, None), None) is not None


def statements(code: bytes) -> Iterator[Statement]:
    """The statements of a source in their order."""
    return _Reader(code.decode(*ENCODING)).statements()


class _Reader:
    def __init__(self, code: str) -> None:
        self._code = code
        self._at = 0
        self._line, self._counted = 1, 0
        self._scopes = [Scope()]
        self._is_sure = True

    def statements(self) -> Iterator[Statement]:
        while (token := self._next()) is not None:
            if token["text"] == "}" and len(self._scopes) > 1:
                self._scopes.pop()
            elif token["text"] not in (";", "}", "\0"):
                yield self._statement(token)

    def _next(self) -> re.Match[str] | None:
        """The next token."""
        while (found := _TOKEN.match(self._code, self._at)) and (at := found.end()):
            self._at = at
            if found["comment"] is None:
                return found
        return None

    def _statement(self, token: re.Match[str] | None) -> Statement:
        """The statement that begins with a token."""
        assert token is not None
        start, first = token.start("text"), token["text"]
        tokens: list[str] = []
        nested = parentheses = 0  # braces that open neither a body nor a contract; brackets
        while token is not None:
            mark, at = token["text"], token.start("text")
            if tokens and self._begins_other(tokens, mark, at):
                self._at = at
                return self._made(start, at, tokens)
            if mark in ("(", "["):
                parentheses += 1
            elif mark in (")", "]"):
                parentheses -= 1
            elif mark == ";" and (not nested or first in _LISTS):
                return self._made(start, self._at, tokens, mark)
            elif mark == "{" and not nested and tokens[-1:] not in (["("], [","]) and first in _HAVE_BODIES:
                return self._with_body(start, tokens)
            elif mark == "{" and not nested and tokens[-1:] not in (["("], [","]) and first in _CONTRACTS:
                return self._contract(start, tokens)
            elif mark == "{":
                nested += 1
            elif mark == "}" and not nested:
                self._at = at
                return self._made(start, at, tokens)
            elif mark == "}":
                nested -= 1
                if not nested and parentheses <= 0 and first not in _HAVE_BODIES | _CONTRACTS | _LISTS:
                    return self._made(start, self._at, [*tokens, mark])
            tokens.append(mark)
            token = self._next()
        return self._made(start, len(self._code), tokens)

    def _begins_other(self, tokens: list[str], word: str, at: int) -> bool:
        """Whether another statement begins at a word inside of one, whose semicolon is missing or which is mere text."""
        if tokens[0] == "pragma" or not _WORD.match(tokens[0]):
            return word in _AFTER_TEXT
        return word in _CONTRACTS and tokens != ["abstract"] and _CONTRACT_HEAD.match(self._code, at) is not None

    def _made(self, start: int, end: int, tokens: list[str], ending: str = "", is_closed: bool = True) -> Statement:
        self._line += self._code.count("\n", self._counted, start)
        self._counted = start
        text = self._code[start : min(end, start + MAX_TEXT_BYTES)]
        return Statement(tokens, ending, self._scopes[-1], self._line, text, is_closed, self._is_sure)

    def _contract(self, start: int, tokens: list[str]) -> Statement:
        made = self._made(start, self._at, tokens, "{")
        found = _NAMED_CONTRACT.match(" ".join(tokens[:3]))
        self._scopes.append(Scope(sys.intern(found[2]), found[1] == "library") if found else Scope())
        return made

    def _with_body(self, start: int, tokens: list[str]) -> Statement:
        brace = self._at - 1
        end = self._end_of_body(brace)
        made = self._made(start, brace, tokens, "{", end is not None)
        if end is not None:
            self._at = end
        else:
            self._at = self._at if self._is_sure else len(self._code)
            self._is_sure = False
        return made

    def _end_of_body(self, brace: int) -> int | None:
        """The place after the brace that closes the one at ``brace``; None if none does."""
        depth = 0
        for found in _IN_BODY.finditer(self._code, brace):
            depth += (found[0] == "{") - (found[0] == "}")
            if not depth:
                return found.end()
        return None
