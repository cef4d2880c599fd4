"""Declarations in one canonical spelling: any written form that the grammar accepts in, one form out.

Invariants
    The types of a spelled declaration are those of the canonical text; only words and spaces are added.
    Spelling a spelled declaration gives it back.
    One speller: plain Python over sequences of byte values, compiled for batches, as in ``grammar.py``. Both are tested
    against each other.
    Depth and length are bounded: beyond ``MAX_DEPTH`` and ``MAX_DECLARATION_BYTES`` there is no declaration. A name
    of over ``MAX_NAME_BYTES`` is left out.

Theory
    ::

        declaration = function / event / error / bare
        function    = "function " name "(" list ")" [ " " mutability ] [ " returns (" list ")" ]
        event       = "event " name "(" list ")" [ " anonymous" ]
        error       = "error " name "(" list ")"
        bare        = name "(" list ")"                         ; where the source does not say the kind
        list        = [ parameter *( ", " parameter ) ]
        parameter   = type [ " indexed" ] [ " " name ]
        type        = ( word / "(" list ")" ) *( "[" *digit "]" )
        mutability  = "view" / "pure" / "payable"

    The keyword of a text decides its kind. Without one it is the kind that the input states, else an event where
    there is ``indexed`` or ``anonymous``, else a function where a word of a function follows the list.
    A text without a keyword and names adds nothing to the canonical text, so it has no declaration.
    A list of ``returns`` that cannot be read is left out.

Source: the ABI of the Solidity documentation, and ethers' Human-Readable ABI, which this form follows. Tuples have no
word `tuple`, as abitype writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba.extending import register_jitable

from sigdir.signatures.arrow import validity
from sigdir.signatures.columns import as_readonly
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import (
    MAX_TEXT_BYTES,
    OK,
    append,
    arrays,
    elementary,
    function_type_tail,
    is_anonymous,
    is_name_part,
    is_name_start,
    is_nonpayable,
    pack,
    packed,
    skip_balanced,
    skip_space,
    skip_word,
)
from sigdir.signatures.kernels import kernel, pointer

Array = npt.NDArray[Any]

MAX_DECLARATION_BYTES = 16_384
MAX_NAME_BYTES = 128
MAX_DEPTH = 32
"""Tuples within each other."""

RESERVED = frozenset(["calldata", "indexed", "memory", "payable", "storage"])
"""Words that cannot be a parameter's name, because they mean something where a name stands."""

FUNCTION_OR_ERROR = 255
"""What an input states that knows a text's collection and not its kind."""

_UNKNOWN, _FUNCTION, _EVENT, _ERROR = int(Kind.UNKNOWN), int(Kind.FUNCTION), int(Kind.EVENT), int(Kind.ERROR)
_FUNCTION_WORD, _EVENT_WORD, _ERROR_WORD = packed("function"), packed("event"), packed("error")
_TUPLE, _ADDRESS, _INDEXED = packed("tuple"), packed("address"), packed("indexed")
_MEMORY, _CALLDATA, _STORAGE, _PAYABLE = packed("memory"), packed("calldata"), packed("storage"), packed("payable")
_VIEW, _PURE, _CONSTANT, _RETURNS = packed("view"), packed("pure"), packed("constant"), packed("returns")
_EXTERNAL, _PUBLIC, _INTERNAL, _PRIVATE = packed("external"), packed("public"), packed("internal"), packed("private")
_VIRTUAL, _OVERRIDE = packed("virtual"), packed("override")
_ANONYMOUS_START, _ANONYMOUS_REST = packed(" anonymo"), packed("us")
_SPACE, _OPEN, _CLOSE, _COMMA, _LEFT = 0x20, 0x28, 0x29, 0x2C, 0x5B


@register_jitable
def _copy(text: Any, at: int, end: int, out: Any, length: int) -> int:
    for place in range(at, end):
        out[length] = text[place]
        length += 1
    return length


@register_jitable
def _parameter_words(text: Any, at: int, end: int, with_indexed: bool, out: Any, length: int) -> tuple[int, int, bool]:
    """Spell what follows a type: (place, new length, whether anything). The place is -1 for a wrong word."""
    name, name_end = 0, 0
    indexed = False
    while True:
        at = skip_space(text, at, end)
        if at == end or not is_name_part(text[at]):
            break
        stop = skip_word(text, at, end)
        word = pack(text, at, stop)
        if word == _INDEXED:
            indexed = True
        elif not (word == _MEMORY or word == _CALLDATA or word == _STORAGE or word == _PAYABLE):
            if name_end or not is_name_start(text[at]):
                return -1, length, False
            name, name_end = at, stop
        at = stop
    says_more = False
    if indexed and with_indexed:
        out[length] = _SPACE
        length = append(out, length + 1, _INDEXED)
        says_more = True
    if 0 < name_end - name <= MAX_NAME_BYTES:
        out[length] = _SPACE
        length = _copy(text, name, name_end, out, length + 1)
        says_more = True
    return at, length, says_more


@register_jitable
def _type(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, bool]:
    """Spell a type word, or the opening of a tuple: (place, new length, whether opened). The place is -1 for neither."""
    stop = skip_word(text, at, end)
    word = pack(text, at, stop)
    mark = skip_space(text, stop, end) if word == _TUPLE else at
    if mark < end and text[mark] == _OPEN:
        out[length] = _OPEN
        return mark + 1, length + 1, True
    reason, length = elementary(text, at, stop, out, length)
    if reason != OK:
        return -1, length, False
    if word == _ADDRESS:
        mark = skip_space(text, stop, end)
        after = skip_word(text, mark, end)
        if pack(text, mark, after) == _PAYABLE:
            stop = after
    elif word == _FUNCTION_WORD:
        stop = function_type_tail(text, stop, end)
    return stop, length, False


@register_jitable
def _list(text: Any, at: int, end: int, is_event: bool, out: Any, length: int) -> tuple[int, int, bool]:
    """Spell the parameters after an opening parenthesis: (place, new length, whether there are words beside the types).

    The place is that after the closing parenthesis, -1 if the list cannot be read.
    """
    depth = 1
    says_more = False
    wants_type = True
    may_close = True
    while True:
        at = skip_space(text, at, end)
        if at == end:
            return -1, length, False
        byte = text[at]
        if wants_type and not (may_close and byte == _CLOSE):
            at, length, opened = _type(text, at, end, out, length)
            if at < 0:
                return -1, length, False
            may_close = opened
            if opened:
                depth += 1
                if depth > MAX_DEPTH:
                    return -1, length, False
                continue
        elif byte == _CLOSE:
            out[length] = _CLOSE
            length += 1
            at += 1
            depth -= 1
            if depth == 0:
                return at, length, says_more
        elif byte == _COMMA:
            out[length] = _COMMA
            out[length + 1] = _SPACE
            length += 2
            at += 1
            wants_type = True
            may_close = False
            continue
        else:
            return -1, length, False
        wants_type = False
        reason, at, length = arrays(text, at, end, out, length)
        if reason != OK:
            return -1, length, False
        at, length, more = _parameter_words(text, at, end, is_event and depth == 1, out, length)
        if at < 0:
            return -1, length, False
        says_more = says_more or more


@register_jitable
def _tail(text: Any, at: int, end: int) -> tuple[int, bool, int, bool]:
    """What follows the list: (mutability as a packed word or 0, ``anonymous``, place of the list of returns or -1,
    whether there are words of a function).
    """
    mutability = 0
    anonymous = False
    returns = -1
    is_function = False
    while True:
        at = skip_space(text, at, end)
        if at == end or not is_name_start(text[at]):
            return mutability, anonymous, returns, is_function
        stop = skip_word(text, at, end)
        word = pack(text, at, stop)
        if is_anonymous(text, at, stop):
            anonymous = True
        elif word == _VIEW or word == _PURE or word == _PAYABLE:
            mutability = word
        elif word == _CONSTANT:
            mutability = _VIEW
        known = (
            word == _VIEW or word == _PURE or word == _PAYABLE or word == _CONSTANT or word == _RETURNS
            or word == _EXTERNAL or word == _PUBLIC or word == _INTERNAL or word == _PRIVATE
            or word == _VIRTUAL or word == _OVERRIDE or is_nonpayable(text, at, stop)
        )  # fmt: skip
        is_function = is_function or known
        at = skip_space(text, stop, end)
        if at < end and text[at] == _OPEN:
            if word == _RETURNS:
                returns = at + 1
            at = skip_balanced(text, at, end)
            if at < 0:
                return mutability, anonymous, returns, is_function


@register_jitable
def _has_indexed(text: Any, at: int, end: int) -> bool:
    while at < end:
        stop = skip_word(text, at, end)
        if pack(text, at, stop) == _INDEXED:
            return True
        at = max(stop, at + 1)
    return False


@register_jitable
def _spell(text: Any, start: int, end: int, kind: int, out: Any, length: int) -> tuple[int, int]:
    """Append the declaration ``text[start:end]`` to ``out[:length]``: (kind, new length).

    ``kind`` is what the input states beside the text. The length stays where there is no declaration. ``text`` is
    one that the grammar accepts; anything else has no declaration, or the one that a reader of its beginning sees.
    """
    first = length
    stated = kind if kind != FUNCTION_OR_ERROR else _UNKNOWN
    at = skip_space(text, start, end)
    name, stop = at, skip_word(text, at, end)
    mark = skip_space(text, stop, end)
    says_more = False
    if mark > stop and mark < end and is_name_start(text[mark]):
        word = pack(text, at, stop)
        if word == _FUNCTION_WORD:
            kind = _FUNCTION
        elif word == _EVENT_WORD:
            kind = _EVENT
        elif word == _ERROR_WORD:
            kind = _ERROR
        else:
            return stated, first
        says_more = True
        name, stop = mark, skip_word(text, mark, end)
        mark = skip_space(text, stop, end)
    if kind != FUNCTION_OR_ERROR:
        stated = kind
    if name == stop or not is_name_start(text[name]) or mark == end or text[mark] != _OPEN:
        return stated, first
    close = skip_balanced(text, mark, end)
    if close < 0 or end - start > MAX_TEXT_BYTES:
        return stated, first
    mutability, anonymous, returns, is_function = _tail(text, close, end)
    if kind == _UNKNOWN and (anonymous or _has_indexed(text, mark, close)):
        kind = _EVENT
    elif kind == _UNKNOWN or kind == FUNCTION_OR_ERROR:
        kind = _FUNCTION if is_function else _UNKNOWN
    if kind == _FUNCTION:
        length = append(out, length, _FUNCTION_WORD)
    elif kind == _EVENT:
        length = append(out, length, _EVENT_WORD)
    elif kind == _ERROR:
        length = append(out, length, _ERROR_WORD)
    if kind != _UNKNOWN:
        out[length] = _SPACE
        length += 1
    length = _copy(text, name, stop, out, length)
    out[length] = _OPEN
    at, length, named = _list(text, mark + 1, end, kind == _EVENT, out, length + 1)
    if at != close:
        return kind, first
    says_more = says_more or named or is_function
    if kind == _EVENT and anonymous:
        length = append(out, append(out, length, _ANONYMOUS_START), _ANONYMOUS_REST)
        says_more = True
    elif kind == _FUNCTION:
        if mutability:
            out[length] = _SPACE
            length = append(out, length + 1, mutability)
        if returns >= 0:
            length = _returns(text, returns, end, out, length)
    if not says_more or length - first > MAX_DECLARATION_BYTES:
        return kind, first
    return kind, length


@register_jitable
def _returns(text: Any, at: int, end: int, out: Any, length: int) -> int:
    """Append the list of returns; the length stays where it is empty or cannot be read."""
    first = length
    out[length] = _SPACE
    length = append(out, length + 1, _RETURNS)
    out[length] = _SPACE
    out[length + 1] = _OPEN
    begin = length + 2
    at, length, _ = _list(text, at, end, False, out, begin)
    return length if at >= 0 and length > begin + 1 else first


@kernel(nogil=True)
def _spell_rows(data: Array, starts: Array, ends: Array, kinds: Array, out: Array, offsets: Array) -> None:
    length = 0
    offsets[0] = 0
    for row in range(len(starts)):
        start, end, stated = int(starts[row]), int(ends[row]), int(kinds[row])  # other types are compiled again
        kind, length = _spell(pointer(data), start, end, stated, pointer(out), length)
        kinds[row] = kind
        offsets[row + 1] = length


@kernel()
def _spell_one(data: Array, kind: int, out: Array) -> tuple[int, int]:
    return _spell(pointer(data), 0, len(data), kind, pointer(out), 0)


def _room(size: int) -> int:
    """The most bytes that a declaration of ``size`` bytes is spelled in: `fixed,` becomes `fixed128x18, `."""
    return 3 * size + 64


@dataclass(frozen=True, slots=True)
class SpelledRows:
    """Row ``i`` has the kind ``kinds[i]`` and the declaration ``data[offsets[i]:offsets[i + 1]]``, empty for none."""

    kinds: Array  # uint8
    data: Array  # uint8
    offsets: Array  # int64, rows + 1

    def declarations(self) -> pa.StringArray:
        """The declarations as a column, null for none."""
        offsets = pa.py_buffer(self.offsets.astype(np.int32))
        return pa.StringArray.from_buffers(
            len(self.kinds), offsets, pa.py_buffer(self.data), validity(np.diff(self.offsets) > 0)
        )


def spell_rows(data: Array, starts: Array, ends: Array, kinds: Array) -> SpelledRows:
    """Spell the texts ``data[starts[i]:ends[i]]`` (uint8, int32, int32), which the grammar accepts.

    ``kinds`` (uint8) is what the input states for each row: numbers of ``Kind``, or FUNCTION_OR_ERROR.
    """
    room = _room(int((ends.astype(np.int64) - starts).sum())) + 64 * len(starts)
    found, out, offsets = kinds.astype(np.uint8), np.empty(room, np.uint8), np.empty(len(starts) + 1, np.int64)
    _spell_rows(as_readonly(data), as_readonly(starts), as_readonly(ends), found, out, offsets)
    return SpelledRows(found, out[: offsets[-1]], offsets)


class Spelled(NamedTuple):
    kind: Kind
    declaration: str
    """Empty for a text that says nothing that its canonical text does not say."""


_CACHED_BYTES = 1024
_KINDS = tuple(Kind)


def spelled(text: str, kind: Kind = Kind.UNKNOWN) -> Spelled:
    """The kind and the declaration of one text that the grammar accepts. ``kind`` is what the input states beside it."""
    if len(text) > _CACHED_BYTES:
        return _spelled(text, kind)
    return _cached(text, kind)


def _spelled(text: str, kind: Kind) -> Spelled:
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) > MAX_TEXT_BYTES:
        return Spelled(kind, "")
    out = np.empty(_room(len(raw)), np.uint8)
    found, length = _spell_one(np.frombuffer(raw, np.uint8), int(kind), out)
    return Spelled(_KINDS[found], out[:length].tobytes().decode("ascii"))


_cached = lru_cache(maxsize=1 << 14)(_spelled)
"""Contracts declare the same things: the ABI of every token has the same functions. A look-up takes 0.2 us."""
