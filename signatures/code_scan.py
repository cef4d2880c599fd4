"""What is in code: constants that it pushes or copies, and the runtime code that creation code returns.

Theory
    An event's topic is a PUSH32, or a PUSH31 where it begins with a zero byte, a PUSH30 where it begins with two. An
    error's selector stands in the upper four bytes of a word, or in the lower four where hand-written code stores the
    word and reverts from its byte 28. solc writes the shortest of these::

        PUSH4 selector, PUSH1 0xe0, SHL        the usual form
        PUSHn value, PUSH1 shift, SHL          value << shift == selector << 224; for selectors that end in zero bits
        PUSH32 selector000...                  without SHL, before Constantinople
        PUSH4 selector                         plain; PUSH3 where the selector begins with a zero byte

    A plain constant that is compared next is a selector of the dispatcher, not of an error.

    CODECOPY takes a place in memory, an offset into the code, and a size. A compiler pushes the last two as constants::

        PUSH2 size, DUP1, PUSH2 offset, PUSH1 0, CODECOPY, PUSH1 0, RETURN      solc's creation code
        PUSH1 size, DUP1, PUSH1 offset, RETURNDATASIZE, ... CODECOPY, RETURN    a minimal proxy's: 0 before the first call
        PUSH2 offset, PUSH2 end, SUB, PUSH2 offset, PUSH1 0, CODECOPY           Vyper's creation code up to 0.3.0
        PUSH2 size, PUSH1 immutables, ADD, PUSH4 0, RETURN                      what Vyper 0.3.1 returns
        PUSH1 32, PUSH2 offset, DUP4, CODECOPY, DUP2, MLOAD                     a constant that solc's optimizer moved

    The code is read once, from its first byte to its last, as `solc --asm` lists it, with the upper values of the stack:
    a constant, or a number for each value that is computed. A JUMPDEST after an end such as REVERT begins with the stack of that end: the JUMPI
    that leads there left the same one. Creation code returns the memory to which it copied a part of itself last. The
    size that it returns is that of the part, or greater where Vyper puts immutables after it.

    What follows an end is data, such as a contract that is created, until a JUMPDEST whose position was pushed before.
    Offsets in another contract count from its own beginning, so what data copies and returns is left out. What data pushes
    counts: it can add a constant by chance, one in 2^32 for a given selector.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from sigdir.signatures.kernels import kernel

Array = npt.NDArray[Any]

_ADD, _CODECOPY, _JUMPDEST, _RETURN, _DELEGATECALL = 0x01, 0x39, 0x5B, 0xF3, 0xF4
_ENDS = (0x00, 0x56, 0xF3, 0xFD, 0xFE, 0xFF)  # STOP, JUMP, RETURN, REVERT, INVALID, SELFDESTRUCT
_RETURNDATASIZE, _CALLS = 0x3D, (0xF0, 0xF1, 0xF2, 0xF4, 0xF5, 0xFA)  # CREATE to STATICCALL
_EQ, _LT, _GT, _SUB, _XOR, _SHL = 0x14, 0x10, 0x11, 0x03, 0x18, 0x1B
_PUSH0, _PUSH1, _PUSH32, _DUP1, _SWAP1, _SWAP16 = 0x5F, 0x60, 0x7F, 0x80, 0x90, 0x9F
_RESERVED = (0, 0xFFFFFFFF)  # solc refuses errors with these selectors; the second one is a mask of 32 bits
_SELECTOR_BITS = 224  # how far left of a word's end a selector stands
_WIDEST_SHIFTED = 8  # bytes of a shifted value that are read; solc pushes no more than four
_UNKNOWN = -1
_DEPTH = 32  # upper values of the stack that are kept, in a ring; SWAP16 reaches 17
_LARGEST = (1 << 24) - 1  # of the constants that may be offsets or sizes
_WORD = 32
_LEAST_TOPIC = 30  # bytes of a topic that are pushed: one in 65,536 has a third zero byte in front


class CodeScan(NamedTuple):
    """What a contract's code says about it."""

    selectors: frozenset[bytes]
    """The constants that can be an error's selector, 4 bytes each."""
    topics: frozenset[bytes]
    """The constants of 30 to 32 bytes that it pushes, as words."""
    words: frozenset[bytes]
    """The constants of 32 bytes that it copies from itself."""
    returned: bytes | None
    """The runtime code in creation code."""
    delegates: bool
    """Whether it has a DELEGATECALL."""


def scan_code(code: bytes) -> CodeScan:
    """What is in code, in time in proportion to its bytes."""
    selectors, topics, words, start, end, delegates = _scan(np.frombuffer(code, np.uint8), _EFFECTS)
    packed = selectors.astype(">u4").tobytes()
    return CodeScan(
        frozenset(packed[at : at + 4] for at in range(0, len(packed), 4)),
        frozenset(code[at + 1 : at + 1 + code[at] - _PUSH0].rjust(_WORD, b"\0") for at in topics.tolist()),
        frozenset(code[at : at + _WORD] for at in words.tolist()),
        code[start:end] or None,
        bool(delegates),
    )


def _effects() -> Array:
    """Of each instruction: twice the number of values that it takes from the stack, and 1 if it gives one."""
    effects = np.zeros(256, np.uint8)
    for takes, gives, opcodes in (
        (0, 1, "30 32-34 36 38 3a 3d 41-48 4a 58-5a"),
        (1, 1, "15 19 1e 31 35 3b 3f 40 49 51 54 5c"),
        (2, 1, "01-07 0a 0b 10-14 16-18 1a-1d 20"),
        (3, 1, "08 09 f0"),
        (4, 1, "f5"),
        (6, 1, "f4 fa"),
        (7, 1, "f1 f2"),
        (1, 0, "50 56 ff"),
        (2, 0, "52 53 55 57 5d a0 f3 fd"),
        (3, 0, "37 39 3e 5e a1"),
        (4, 0, "3c a2"),
        (5, 0, "a3"),
        (6, 0, "a4"),
    ):
        for first, _, last in (one.partition("-") for one in opcodes.split()):
            effects[int(first, 16) : int(last or first, 16) + 1] = 2 * takes + gives
    return effects


_EFFECTS = _effects()


@register_jitable
def _number(code: Array, start: int, end: int) -> Any:
    value = np.uint64(0)
    for k in range(start, end):
        value = (value << np.uint64(8)) | np.uint64(code[k])
    return value


@register_jitable
def _constant(code: Array, start: int, end: int, unknown: int) -> int:
    """A constant that may be an offset or a size; ``unknown`` for a larger one."""
    value = 0
    for k in range(start, end):
        value = value << 8 | int(code[k])
        if value > _LARGEST:
            return unknown
    return value


@register_jitable
def _computed(opcode: int, first: int, second: int, unknown: int) -> int:
    """A sum or a difference of two constants that may be an offset or a size; ``unknown`` for any other result."""
    if first >= 0 and second >= 0:
        if opcode == _ADD and first + second <= _LARGEST:
            return first + second
        if opcode == _SUB and first >= second:
            return first - second
    return unknown


@register_jitable
def _shifted(value: Any, shift: int) -> Any:
    """The selector that a value is when it is shifted left by this many bits; 0 if it is none."""
    if shift >= _SELECTOR_BITS:
        return (value << np.uint64(shift - _SELECTOR_BITS)) & np.uint64(0xFFFFFFFF)
    lost = _SELECTOR_BITS - shift
    if lost >= 64 or (value >> np.uint64(lost)) << np.uint64(lost) != value:
        return np.uint64(0)
    return (value >> np.uint64(lost)) & np.uint64(0xFFFFFFFF)


@register_jitable
def _is_compared(code: Array, at: int) -> bool:
    if at < len(code) and _DUP1 <= code[at] <= _SWAP16:
        at += 1
    if at >= len(code):
        return False
    return bool(code[at] == _EQ or code[at] == _XOR or code[at] == _SUB or code[at] == _LT or code[at] == _GT)


@register_jitable
def _pushed_selector(code: Array, at: int, after: int) -> Any:
    """The selector that the constant between an instruction and the next one can be; 0 if it is none."""
    width = after - at - 1
    if width == _WORD:
        return _number(code, at + 1, at + 5) if not code[at + 5 : after].any() else np.uint64(0)
    if after + 2 < len(code) and code[after] == _PUSH1 and code[after + 2] == _SHL:
        value = _number(code, at + 1, after) if width <= _WIDEST_SHIFTED else np.uint64(0)
        return _shifted(value, int(code[after + 1]))
    if 3 <= width <= 4 and not _is_compared(code, after):
        return _number(code, at + 1, after)
    return np.uint64(0)


@kernel(nogil=True)
def _scan(code: Array, effects: Array) -> tuple[Array, Array, Array, int, int, bool]:
    """The selectors as numbers, the places of the instructions that push topics, and of the words, the first byte of the
    returned part and the one after it, and whether code delegates. Some constants occur twice.
    """
    size = len(code)
    selectors, selectors_found = np.empty(size // 2 + 1, np.uint32), 0
    topics, topics_found = np.empty(size // (_LEAST_TOPIC + 1) + 1, np.int32), 0
    words, found = np.empty(size // 3 + 1, np.int32), 0  # of three bytes, two push what the third one copies
    stack, top = np.full(_DEPTH, _UNKNOWN, np.int64), 0
    place, start, end = _UNKNOWN, 0, 0  # of the part that was copied last: in memory, and in the code
    is_pushed = np.zeros(size, np.bool_)
    is_data, is_returned, delegates, has_called = False, False, False, False
    after = 0
    while after < size:
        at = after
        opcode = int(code[at])
        width = opcode - _PUSH0 if _PUSH0 < opcode <= _PUSH32 else 0
        after = at + 1 + width
        if width > 0 and after <= size:
            selector = _pushed_selector(code, at, after)
            if selector not in _RESERVED:
                selectors[selectors_found] = selector
                selectors_found += 1
            if width >= _LEAST_TOPIC:
                topics[topics_found] = at
                topics_found += 1
        if is_returned or (is_data and not (opcode == _JUMPDEST and is_pushed[at])):
            continue
        has_called |= opcode in _CALLS
        if opcode == _RETURNDATASIZE and not has_called:
            opcode = _PUSH0
        is_data = opcode in _ENDS
        value = -2 - at
        if _PUSH0 <= opcode <= _PUSH32:
            value = _constant(code, at + 1, min(after, size), value)
            if 0 <= value < size:
                is_pushed[value] = True
            top += 1
            stack[top % _DEPTH] = value
        elif _DUP1 <= opcode < _SWAP1:
            top += 1
            stack[top % _DEPTH] = stack[(top - 1 - opcode + _DUP1) % _DEPTH]
        elif _SWAP1 <= opcode <= _SWAP16:
            lower = (top - 1 - opcode + _SWAP1) % _DEPTH
            stack[top % _DEPTH], stack[lower] = stack[lower], stack[top % _DEPTH]
        else:
            first, second, third = stack[top % _DEPTH], stack[(top - 1) % _DEPTH], stack[(top - 2) % _DEPTH]
            for _ in range(effects[opcode] >> 1):
                stack[top % _DEPTH] = _UNKNOWN
                top -= 1
            if effects[opcode] & 1:
                top += 1
                stack[top % _DEPTH] = _computed(opcode, first, second, value)
            if opcode == _CODECOPY and second > 0 and third > 0 and second + third <= size:
                if third != _WORD:
                    place, start, end = first, second, second + third
                else:
                    words[found] = second
                    found += 1
            elif opcode == _RETURN and place != _UNKNOWN and first == place and second >= end - start:
                is_returned = True
            delegates |= opcode == _DELEGATECALL
    if not is_returned:
        start = end = 0
    return selectors[:selectors_found], topics[:topics_found], words[:found], start, end, delegates
