"""Plain text: one signature or declaration a line.

Blank lines, lines that begin with `#`, and the comments `// ...` and `/* ... */` (over any number of
lines) are skipped. CRLF and a byte order mark are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from sigdir.pipeline.source import ENDS_INSIDE, HEAD_BYTES, Source
from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import Candidates, ReadTask
from sigdir.signatures.grammar import is_signature
from sigdir.signatures.kernels import kernel

_SAMPLE_LINES = 64

_NEWLINE, _SPACE, _TAB, _CR = 0x0A, 0x20, 0x09, 0x0D
_HASH_SIGN, _SLASH = 0x23, 0x2F


def looks_like(source: Source) -> bool:
    """Whether at least half of the first lines are signatures."""
    good, lines = _sample(source)
    return 0 < lines <= 2 * good


def has_signature(source: Source) -> bool:
    """Whether one of the first lines is a signature, or there are none."""
    good, lines = _sample(source)
    return good > 0 or not lines


def _sample(source: Source) -> tuple[int, int]:
    """How many of the sampled lines are signatures, and how many lines were sampled."""
    head = source.head
    if len(source.head) == HEAD_BYTES:  # its last line may be cut
        head = head[: head.rfind(b"\n") + 1]
    block, _ = without_comments(head, False)
    data = np.frombuffer(block, np.uint8)
    starts, ends, _ = candidate_lines(data, 1)
    sample = [block[a:b] for a, b in zip(starts[:_SAMPLE_LINES], ends[:_SAMPLE_LINES], strict=True)]
    return sum(map(is_signature, sample)), len(sample)


def read(source: Source) -> Iterator[ReadTask]:
    inside = False
    for block, first_line in source.blocks():
        # Searching for one byte is ten times faster than for two.
        if inside or (b"*" in block and b"/*" in block):
            block, inside = without_comments(block, inside)
        yield partial(_read_block, block, first_line, source.number)
    if inside:
        source.warnings.append(ENDS_INSIDE)


def _read_block(block: bytes, first_line: int, file: int) -> list[Candidates]:
    data = np.frombuffer(block, np.uint8)
    starts, ends, lines = candidate_lines(data, first_line)
    return [Candidates(data, starts, ends, lines, file)] if len(starts) else []


# A `/*` after `//` or `#` is part of that line's comment.
_COMMENT = re.compile(rb"(?m)//[^\n]*|^[ \t\r]*#[^\n]*|/\*")


def without_comments(block: bytes, inside: bool) -> tuple[bytes, bool]:
    """The block with its block comments replaced by spaces, and whether its end is inside a comment."""
    parts = []
    at = 0
    while True:
        if inside:
            end = block.find(b"*/", at)
            end = len(block) if end < 0 else end + 2
            inside = not block.endswith(b"*/", at, end)
            parts.append(_NOT_NEWLINE.sub(b" ", block[at:end]))
            at = end
        found = _COMMENT.search(block, at) if not inside else None
        while found and found[0] != b"/*":
            found = _COMMENT.search(block, found.end())
        if found is None:
            parts.append(block[at:])
            return b"".join(parts), inside
        parts.append(block[at : found.start()] + b"  ")
        at = found.end()
        inside = True


_NOT_NEWLINE = re.compile(rb"[^\n]")


@kernel(nogil=True)
def _candidate_lines(data: Array, first_line: int, starts: Array, ends: Array, lines: Array) -> int:
    """Fill the three columns with the lines to read; returns their number."""
    found = 0
    number = first_line
    at = np.uint64(0)
    size = np.uint64(len(data))
    one = np.uint64(1)
    while at < size:
        while at < size and (data[at] == _SPACE or data[at] == _TAB or data[at] == _CR):
            at += one
        start = at
        end = at  # after the last byte that is neither space nor comment
        while at < size and data[at] != _NEWLINE:
            byte = data[at]
            if byte == _SLASH and at + one < size and data[at + one] == _SLASH:
                while at < size and data[at] != _NEWLINE:
                    at += one
                break
            if byte != _SPACE and byte != _TAB and byte != _CR:
                end = at + one
            at += one
        if end > start and data[start] != _HASH_SIGN:
            starts[found] = start
            ends[found] = end
            lines[found] = number
            found += 1
        number += 1
        at += one
    return found


def candidate_lines(data: Array, first_line: int) -> tuple[Array, Array, Array]:
    """The lines of ``data`` (uint8) to read: starts and ends (int32), line numbers (int64)."""
    most = int(np.count_nonzero(data == _NEWLINE)) + 1
    starts, ends, lines = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int64)
    found = _candidate_lines(data, first_line, starts, ends, lines)
    return starts[:found], ends[:found], lines[:found]
