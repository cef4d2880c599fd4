"""The outline of a source: its statements outside of bodies, and the code without bodies and comments.

The parser needs neither bodies nor comments, which are most of a source. One pass over the bytes replaces them by
spaces. Offsets and line numbers stay as they are. The parser then takes a third of the time, and what it would not
understand inside a body cannot hide what follows the body.

The outline knows braces, strings, comments, the first word of a statement and the head of a contract, nothing else. It
says where each statement begins and ends, so that a statement which the parser cannot place is parsed alone or rejected.

If a body never closes, statements are looked for inside of it; at the second such body the outline ends.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

MAX_TOKENS = 1 << 20
"""Words and punctuation marks, those in comments too: the parser takes up to 830 bytes for each. As many as 5 MiB of real
code; the largest contracts have 1 MiB."""
MAX_POSTED_TOKENS = 1 << 16
"""Those outside of bodies and comments in a source that a stranger sends: 1.6 MiB of real code, 52 MiB of the parser."""

_WORD_OR_MARK = re.compile(rb"[\w$\x80-\xff]++|[^\s\w$\x80-\xff]")
_COMMENT = rb"//[^\n\r]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?"
_STRING = rb""""(?:[^"\\\n]++|\\.)*+["\n\\]?|'(?:[^'\\\n]++|\\.)*+['\n\\]?"""
"""One that does not close ends with its line."""
_TOKEN = re.compile(
    rb"[\s\0]*+(?:(?P<comment>%b)|(?P<string>%b)|(?P<mark>[/()\[\]{};,])|(?P<other>[^\s\0/\"'()\[\]{};,]++))"
    % (_COMMENT, _STRING),
    re.DOTALL,
)
_IN_BODY = re.compile(rb"%b|%b|\{|\}" % (_COMMENT, _STRING), re.DOTALL)
_FIRST_WORD = re.compile(rb"[A-Za-z]++(?![\w$])")
_KINDS = {
    **dict.fromkeys([b"function", b"modifier", b"constructor", b"fallback", b"receive"], "body"),
    **dict.fromkeys([b"contract", b"abstract", b"interface", b"library"], "contract"),
    **dict.fromkeys([b"import", b"using"], "list"),
}
"""What a brace opens in a statement that begins with this word."""
_CONTRACT_HEAD = re.compile(rb"(?:abstract\s++)?(?:contract|interface|library)\s++[\w$]++\s*+(?:[{/]|(?:is|layout)\b)")
_OTHER_BLANKS = [blank.encode() for blank in ("\ufeff", "\xa0", "\u200b", "\u2060")]
"""What the parser takes for blanks too: marks of byte order, spaces that do not break and those without a width."""
_BLANKS = bytes(byte if byte == 0x0A else 0x20 for byte in range(256))


class Statement(NamedTuple):
    """A statement outside of bodies, as offsets into the source."""

    start: int
    end: int
    """After its semicolon or closing brace. After the opening brace of a contract or of a body that never closes."""
    head_end: int
    """The opening brace of a body; otherwise ``end``."""
    parent: int
    """The statement that opens its contract; -1 in the file."""
    is_closed: bool = True
    """False if its body never closes."""
    is_sure: bool = True
    """False after one that never closes: it may be a part of that body."""


class Outline(NamedTuple):
    masked: bytes
    """The source with spaces in place of bodies and comments."""
    statements: list[Statement]


def has_too_many_tokens(code: bytes) -> bool:
    """Whether a source has more than MAX_TOKENS."""
    return _has_more_tokens(code, MAX_TOKENS)


def is_too_long_to_post(code: bytes) -> bool:
    """Whether a source has more than MAX_POSTED_TOKENS outside of bodies and comments."""
    return len(code) > MAX_POSTED_TOKENS and _has_more_tokens(outline_of(code).masked, MAX_POSTED_TOKENS)


def _has_more_tokens(code: bytes, most: int) -> bool:
    return len(code) > most and next(islice(_WORD_OR_MARK.finditer(code), most, None), None) is not None


def outline_of(code: bytes) -> Outline:
    for blank in _OTHER_BLANKS:
        code = code.replace(blank, b" " * len(blank))
    reader = _OutlineReader(code)
    reader.read()
    return Outline(_with_plain_names(bytes(reader.masked), code, reader.statements), reader.statements)


class _OutlineReader:
    def __init__(self, code: bytes) -> None:
        self._code = code
        self.masked = bytearray(code)
        self.statements: list[Statement] = []
        self._contract = -1
        """The statement that opens the contract around the place."""
        self._is_sure = True

    def read(self) -> None:
        token = self._next(0)
        while token is not None:
            mark, at = token["mark"], token.end()
            if mark == b"}" and self._contract >= 0:
                self._contract = self.statements[self._contract].parent
            elif mark not in (b";", b"}"):
                at = self._statement(token)
            token = self._next(at)

    def _next(self, at: int) -> re.Match[bytes] | None:
        """The next token. Comments in front of it are masked."""
        while (found := _TOKEN.match(self._code, at)) and found.lastgroup == "comment":
            self._mask(found.start("comment"), at := found.end())
        return found

    def _mask(self, start: int, end: int) -> None:
        self.masked[start:end] = self._code[start:end].translate(_BLANKS)

    def _statement(self, token: re.Match[bytes] | None) -> int:
        """Add the statement that begins with a token; gives the place after it."""
        assert token is not None
        start = token.start(token.lastgroup or 0)
        word = _FIRST_WORD.match(self._code, start)
        kind = _KINDS.get(word[0], "") if word else ""
        nested = parentheses = 0  # braces that open neither a body nor a contract; brackets
        previous = None
        while token is not None:
            mark, end = token["mark"], token.end()
            if not mark and not nested and self._begins_contract(start, token.start("other")):
                return self._add(start, token.start("other"))
            if mark in (b"(", b"["):
                parentheses += 1
            elif mark in (b")", b"]"):
                parentheses -= 1
            elif mark == b";" and (not nested or kind == "list"):
                return self._add(start, end)
            elif mark == b"{" and (nested or kind in ("", "list") or previous in (b"(", b",")):
                nested += 1
            elif mark == b"{" and kind == "body":
                return self._add_with_body(start, end - 1)
            elif mark == b"{":
                self._add(start, end)
                self._contract = len(self.statements) - 1
                return end
            elif mark == b"}" and not nested:
                return self._add(start, end - 1)
            elif mark == b"}":
                nested -= 1
                if not nested and not kind and parentheses <= 0:
                    return self._add(start, end)
            previous = mark
            token = self._next(end)
        return self._add(start, len(self._code))

    def _begins_contract(self, start: int, at: int) -> bool:
        """Whether a contract begins at a word inside of a statement, whose semicolon is missing or which is mere text."""
        begins = at > start and _CONTRACT_HEAD.match(self._code, at) is not None
        return begins and self.masked[start:at].strip() != b"abstract"

    def _add(self, start: int, end: int) -> int:
        self.statements.append(Statement(start, end, end, self._contract, True, self._is_sure))
        return end

    def _add_with_body(self, start: int, brace: int) -> int:
        end = self._end_of_body(brace)
        statement = Statement(start, end or brace + 1, brace, self._contract, end is not None, self._is_sure)
        self.statements.append(statement)
        if end is not None:
            self._mask(brace + 1, end - 1)
            return end
        was_sure, self._is_sure = self._is_sure, False
        return brace + 1 if was_sure else len(self._code)

    def _end_of_body(self, brace: int) -> int | None:
        """The place after the brace that closes the one at ``brace``; None if none does."""
        depth = 0
        for found in _IN_BODY.finditer(self._code, brace):
            depth += (found[0] == b"{") - (found[0] == b"}")
            if not depth:
                return found.end()
        return None


# Contextual keywords. The parser takes them for keywords where a state variable's name stands.

# One pattern a word: a pattern that begins with a fixed word is searched five times faster than a choice.
_NAMED_BY_KEYWORD = [
    re.compile(word + rb"(?<![\w$]" + word + rb")(?=\s*(?:;|=(?![=>])))")
    for word in (b"immutable", b"override", b"transient")
]
_NO_VARIABLE = re.compile(rb"(?:function|modifier|constructor|fallback|receive|event|error|import|using|pragma)\b")


def _with_plain_names(masked: bytes, code: bytes, statements: list[Statement]) -> bytes:
    """Rename the state variables whose names are contextual keywords, to names of the same length.

    They are names if they stand in front of `=` or `;`: `uint public immutable transient = 3;`.
    """
    changed = bytearray(masked)
    for hit in (hit for pattern in _NAMED_BY_KEYWORD for hit in pattern.finditer(masked)):
        number = bisect_right(statements, hit.start(), key=attrgetter("start")) - 1
        if number >= 0 and not _NO_VARIABLE.match(code, statements[number].start):
            changed[hit.start() : hit.end()] = b"_" * len(hit[0])
    return bytes(changed)
