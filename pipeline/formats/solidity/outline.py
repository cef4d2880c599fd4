"""The outline of a source: its statements outside of bodies, and the code without bodies and comments.

The parser needs neither bodies nor comments, which are most of a source. One pass over the bytes replaces them by
spaces. Offsets and line numbers stay as they are. The parser then takes a third of the time, and what it would not
understand inside a body cannot hide what follows the body.

The outline knows braces, strings, comments and the first word of a statement, nothing else. It says where each
statement begins and ends, so that a statement which the parser cannot place is parsed alone or rejected.

If a body never closes, the outline ends at its brace. The rest stays as written for the parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement outside of bodies, as offsets into the source."""

    start: int
    end: int
    """After its semicolon or closing brace. After the opening brace of a contract or of a body that never closes."""
    head_end: int
    """The opening brace of a body; otherwise ``end``."""
    parent: int
    """The statement that opens its contract; -1 in the file."""
    is_closed: bool
    """False if its body never closes."""


@dataclass(frozen=True, slots=True)
class Outline:
    masked: bytes
    """The source with spaces in place of bodies and comments."""
    columns: tuple[Array, Array, Array, Array]
    unclosed: int
    """The number of the statement whose body never closes; -1 for none."""

    def statements(self) -> list[Statement]:
        starts, ends, heads, parents = (column.tolist() for column in self.columns)
        return [
            Statement(start, end, head, parent, number != self.unclosed)
            for number, (start, end, head, parent) in enumerate(zip(starts, ends, heads, parents, strict=True))
        ]


def outline_of(code: bytes) -> Outline:
    data = np.frombuffer(code, np.uint8)
    masked = data.copy()
    most = 1 + int(np.count_nonzero((data == _SEMICOLON) | (data == _OPEN_BRACE) | (data == _CLOSE_BRACE)))
    columns = np.empty((4, most), np.int32)
    found, unclosed = _outline(data, masked, *columns)
    starts, ends, heads, parents = columns[:, :found]
    return Outline(_with_plain_names(masked.tobytes(), code, starts), (starts, ends, heads, parents), unclosed)


# Contextual keywords. The parser takes them for keywords where a state variable's name stands.

# One pattern a word: a pattern that begins with a fixed word is searched five times faster than a choice.
_NAMED_BY_KEYWORD = [
    re.compile(word + rb"(?<![\w$]" + word + rb")(?=\s*(?:;|=(?![=>])))")
    for word in (b"immutable", b"override", b"transient")
]
_NO_VARIABLE = re.compile(rb"(?:function|modifier|constructor|fallback|receive|event|error|import|using|pragma)\b")


def _with_plain_names(masked: bytes, code: bytes, starts: Array) -> bytes:
    """Rename the state variables whose names are contextual keywords, to names of the same length.

    They are names if they stand in front of `=` or `;`: `uint public immutable transient = 3;`.
    """
    hits = [hit for pattern in _NAMED_BY_KEYWORD for hit in pattern.finditer(masked)]
    if not hits:
        return masked
    changed = bytearray(masked)
    for hit in hits:
        number = int(np.searchsorted(starts, hit.start(), side="right")) - 1
        if number >= 0 and not _NO_VARIABLE.match(code, int(starts[number])):
            changed[hit.start() : hit.end()] = b"_" * len(hit[0])
    return bytes(changed)


# The kernel.

_NEWLINE, _CR, _SPACE, _TAB = 0x0A, 0x0D, 0x20, 0x09
_SLASH, _STAR, _BACKSLASH, _DOUBLE, _SINGLE = 0x2F, 0x2A, 0x5C, 0x22, 0x27
_OPEN_BRACE, _CLOSE_BRACE, _OPEN, _CLOSE, _LEFT, _RIGHT = 0x7B, 0x7D, 0x28, 0x29, 0x5B, 0x5D
_SEMICOLON, _COMMA = 0x3B, 0x2C


def _packed(word: str) -> int:
    """Up to eight letters as one integer."""
    return int.from_bytes(word[:8].encode(), "big")


# The words that decide what a brace opens, with their lengths.
_FUNCTION, _MODIFIER, _CONSTRUCTOR = _packed("function"), _packed("modifier"), _packed("constructor")
_FALLBACK, _RECEIVE = _packed("fallback"), _packed("receive")
_CONTRACT, _INTERFACE, _LIBRARY, _ABSTRACT = (
    _packed(word) for word in ("contract", "interface", "library", "abstract")
)
_IMPORT, _USING = _packed("import"), _packed("using")
_OTHER, _WITH_BODY, _CONTAINER, _LIST = 0, 1, 2, 3


@kernel(nogil=True)
def _kind(word: int, length: int) -> int:
    """What a brace after this first word opens: a body, a contract, a list of names, or anything else."""
    if length == 8 and (word == _FUNCTION or word == _MODIFIER or word == _FALLBACK):
        return _WITH_BODY
    if (length == 11 and word == _CONSTRUCTOR) or (length == 7 and word == _RECEIVE):
        return _WITH_BODY
    if length == 8 and (word == _CONTRACT or word == _ABSTRACT):
        return _CONTAINER
    if (length == 9 and word == _INTERFACE) or (length == 7 and word == _LIBRARY):
        return _CONTAINER
    if (length == 6 and word == _IMPORT) or (length == 5 and word == _USING):
        return _LIST
    return _OTHER


@kernel(nogil=True)
def _skip_comment(code: Array, masked: Array, at: int) -> int:
    """The place after the comment at ``at``, or ``at`` if there is none. The comment becomes spaces."""
    size = len(code)
    if at + 1 >= size or code[at] != _SLASH or (code[at + 1] != _SLASH and code[at + 1] != _STAR):
        return at
    if code[at + 1] == _SLASH:
        while at < size and code[at] != _NEWLINE and code[at] != _CR:
            masked[at] = _SPACE
            at += 1
        return at
    end = at + 2
    while end + 1 < size and not (code[end] == _STAR and code[end + 1] == _SLASH):
        end += 1
    end = min(end + 2, size)
    for k in range(at, end):
        if code[k] != _NEWLINE:
            masked[k] = _SPACE
    return end


@kernel(nogil=True)
def _skip_string(code: Array, at: int) -> int:
    """The place after the string at ``at``. A string that does not close ends with its line."""
    size = len(code)
    quote = code[at]
    at += 1
    while at < size and code[at] != quote and code[at] != _NEWLINE:
        at += 2 if code[at] == _BACKSLASH else 1
    return min(at + 1, size)


@kernel(nogil=True)
def _skip_body(code: Array, masked: Array, at: int) -> int:
    """The place after the brace that closes the one at ``at``; -1 if none does. What is inside becomes spaces."""
    size = len(code)
    depth = 0
    while at < size:
        byte = code[at]
        if byte == _SLASH:
            end = _skip_comment(code, masked, at)
            if end > at:
                at = end
                continue
        elif byte == _DOUBLE or byte == _SINGLE:
            end = _skip_string(code, at)
            for k in range(at, end):
                if code[k] != _NEWLINE:
                    masked[k] = _SPACE
            at = end
            continue
        elif byte == _OPEN_BRACE:
            depth += 1
            if depth == 1:
                at += 1
                continue
        elif byte == _CLOSE_BRACE:
            depth -= 1
            if depth == 0:
                return at + 1
        if byte != _NEWLINE:
            masked[at] = _SPACE
        at += 1
    return -1


@kernel(nogil=True)
def _mask_comments(code: Array, masked: Array, at: int) -> None:
    """Undo the masking from ``at`` on, except that of comments."""
    size = len(code)
    masked[at:] = code[at:]
    while at < size:
        byte = code[at]
        if byte == _DOUBLE or byte == _SINGLE:
            at = _skip_string(code, at)
        else:
            end = _skip_comment(code, masked, at)
            at = end if end > at else at + 1


@kernel(nogil=True)
def _outline(code: Array, masked: Array, starts: Array, ends: Array, heads: Array, parents: Array) -> tuple[int, int]:
    """Fill the columns of the statements and mask bodies and comments: the number of statements, and which of them
    has a body that never closes, or -1.
    """
    size = len(code)
    found = 0
    container = -1
    start = -1
    kind = _OTHER
    nested = 0  # open braces that are neither a body nor a contract
    parentheses = 0
    previous = 0  # the last byte that is no space
    at = int(np.int64(0))  # numba compiles what is called with a literal once more
    while at < size:
        byte = code[at]
        if byte == _SLASH:
            end = _skip_comment(code, masked, at)
            if end > at:
                at = end
                continue
        if byte == _SPACE or _TAB <= byte <= _CR:
            at += 1
            continue
        if start < 0:
            if byte == _SEMICOLON or byte == _CLOSE_BRACE:
                if byte == _CLOSE_BRACE and container >= 0:
                    container = parents[container]
                at += 1
                continue
            start, nested, parentheses, previous = at, 0, 0, 0
            end, word = at, 0
            while end < size and end - at <= 12 and (0x61 <= code[end] | 0x20 <= 0x7A):
                if end - at < 8:
                    word = word << 8 | int(code[end])
                end += 1
            kind = _kind(word, end - at)
            if end < size and (0x30 <= code[end] <= 0x39 or code[end] == 0x5F or code[end] == 0x24):
                kind = _OTHER
            if end > at:
                previous = code[end - 1]
                at = end
                continue
        end = -1  # of the statement
        head = -1
        if byte == _DOUBLE or byte == _SINGLE:
            at = _skip_string(code, at) - 1
        elif byte == _OPEN or byte == _LEFT:
            parentheses += 1
        elif byte == _CLOSE or byte == _RIGHT:
            parentheses -= 1
        elif byte == _SEMICOLON:
            if nested == 0:
                end = at + 1
        elif byte == _OPEN_BRACE:
            is_argument = previous == _OPEN or previous == _COMMA
            if nested > 0 or kind == _OTHER or kind == _LIST or is_argument:
                nested += 1
            elif kind == _CONTAINER:
                end = at + 1
            else:
                head = at
                end = _skip_body(code, masked, at)
                if end < 0:
                    _mask_comments(code, masked, at)
                    starts[found], ends[found], heads[found], parents[found] = start, at + 1, at, container
                    return found + 1, found
        elif byte == _CLOSE_BRACE:
            if nested > 0:
                nested -= 1
                if nested == 0 and kind == _OTHER and parentheses <= 0:
                    end = at + 1
            else:
                end = at
        if end >= 0:
            starts[found], ends[found], parents[found] = start, end, container
            heads[found] = head if head >= 0 else end
            if kind == _CONTAINER and code[end - 1] == _OPEN_BRACE:
                container = found
            found += 1
            start = -1
            at = end
            continue
        previous = byte
        at += 1
    if start >= 0:
        starts[found], ends[found], heads[found], parents[found] = start, size, size, container
        found += 1
    return found, -1
