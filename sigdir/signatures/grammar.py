"""The grammar of signatures: any written form in, canonical text or a reject out.

Invariants
    One grammar: the functions below are the only place that knows it. They are plain Python over
    sequences of byte values, so ``normalise`` runs them as they stand on ``bytes`` and
    ``bytearray`` for one text, and ``normalise_rows`` runs the same functions compiled by numba on
    arrays for many. ``tests/signatures/test_grammar.py`` holds the two equal.
    Normalising a canonical text gives that text back.
    Nesting has no limit but the length of a text: depth is a counter, there is no recursion.

Theory
    A declaration is read once from left to right. What follows a type does not depend on the
    tuple it stands in, so no stack is needed: an opening parenthesis counts up, a closing one
    down, and the declaration's own list ends where the count is back at zero.

    ::

        declaration = [ keyword ] name "(" list ")" tail
        keyword     = "function" / "event" / "error"
        name        = [A-Za-z_$] *[A-Za-z0-9_$]
        list        = [ parameter *( "," parameter ) ]
        parameter   = type *array *word            ; words: location, "indexed", one name
        type        = elementary / [ "tuple" ] "(" list ")" / "function" [ function-type-tail ]
        array       = "[" [ number ] "]"           ; a number from 1, without leading zeros
        tail        = *( word [ arguments ] / "returns" "(" ... ")" / "anonymous" ) [ ";" ]

    with white space between any two of these. The canonical text is the name and the list
    with every word, space and keyword left out and the aliases spelled out.

Where we differ from solc: the words of a tail and the types inside ``returns`` are not checked
(they are not part of the signature), and a name may be any identifier, keywords of the language
included, except the declaration's own keyword.

Source: the Solidity grammar (docs.soliditylang.org, "Language Grammar") and the ABI specification
("Function Selector"). The external function type stays ``function`` in the text, as solc writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.columns import as_readonly
from sigdir.signatures.errors import SigdirError
from sigdir.signatures.kernels import kernel, pointer

Array = npt.NDArray[Any]

MAX_TEXT_BYTES = 65_536
"""The longest text that is read, and the longest canonical text, in bytes."""

# The result of a row: zero, or its reject reason as an index into REASONS. The grammar gives those up to
# bad_entry, the readers bad_entry, placeholder, syntax and import_not_found, ``canonicalise`` encoding and
# hash_mismatch.
REASONS = (
    "",
    "empty",
    "too_long",
    "bad_name",
    "unknown_type",
    "bad_width",
    "bad_array",
    "unbalanced",
    "library_type",
    "too_many_indexed",
    "bad_entry",
    "encoding",
    "placeholder",
    "hash_mismatch",
    "syntax",
    "import_not_found",
)
OK = 0
EMPTY, TOO_LONG, BAD_NAME, UNKNOWN_TYPE, BAD_WIDTH, BAD_ARRAY, UNBALANCED = 1, 2, 3, 4, 5, 6, 7
LIBRARY_TYPE, TOO_MANY_INDEXED, BAD_ENTRY, ENCODING, PLACEHOLDER, HASH_MISMATCH = 8, 9, 10, 11, 12, 13
SYNTAX, IMPORT_NOT_FOUND = 14, 15


def packed(word: str) -> int:
    """Up to eight letters as one integer: words are compared as numbers, in both forms."""
    return int.from_bytes(word.encode(), "big")


_FUNCTION, _EVENT, _ERROR = packed("function"), packed("event"), packed("error")
_ADDRESS, _BOOL, _STRING, _TUPLE = (packed(w) for w in ("address", "bool", "string", "tuple"))
_UINT, _INT, _BYTES, _BYTE = (packed(w) for w in ("uint", "int", "bytes", "byte"))
_FIXED, _UFIXED, _MAPPING = (packed(w) for w in ("fixed", "ufixed", "mapping"))
_INDEXED, _MEMORY, _CALLDATA = (packed(w) for w in ("indexed", "memory", "calldata"))
_STORAGE, _PAYABLE, _RETURNS = (packed(w) for w in ("storage", "payable", "returns"))
_EXTERNAL, _PUBLIC, _INTERNAL = (packed(w) for w in ("external", "public", "internal"))
_PRIVATE, _PURE, _VIEW, _CONSTANT = (packed(w) for w in ("private", "pure", "view", "constant"))
_VIRTUAL, _OVERRIDE = packed("virtual"), packed("override")
# The two words of more than eight letters are recognised by their first letters and the packed rest.
_ANONYMOUS, _NONPAYABLE = packed("nonymous"), packed("npayable")

_TAB, _CR, _SPACE = 0x09, 0x0D, 0x20
_OPEN, _CLOSE, _COMMA, _SEMICOLON = 0x28, 0x29, 0x2C, 0x3B
_LEFT, _RIGHT, _DOT, _DOLLAR, _UNDERSCORE = 0x5B, 0x5D, 0x2E, 0x24, 0x5F
_ZERO, _NINE, _LOWER_X = 0x30, 0x39, 0x78


@register_jitable
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@register_jitable
def is_name_start(byte: int) -> bool:
    letter = byte | 0x20
    return 0x61 <= letter <= 0x7A or byte == _UNDERSCORE or byte == _DOLLAR


@register_jitable
def is_name_part(byte: int) -> bool:
    return is_name_start(byte) or _ZERO <= byte <= _NINE


@register_jitable
def skip_space(text: Any, at: int, end: int) -> int:
    while at < end and (text[at] == _SPACE or _TAB <= text[at] <= _CR):
        at += 1
    return at


@register_jitable
def skip_word(text: Any, at: int, end: int) -> int:
    while at < end and is_name_part(text[at]):
        at += 1
    return at


@register_jitable
def pack(text: Any, at: int, end: int) -> int:
    """The word ``text[at:end]`` as an integer, 0 where it is longer than eight bytes."""
    if end - at > 8:
        return 0
    word = 0
    for k in range(at, end):
        word = word << 8 | int(text[k])
    return word


@register_jitable
def is_anonymous(text: Any, at: int, end: int) -> bool:
    return end - at == 9 and text[at] == 0x61 and pack(text, at + 1, end) == _ANONYMOUS


@register_jitable
def is_nonpayable(text: Any, at: int, end: int) -> bool:
    # The first two letters as a number: "no".
    return end - at == 10 and pack(text, at, at + 2) == 0x6E6F and pack(text, at + 2, end) == _NONPAYABLE


@register_jitable
def skip_balanced(text: Any, at: int, end: int) -> int:
    """The place after the parenthesis that closes the one at ``at``; -1 where none does."""
    depth = 0
    while at < end:
        if text[at] == _OPEN:
            depth += 1
        elif text[at] == _CLOSE:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@register_jitable
def _number(text: Any, at: int, end: int) -> int:
    """The value of the digits ``text[at:end]``; -1 for none, a leading zero, over three digits."""
    if at == end or end - at > 3 or text[at] == _ZERO:
        return -1
    value = 0
    for k in range(at, end):
        value = value * 10 + int(text[k]) - _ZERO
    return value


@register_jitable
def _is_integer_width(value: int) -> bool:
    return 8 <= value <= 256 and value % 8 == 0


@register_jitable
def append(out: Any, at: int, word: int) -> int:
    """Append a packed word to ``out[:at]``, a leading space too; returns the new length."""
    shift = 56
    while shift >= 0:
        byte = (word >> shift) & 0xFF
        if byte != 0:
            out[at] = byte
            at += 1
        shift -= 8
    return at


_SUFFIX_256, _SUFFIX_S1 = packed("256"), packed("s1")
_SUFFIX_128X18 = packed("128x18")


@register_jitable
def elementary(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int]:
    """Append the type word ``text[at:end]`` in canonical spelling: (reason, new length)."""
    stem = at
    while stem < end and 0x61 <= text[stem] <= 0x7A:
        stem += 1
    kind = pack(text, at, stem)
    for k in range(at, end):
        out[length] = text[k]
        length += 1
    if stem == end:
        if kind == _ADDRESS or kind == _BOOL or kind == _STRING or kind == _BYTES or kind == _FUNCTION:
            return OK, length
        if kind == _UINT or kind == _INT:
            return OK, append(out, length, _SUFFIX_256)
        if kind == _BYTE:
            return OK, append(out, length, _SUFFIX_S1)
        if kind == _FIXED or kind == _UFIXED:
            return OK, append(out, length, _SUFFIX_128X18)
        return UNKNOWN_TYPE, length
    digits = stem
    while digits < end and _is_digit(text[digits]):
        digits += 1
    if kind == _UINT or kind == _INT or kind == _BYTES:
        if digits < end:
            return UNKNOWN_TYPE, length
        value = _number(text, stem, end)
        good = 1 <= value <= 32 if kind == _BYTES else _is_integer_width(value)
        return OK if good else BAD_WIDTH, length
    if kind == _FIXED or kind == _UFIXED:
        if digits == end:
            return BAD_WIDTH, length
        for k in range(digits + 1, end):
            if not _is_digit(text[k]):
                return UNKNOWN_TYPE, length
        if digits == stem or text[digits] != _LOWER_X:
            return UNKNOWN_TYPE, length
        if _is_integer_width(_number(text, stem, digits)) and 1 <= _number(text, digits + 1, end) <= 80:
            return OK, length
        return BAD_WIDTH, length
    return UNKNOWN_TYPE, length


@register_jitable
def _is_library_type(text: Any, at: int, end: int) -> bool:
    """Whether the unknown type word at ``at`` belongs to a library: ``L.T``, ``T storage``, a mapping.

    The selectors of library functions are made from other texts, so these types have a reason of their own.
    """
    stop = skip_word(text, at, end)
    if pack(text, at, stop) == _MAPPING or (stop < end and text[stop] == _DOT):
        return True
    stop = skip_space(text, stop, end)
    while stop < end and (text[stop] == _LEFT or text[stop] == _RIGHT or _is_digit(text[stop])):
        stop = skip_space(text, stop + 1, end)
    return pack(text, stop, skip_word(text, stop, end)) == _STORAGE


@register_jitable
def arrays(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, int]:
    """Append the array suffixes that begin at ``at``: (reason, place, new length)."""
    while True:
        mark = skip_space(text, at, end)
        if mark == end or text[mark] != _LEFT:
            return OK, at, length
        out[length] = _LEFT
        length += 1
        at = skip_space(text, mark + 1, end)
        if at < end and text[at] == _ZERO:
            return BAD_ARRAY, mark, length
        while at < end and _is_digit(text[at]):
            out[length] = text[at]
            length += 1
            at += 1
        at = skip_space(text, at, end)
        if at == end or text[at] != _RIGHT:
            return BAD_ARRAY, mark, length
        out[length] = _RIGHT
        length += 1
        at += 1


@register_jitable
def function_type_tail(text: Any, at: int, end: int) -> int:
    """Skip ``(...) external view returns (...)`` of a function type; -1 where it does not close."""
    mark = skip_space(text, at, end)
    if mark == end or text[mark] != _OPEN:
        return at
    at = skip_balanced(text, mark, end)
    while at >= 0:
        mark = skip_space(text, at, end)
        stop = skip_word(text, mark, end)
        word = pack(text, mark, stop)
        if word == _RETURNS:
            mark = skip_space(text, stop, end)
            if mark == end or text[mark] != _OPEN:
                return -1
            return skip_balanced(text, mark, end)
        if not (word == _EXTERNAL or word == _VIEW or word == _PURE or word == _PAYABLE):
            return at
        at = stop
    return at


@register_jitable
def _parameter_words(text: Any, at: int, end: int) -> tuple[int, int, int]:
    """Skip what follows a type up to the next mark: (reason, place, times ``indexed``)."""
    indexed = 0
    named = False
    while True:
        at = skip_space(text, at, end)
        if at == end or not is_name_part(text[at]):
            return OK, at, indexed
        stop = skip_word(text, at, end)
        word = pack(text, at, stop)
        if word == _STORAGE:
            return LIBRARY_TYPE, at, indexed
        if word == _INDEXED:
            indexed += 1
        elif not (word == _MEMORY or word == _CALLDATA or word == _PAYABLE):
            if named or not is_name_start(text[at]):
                return BAD_NAME, at, indexed
            named = True
        at = stop


@register_jitable
def _may_follow(text: Any, at: int, end: int, keyword: int) -> bool:
    """Whether a word may follow a list: any in a `function`, none in an `event` or `error`, and in a
    bare signature those that belong to the language.
    """
    if keyword != 0:
        return keyword == _FUNCTION
    word = pack(text, at, end)
    return (
        word == _EXTERNAL or word == _PUBLIC or word == _INTERNAL or word == _PRIVATE
        or word == _PURE or word == _VIEW or word == _PAYABLE or word == _CONSTANT
        or word == _VIRTUAL or word == _OVERRIDE or word == _RETURNS
        or is_nonpayable(text, at, end)
    )  # fmt: skip


@register_jitable
def _tail(text: Any, at: int, end: int, keyword: int) -> tuple[int, int, bool]:
    """Read what follows the parameter list: (reason, place, whether ``anonymous``)."""
    anonymous = False
    # After a bare signature a word must stand apart, so that `foo()x` is not one.
    apart = keyword != 0
    while True:
        mark = skip_space(text, at, end)
        if mark == end:
            return OK, mark, anonymous
        if text[mark] == _SEMICOLON:
            mark = skip_space(text, mark + 1, end)
            return OK if mark == end else BAD_ENTRY, mark, anonymous
        if text[mark] == _CLOSE:
            return UNBALANCED, mark, anonymous
        if not is_name_start(text[mark]) or not (apart or mark > at):
            return BAD_ENTRY, mark, anonymous
        stop = skip_word(text, mark, end)
        word = pack(text, mark, stop)
        if is_anonymous(text, mark, stop) and keyword != _ERROR:
            anonymous = True
            at = stop
            continue
        if not _may_follow(text, mark, stop, keyword):
            return BAD_ENTRY, mark, anonymous
        at = stop
        mark = skip_space(text, at, end)
        if mark < end and text[mark] == _OPEN:
            at = skip_balanced(text, mark, end)
            if at < 0:
                return UNBALANCED, end, anonymous
            apart = True
        elif word == _RETURNS:
            return BAD_ENTRY, mark, anonymous


@register_jitable
def _type(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, int, bool]:
    """Read a type word, or the opening of a tuple: (reason, place, new length, whether opened)."""
    stop = skip_word(text, at, end)
    word = pack(text, at, stop)
    mark = at
    if word == _TUPLE:
        mark = skip_space(text, stop, end)
    if mark < end and text[mark] == _OPEN:
        out[length] = _OPEN
        return OK, mark + 1, length + 1, True
    reason, length = elementary(text, at, stop, out, length)
    if reason != OK:
        if reason == UNKNOWN_TYPE and _is_library_type(text, at, end):
            reason = LIBRARY_TYPE
        return reason, at, length, False
    if word == _ADDRESS:  # `address payable[]`: the word belongs to the type, arrays may follow
        mark = skip_space(text, stop, end)
        after = skip_word(text, mark, end)
        if pack(text, mark, after) == _PAYABLE:
            stop = after
    elif word == _FUNCTION:
        stop = function_type_tail(text, stop, end)
        if stop < 0:
            return UNBALANCED, end, length, False
    return OK, stop, length, False


@register_jitable
def _list(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, int, int]:
    """Read the parameter list after its ``(``: (reason, place, new length, times ``indexed``)."""
    depth = 1
    indexed = 0
    wants_type = True
    may_close = True  # directly after an opening parenthesis: the list may be empty
    while True:
        at = skip_space(text, at, end)
        if at == end:
            return UNBALANCED, at, length, indexed
        byte = text[at]
        if wants_type and not (may_close and byte == _CLOSE):
            reason, at, length, opened = _type(text, at, end, out, length)
            if reason != OK:
                return reason, at, length, indexed
            may_close = opened
            if opened:
                depth += 1
                continue
        elif byte == _CLOSE:
            out[length] = _CLOSE
            length += 1
            at += 1
            depth -= 1
            if depth == 0:
                return OK, at, length, indexed
        elif byte == _COMMA:
            out[length] = _COMMA
            length += 1
            at += 1
            wants_type = True
            may_close = False
            continue
        else:
            return BAD_ARRAY if byte == _LEFT or byte == _RIGHT else BAD_NAME, at, length, indexed
        wants_type = False
        reason, at, length = arrays(text, at, end, out, length)
        if reason != OK:
            return reason, at, length, indexed
        reason, at, times = _parameter_words(text, at, end)
        if reason != OK:
            return reason, at, length, indexed
        indexed += times


@register_jitable
def _declaration(
    text: Any, start: int, end: int, declared_kind: int, default_kind: int, out: Any, length: int
) -> tuple[int, int, int, int]:
    """Append the canonical form of ``text[start:end]`` to ``out[:length]``: (reason, place, length, collection).

    The collection is that of the declaration's own keyword, else ``declared_kind`` (what the input states beside
    the text, or UNKNOWN), else events where there is ``indexed`` or ``anonymous``, else ``default_kind``.
    ``place`` is where a reject was noticed, counted like ``start``.
    """
    at = skip_space(text, start, end)
    if at == end:
        return EMPTY, at, length, declared_kind
    if end - start > MAX_TEXT_BYTES:
        return TOO_LONG, start + MAX_TEXT_BYTES, length, declared_kind
    first = length
    name = at
    stop = skip_word(text, at, end)
    keyword = 0
    mark = skip_space(text, stop, end)
    if mark > stop and mark < end and is_name_start(text[mark]):
        keyword = pack(text, at, stop)
        if not (keyword == _FUNCTION or keyword == _EVENT or keyword == _ERROR):
            return BAD_NAME, mark, length, declared_kind
        name = mark
        stop = skip_word(text, name, end)
        mark = skip_space(text, stop, end)
    if keyword == _EVENT:
        collection = EVENTS
    elif keyword != 0:
        collection = FUNCTIONS
    else:
        collection = declared_kind
    if name == stop or not is_name_start(text[name]):
        return BAD_NAME, name, length, collection
    if mark == end or text[mark] != _OPEN:
        if mark == end:
            return BAD_ENTRY, mark, length, collection
        return UNBALANCED if text[mark] == _CLOSE else BAD_NAME, mark, length, collection
    for k in range(name, stop):
        out[length] = text[k]
        length += 1
    out[length] = _OPEN
    reason, at, length, indexed = _list(text, mark + 1, end, out, length + 1)
    if reason != OK:
        return reason, at, first, collection
    reason, at, anonymous = _tail(text, at, end, keyword)
    if reason != OK:
        return reason, at, first, collection
    if collection == UNKNOWN:
        collection = EVENTS if indexed > 0 or anonymous else default_kind
    word = pack(text, name, stop)
    if word == (_EVENT if collection == EVENTS else _FUNCTION):
        return BAD_NAME, name, first, collection
    if collection == EVENTS and indexed > (4 if anonymous else 3):
        return TOO_MANY_INDEXED, name, first, collection
    if length - first > MAX_TEXT_BYTES:
        return TOO_LONG, start + MAX_TEXT_BYTES, first, collection
    return OK, at, length, collection


_DEAD, _BEGIN, _NAME, _AFTER_OPEN, _AFTER_COMMA, _AFTER_TYPE, _BRACKET, _LENGTH = range(8)


def _canonical_automaton() -> Array:
    """The transitions of an automaton that walks canonical texts: uint8, state * 256 + byte.

    It knows every type word but the fixed-point ones (no real text has them) and counts no
    parentheses; the caller does. The names `function` and `event` die at their parenthesis, because
    whether they are refused depends on the collection.
    """
    words = ["address", "bool", "string", "bytes", "function"]
    words += [f"bytes{n}" for n in range(1, 33)]
    words += [f"{sign}int{n}" for sign in ("u", "") for n in range(8, 257, 8)]
    rows: list[dict[int, int]] = [{} for _ in range(8)]

    def walk(state: int, word: str, otherwise: dict[int, int]) -> int:
        """The state after ``word``; new states on the way continue like ``otherwise``."""
        for byte in word.encode():
            if rows[state].get(byte, _DEAD) < 8:
                rows.append(dict(otherwise))
                rows[state][byte] = len(rows) - 1
            state = rows[state][byte]
        return state

    digits = range(_ZERO, _NINE + 1)
    starts = [byte for byte in range(128) if is_name_start(byte)]
    rows[_BEGIN] = dict.fromkeys(starts, _NAME)
    rows[_NAME] = dict.fromkeys([*starts, *digits], _NAME) | {_OPEN: _AFTER_OPEN}
    for word in ("function", "event"):
        rows[walk(_BEGIN, word, rows[_NAME])].pop(_OPEN)
    after_type = {_COMMA: _AFTER_COMMA, _CLOSE: _AFTER_TYPE, _LEFT: _BRACKET}
    for word in words:
        rows[walk(_AFTER_COMMA, word, {})].update(after_type)
    rows[_AFTER_COMMA][_OPEN] = _AFTER_OPEN
    rows[_AFTER_OPEN] = rows[_AFTER_COMMA] | {_CLOSE: _AFTER_TYPE}
    rows[_AFTER_TYPE] = after_type
    rows[_BRACKET] = dict.fromkeys(digits[1:], _LENGTH) | {_RIGHT: _AFTER_TYPE}
    rows[_LENGTH] = dict.fromkeys(digits, _LENGTH) | {_RIGHT: _AFTER_TYPE}
    table = np.zeros((len(rows), 256), np.uint8)
    for state, row in enumerate(rows):
        for byte, following in row.items():
            table[state, byte] = following
    return table.ravel()


_AUTOMATON = _canonical_automaton()


@kernel(nogil=True)
def _is_canonical(data: Array, start: Any, end: Any) -> bool:
    """Whether ``data[start:end]`` is canonical; False may also mean that the grammar must decide.

    98.8 % of real candidates are, and one table look-up a byte is nearly three times faster than parsing
    the text (``benchmarks/bench_hash.py``).
    """
    state = np.uint32(_BEGIN)
    depth = 0
    for at in range(np.uint64(start), np.uint64(end)):
        byte = data[at]
        state = np.uint32(_AUTOMATON[(state << np.uint32(8)) | np.uint32(byte)])
        if byte == _OPEN:
            depth += 1
        elif byte == _CLOSE:
            depth -= 1
            if depth <= 0:
                return bool(state == _AFTER_TYPE and at + np.uint64(1) == np.uint64(end))
        if state == _DEAD:
            return False
    return False


@kernel(nogil=True)
def declarations(
    data: Array, starts: Array, ends: Array, declared_kinds: Array, default_kind: int,
    out: Array, offsets: Array, reasons: Array, columns: Array, collections: Array, as_written: Array,
) -> None:  # fmt: skip
    length = 0
    offsets[0] = 0
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        if end - start <= MAX_TEXT_BYTES and _is_canonical(data, start, end):
            to = np.uint64(length)
            for at in range(np.uint64(start), np.uint64(end)):
                out[to] = data[at]
                to += np.uint64(1)
            length += end - start
            reasons[row] = OK
            columns[row] = 0
            as_written[row] = True
            collections[row] = default_kind if declared_kinds[row] == UNKNOWN else declared_kinds[row]
        else:
            reason, place, length, collection = _declaration(
                pointer(data), start, end, declared_kinds[row], default_kind, pointer(out), length
            )
            reasons[row] = reason
            columns[row] = place - start + 1 if reason != OK else 0
            as_written[row] = False
            collections[row] = collection
        offsets[row + 1] = length


@dataclass(frozen=True, slots=True)
class Normalised:
    """The result on a batch, one row each candidate.

    Row ``i`` has the canonical text ``data[offsets[i]:offsets[i + 1]]`` (empty for a reject), the
    reason ``reasons[i]`` (an index into REASONS, 0 for none), the column where a reject was noticed
    (from 1, in bytes of the text as read) and its collection (FUNCTIONS or EVENTS; UNKNOWN for a reject
    whose input states none). ``as_written`` is set if the text was read as canonical; the text of another row may be
    canonical too (of fixed-point types).
    """

    data: Array  # uint8
    offsets: Array  # int32, rows + 1
    reasons: Array  # uint8
    columns: Array  # int32
    collections: Array  # uint8
    as_written: Array  # bool


def normalise_rows(
    data: Array, starts: Array, ends: Array, declared_kinds: Array, default_kind: int = FUNCTIONS
) -> Normalised:
    """Normalise the candidates ``data[starts[i]:ends[i]]``.

    ``data`` is uint8; ``starts`` and ``ends`` are int32; ``declared_kinds`` is uint8 of the same length, the
    collection that the input states for each row, or UNKNOWN. Texts must be UTF-8: ``canonicalise`` checks that.
    """
    rows = len(starts)
    # An alias at most doubles a text: `int,` becomes `int256,`, `fixed,` becomes `fixed128x18,`.
    room = 2 * int((ends.astype(np.int64) - starts).clip(max=MAX_TEXT_BYTES).sum()) + 16
    result = Normalised(
        np.empty(room, np.uint8), np.empty(rows + 1, np.int32), np.empty(rows, np.uint8),
        np.empty(rows, np.int32), np.empty(rows, np.uint8), np.empty(rows, np.bool_),
    )  # fmt: skip
    declarations(
        as_readonly(data), as_readonly(starts), as_readonly(ends), as_readonly(declared_kinds), default_kind,
        result.data, result.offsets, result.reasons, result.columns, result.collections, result.as_written,
    )  # fmt: skip
    return result


@dataclass(frozen=True, slots=True)
class Signature:
    """One normalised text and the collection it belongs to (FUNCTIONS or EVENTS)."""

    text: str
    collection: int


class GrammarError(SigdirError, ValueError):
    """A text that cannot be normalised: ``reason`` (one of REASONS) and ``column`` (from 1, in bytes).

    The message has the fragment at the column: unknown type 'uint7x' at column 3 in 'f(uint7x)'.
    """

    def __init__(self, reason: str, column: int, text: str) -> None:
        shown = text if len(text) <= 200 else text[:200] + "..."
        word = _FRAGMENT.match(text, column - 1) if text.isascii() else None
        fragment = f" {word[0]!r}" if word else ""
        super().__init__(f"{reason.replace('_', ' ')}{fragment} at column {column} in {shown!r}")
        self.reason = reason
        self.column = column


_FRAGMENT = re.compile(r"[A-Za-z0-9_$]{1,40}")


def normalise(text: str | bytes, declared_kind: int = UNKNOWN, default_kind: int = FUNCTIONS) -> Signature:
    """Normalise one text; raises GrammarError. The same grammar as ``normalise_rows``."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    shown = raw[:MAX_TEXT_BYTES].decode(errors="backslashreplace")
    if len(raw) <= MAX_TEXT_BYTES:
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise GrammarError("encoding", error.start + 1, shown) from None
    out = bytearray(2 * min(len(raw), MAX_TEXT_BYTES) + 16)
    reason, place, length, collection = _declaration(raw, 0, len(raw), declared_kind, default_kind, out, 0)
    if reason != OK:
        raise GrammarError(REASONS[reason], place + 1, shown)
    return Signature(out[:length].decode("ascii"), collection)


def is_signature(text: str | bytes) -> bool:
    """Whether ``normalise`` accepts a text."""
    try:
        normalise(text)
    except GrammarError:
        return False
    return True
