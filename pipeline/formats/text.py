"""Plain text: one signature or declaration a line.

Blank lines, lines that begin with `#`, and the comments `// ...` and `/* ... */` (over any number of
lines) are skipped. CRLF and a byte order mark are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

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


@kernel(inline="always")
def _is_blank(byte: Any) -> Any:
    return byte == _SPACE or byte == _TAB or byte == _CR


@kernel(nogil=True)
def _candidate_lines(
    data: Array, stops: Array, has_slashes: bool, first_line: int, starts: Array, ends: Array, lines: Array
) -> int:
    """Fill the last three columns with the lines to read; returns their number. ``stops`` are the ends of all lines."""
    found = 0
    one = np.uint64(1)
    begin = np.uint64(0)
    for line in range(len(stops)):
        stop = np.uint64(stops[line])
        start, end = begin, stop
        begin = stop + one
        if has_slashes:
            for at in range(start + one, stop):
                if data[at] == _SLASH and data[at - one] == _SLASH:
                    end = at - one
                    break
        while start < end and _is_blank(data[start]):
            start += one
        while start < end and _is_blank(data[end - one]):
            end -= one
        if start < end and data[start] != _HASH_SIGN:
            starts[found] = start
            ends[found] = end
            lines[found] = first_line + line
            found += 1
    return found


def candidate_lines(data: Array, first_line: int) -> tuple[Array, Array, Array]:
    """The lines of ``data`` (uint8) to read: starts and ends (int32), line numbers (int64)."""
    stops = np.append(np.flatnonzero(data == _NEWLINE), len(data))  # three times as fast as a loop over the bytes
    starts, ends, lines = (np.empty(len(stops), kind) for kind in (np.int32, np.int32, np.int64))
    has_slashes = bool((data == _SLASH).any())
    found = _candidate_lines(data, stops, has_slashes, first_line, starts, ends, lines)
    return starts[:found], ends[:found], lines[:found]
