"""The constants that bytecode pushes and that can be an error's selector or an event's topic.

Theory
    An event's topic is a PUSH32. An error's selector stands in the upper four bytes of a word, or in the lower four
    where hand-written code stores the word and reverts from its byte 28. solc writes the shortest of these::

        PUSH4 selector, PUSH1 0xe0, SHL        the usual form
        PUSHn value, PUSH1 shift, SHL          value << shift == selector << 224; for selectors that end in zero bits
        PUSH32 selector000...                  without SHL, before Constantinople
        PUSH4 selector                         plain; PUSH3 where the selector begins with a zero byte

    A plain constant that is compared next is a selector of the dispatcher, not of an error.

    The code is read from its first byte to its last, as `solc --asm` lists it. What lies in it as data is read as
    instructions too: it can add a constant by chance, one in 2^32 for a given selector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_EQ, _LT, _GT, _SUB, _XOR, _SHL = 0x14, 0x10, 0x11, 0x03, 0x18, 0x1B
_PUSH0, _PUSH1, _PUSH32 = 0x5F, 0x60, 0x7F
_DUP1, _SWAP16 = 0x80, 0x9F
_SELECTOR_BITS = 224  # how far left of a word's end a selector stands
_WIDEST = 8  # bytes of a shifted value that are read; solc pushes no more than four


class PushConstants(NamedTuple):
    """What a contract pushes: topics of 32 bytes, selectors of 4 bytes."""

    topics: frozenset[bytes]
    selectors: frozenset[bytes]


def push_constants(code: bytes) -> PushConstants:
    """The constants of runtime code without its metadata."""
    selectors, topics_at = _scan(np.frombuffer(code, np.uint8))
    packed = selectors.astype(">u4").tobytes()
    return PushConstants(
        frozenset(code[at : at + 32] for at in topics_at.tolist()),
        frozenset(packed[at : at + 4] for at in range(0, len(packed), 4)),
    )


@kernel(nogil=True)
def _scan(code: Array) -> tuple[Array, Array]:
    """The selectors as numbers, and the positions of the words that PUSH32 pushes. Some occur twice."""
    size = len(code)
    selectors = np.empty(size // 2 + 1, np.uint32)
    topics_at = np.empty(size // 33 + 1, np.int32)
    found, topics = 0, 0
    at = 0
    while at < size:
        width = int(code[at]) - _PUSH0
        if width < 1 or width > 32:
            at += 1
            continue
        after = at + 1 + width
        if after > size:  # the code ends inside of the constant
            break
        selector = np.uint64(0)
        if width == 32:
            topics_at[topics] = at + 1
            topics += 1
            low = 0
            for k in range(at + 5, after):
                low |= code[k]
            if low == 0:
                selector = _number(code, at + 1, at + 5)
        elif after + 2 < size and code[after] == _PUSH1 and code[after + 2] == _SHL:
            if width <= _WIDEST:
                selector = _shifted(_number(code, at + 1, after), int(code[after + 1]))
        elif 3 <= width <= 4 and not _is_compared(code, after):
            selector = _number(code, at + 1, after)
        if selector != 0:
            selectors[found] = selector
            found += 1
        at = after
    return selectors[:found], topics_at[:topics]


@kernel(nogil=True)
def _number(code: Array, start: int, end: int) -> Any:
    value = np.uint64(0)
    for k in range(start, end):
        value = (value << np.uint64(8)) | np.uint64(code[k])
    return value


@kernel(nogil=True)
def _shifted(value: Any, shift: int) -> Any:
    """The selector that a value is when it is shifted left by this many bits; 0 if it is none."""
    if shift >= _SELECTOR_BITS:
        return (value << np.uint64(shift - _SELECTOR_BITS)) & np.uint64(0xFFFFFFFF)
    lost = _SELECTOR_BITS - shift
    if lost >= 64 or (value >> np.uint64(lost)) << np.uint64(lost) != value:
        return np.uint64(0)
    return (value >> np.uint64(lost)) & np.uint64(0xFFFFFFFF)


@kernel(nogil=True)
def _is_compared(code: Array, at: int) -> bool:
    if at < len(code) and _DUP1 <= code[at] <= _SWAP16:
        at += 1
    if at >= len(code):
        return False
    return bool(code[at] == _EQ or code[at] == _XOR or code[at] == _SUB or code[at] == _LT or code[at] == _GT)
