"""The grammar of signatures: any written form in, canonical text or a reject out.

Invariants
    One grammar: the functions below are the only place that knows it. They are plain Python over
    sequences of byte values, so ``normalise`` runs them as they stand on ``bytes`` and
    ``bytearray`` for one text, and ``grammar_rows.py`` runs the same functions compiled by numba on
    arrays for many. ``tests/signatures/test_grammar.py`` holds the two equal.
    A text is read once: what a canonical text leaves out is noted on the way, and ``grammar_rows.py`` needs no reader.
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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.errors import SigdirError

Function = TypeVar("Function", bound=Callable[..., Any])

JITABLE: list[Callable[..., Any]] = []
"""The functions that are parts of kernels too. ``grammar_rows.py`` tells numba, which a small pack is read without."""


def jitable(function: Function) -> Function:
    """Note a function in ``JITABLE``, and leave it as it is."""
    JITABLE.append(function)
    return function


MAX_TEXT_BYTES = 65_536
"""The longest text that is read, and the longest canonical text, in bytes."""

# The result of a row: zero, or its reject reason as an index into REASONS. The numbers below have the same order. The
# grammar gives those up to bad_entry, the readers bad_entry, placeholder, syntax and import_not_found, ``canonicalise``
# encoding and hash_mismatch.
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
(
    OK, EMPTY, TOO_LONG, BAD_NAME, UNKNOWN_TYPE, BAD_WIDTH, BAD_ARRAY, UNBALANCED, LIBRARY_TYPE, TOO_MANY_INDEXED,
    BAD_ENTRY, ENCODING, PLACEHOLDER, HASH_MISMATCH, SYNTAX, IMPORT_NOT_FOUND,
) = range(len(REASONS))  # fmt: skip


def packed(word: str) -> int:
    """Up to eight letters as one integer: words are compared as numbers, in both forms."""
    return int.from_bytes(word.encode(), "big")


FUNCTION_WORD, EVENT_WORD, ERROR_WORD = packed("function"), packed("event"), packed("error")
_ADDRESS, _BOOL, _STRING, _TUPLE = (packed(w) for w in ("address", "bool", "string", "tuple"))
_UINT, _INT, _BYTES, _BYTE = (packed(w) for w in ("uint", "int", "bytes", "byte"))
_FIXED, _UFIXED, _MAPPING = (packed(w) for w in ("fixed", "ufixed", "mapping"))
INDEXED, _MEMORY, _CALLDATA = (packed(w) for w in ("indexed", "memory", "calldata"))
_STORAGE, _PAYABLE, RETURNS = (packed(w) for w in ("storage", "payable", "returns"))
_EXTERNAL, _PUBLIC, _INTERNAL = (packed(w) for w in ("external", "public", "internal"))
_PRIVATE, _PURE, VIEW, _CONSTANT = (packed(w) for w in ("private", "pure", "view", "constant"))
_VIRTUAL, _OVERRIDE = packed("virtual"), packed("override")
# The two words of more than eight letters are recognised by their first letters and the packed rest.
_ANONYMOUS, _NONPAYABLE = packed("nonymous"), packed("npayable")

_TAB, _CR, SPACE = 0x09, 0x0D, 0x20
OPEN, CLOSE, COMMA, _SEMICOLON = 0x28, 0x29, 0x2C, 0x3B
_LEFT, _RIGHT, _DOT, _DOLLAR, _UNDERSCORE = 0x5B, 0x5D, 0x2E, 0x24, 0x5F
_ZERO, _NINE, _LOWER_X = 0x30, 0x39, 0x78


# What is noted of a text beside its canonical form, for the speller: numbers in an array, or in a dict. Places are those
# of the text as read, but for the first number of a note.
KEYWORD, MUTABILITY, ANONYMOUS, HAS_TAIL, RETURNS_AT, NOTED, FIRST_NOTE = range(7)
"""The keyword and the mutability as packed words or 0, whether ``anonymous`` and whether words of a function follow the
list, the place after the ``(`` of the returns or -1, the end of the notes, and the first note.
"""
NOTE_SIZE = 4
"""A note is of a parameter with words: the place in the canonical text where its type ends, how often ``indexed`` stands
there, and where its name begins and ends.
"""


@jitable
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@jitable
def is_name_start(byte: int) -> bool:
    letter = byte | 0x20
    return 0x61 <= letter <= 0x7A or byte == _UNDERSCORE or byte == _DOLLAR


@jitable
def _is_name_part(byte: int) -> bool:
    return is_name_start(byte) or _ZERO <= byte <= _NINE


@jitable
def _skip_space(text: Any, at: int, end: int) -> int:
    while at < end and (text[at] == SPACE or _TAB <= text[at] <= _CR):
        at += 1
    return at


@jitable
def _read_word(text: Any, at: int, end: int) -> tuple[int, int]:
    """Where the word at ``at`` ends, and its letters as an integer, 0 where it has none or more than eight."""
    stop = at
    word = 0
    while stop < end and _is_name_part(text[stop]):
        if stop - at < 8:
            word = word << 8 | int(text[stop])
        stop += 1
    return stop, word if stop - at <= 8 else 0


@jitable
def _pack(text: Any, at: int, end: int) -> int:
    """The word ``text[at:end]`` as an integer, 0 where it is longer than eight bytes."""
    if end - at > 8:
        return 0
    word = 0
    for k in range(at, end):
        word = word << 8 | int(text[k])
    return word


@jitable
def _is_anonymous(text: Any, at: int, end: int) -> bool:
    return end - at == 9 and text[at] == 0x61 and _pack(text, at + 1, end) == _ANONYMOUS


@jitable
def _is_nonpayable(text: Any, at: int, end: int) -> bool:
    # The first two letters as a number: "no".
    return end - at == 10 and _pack(text, at, at + 2) == 0x6E6F and _pack(text, at + 2, end) == _NONPAYABLE


@jitable
def _skip_balanced(text: Any, at: int, end: int) -> int:
    """The place after the parenthesis that closes the one at ``at``; -1 where none does."""
    depth = 0
    while at < end:
        if text[at] == OPEN:
            depth += 1
        elif text[at] == CLOSE:
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    return -1


@jitable
def _number(text: Any, at: int, end: int) -> int:
    """The value of the digits ``text[at:end]``; -1 for none, a leading zero, over three digits."""
    if at == end or end - at > 3 or text[at] == _ZERO:
        return -1
    value = 0
    for k in range(at, end):
        value = value * 10 + int(text[k]) - _ZERO
    return value


@jitable
def _is_integer_width(value: int) -> bool:
    return 8 <= value <= 256 and value % 8 == 0


@jitable
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


@jitable
def _elementary(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int]:
    """Append the type word ``text[at:end]`` in canonical spelling: (reason, new length)."""
    stem = at
    while stem < end and 0x61 <= text[stem] <= 0x7A:
        stem += 1
    kind = _pack(text, at, stem)
    for k in range(at, end):
        out[length] = text[k]
        length += 1
    if stem == end:
        if kind == _ADDRESS or kind == _BOOL or kind == _STRING or kind == _BYTES or kind == FUNCTION_WORD:
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


@jitable
def _is_library_type(text: Any, at: int, end: int) -> bool:
    """Whether the unknown type word at ``at`` belongs to a library: ``L.T``, ``T storage``, a mapping.

    The selectors of library functions are made from other texts, so these types have a reason of their own.
    """
    stop, word = _read_word(text, at, end)
    if word == _MAPPING or (stop < end and text[stop] == _DOT):
        return True
    stop = _skip_space(text, stop, end)
    while stop < end and (text[stop] == _LEFT or text[stop] == _RIGHT or _is_digit(text[stop])):
        stop = _skip_space(text, stop + 1, end)
    _, word = _read_word(text, stop, end)
    return word == _STORAGE


@jitable
def _arrays(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, int]:
    """Append the array suffixes that begin at ``at``: (reason, place, new length)."""
    while True:
        mark = _skip_space(text, at, end)
        if mark == end or text[mark] != _LEFT:
            return OK, at, length
        out[length] = _LEFT
        length += 1
        at = _skip_space(text, mark + 1, end)
        if at < end and text[at] == _ZERO:
            return BAD_ARRAY, mark, length
        while at < end and _is_digit(text[at]):
            out[length] = text[at]
            length += 1
            at += 1
        at = _skip_space(text, at, end)
        if at == end or text[at] != _RIGHT:
            return BAD_ARRAY, mark, length
        out[length] = _RIGHT
        length += 1
        at += 1


@jitable
def _function_type_tail(text: Any, at: int, end: int) -> int:
    """Skip ``(...) external view returns (...)`` of a function type; -1 where it does not close."""
    mark = _skip_space(text, at, end)
    if mark == end or text[mark] != OPEN:
        return at
    at = _skip_balanced(text, mark, end)
    while at >= 0:
        mark = _skip_space(text, at, end)
        stop, word = _read_word(text, mark, end)
        if word == RETURNS:
            mark = _skip_space(text, stop, end)
            if mark == end or text[mark] != OPEN:
                return -1
            return _skip_balanced(text, mark, end)
        if not (word == _EXTERNAL or word == VIEW or word == _PURE or word == _PAYABLE):
            return at
        at = stop
    return at


@jitable
def _parameter_words(text: Any, at: int, end: int, out_at: int, notes: Any) -> tuple[int, int, int]:
    """Read what follows a type up to the next mark, and note it: (reason, place, times ``indexed``).

    ``out_at`` is where the type ends in the canonical text.
    """
    indexed = 0
    name = name_end = at
    while True:
        at = _skip_space(text, at, end)
        if at == end or not _is_name_part(text[at]):
            break
        stop, word = _read_word(text, at, end)
        if word == _STORAGE:
            return LIBRARY_TYPE, at, indexed
        if word == INDEXED:
            indexed += 1
        elif not (word == _MEMORY or word == _CALLDATA or word == _PAYABLE):
            if name != name_end or not is_name_start(text[at]):
                return BAD_NAME, at, indexed
            name, name_end = at, stop
        at = stop
    if indexed > 0 or name != name_end:
        noted = notes[NOTED]
        notes[noted] = out_at
        notes[noted + 1] = indexed
        notes[noted + 2] = name
        notes[noted + 3] = name_end
        notes[NOTED] = noted + NOTE_SIZE
    return OK, at, indexed


@jitable
def _may_follow(text: Any, at: int, end: int, word: int, keyword: int) -> bool:
    """Whether a word may follow a list: any in a `function`, none in an `event` or `error`, and in a
    bare signature those that belong to the language.
    """
    if keyword != 0:
        return keyword == FUNCTION_WORD
    return (
        word == _EXTERNAL or word == _PUBLIC or word == _INTERNAL or word == _PRIVATE
        or word == _PURE or word == VIEW or word == _PAYABLE or word == _CONSTANT
        or word == _VIRTUAL or word == _OVERRIDE or word == RETURNS
        or _is_nonpayable(text, at, end)
    )  # fmt: skip


@jitable
def _note_word(word: int, notes: Any) -> None:
    """Note a word of a function's tail; the last one that says a mutability decides."""
    notes[HAS_TAIL] = 1
    if word == VIEW or word == _PURE or word == _PAYABLE:
        notes[MUTABILITY] = word
    elif word == _CONSTANT:
        notes[MUTABILITY] = VIEW


@jitable
def _tail(text: Any, at: int, end: int, keyword: int, notes: Any) -> tuple[int, int]:
    """Read what follows the parameter list, and note it: (reason, place)."""
    notes[MUTABILITY] = notes[ANONYMOUS] = notes[HAS_TAIL] = 0
    notes[RETURNS_AT] = -1
    # After a bare signature a word must stand apart, so that `foo()x` is not one.
    apart = keyword != 0
    while True:
        mark = _skip_space(text, at, end)
        if mark == end:
            return OK, mark
        if text[mark] == _SEMICOLON:
            mark = _skip_space(text, mark + 1, end)
            return OK if mark == end else BAD_ENTRY, mark
        if text[mark] == CLOSE:
            return UNBALANCED, mark
        if not is_name_start(text[mark]) or not (apart or mark > at):
            return BAD_ENTRY, mark
        stop, word = _read_word(text, mark, end)
        if _is_anonymous(text, mark, stop) and keyword != ERROR_WORD:
            notes[ANONYMOUS] = 1
            at = stop
            continue
        if not _may_follow(text, mark, stop, word, keyword):
            return BAD_ENTRY, mark
        _note_word(word, notes)
        at = stop
        mark = _skip_space(text, at, end)
        if mark < end and text[mark] == OPEN:
            if word == RETURNS:
                notes[RETURNS_AT] = mark + 1
            at = _skip_balanced(text, mark, end)
            if at < 0:
                return UNBALANCED, end
            apart = True
        elif word == RETURNS:
            return BAD_ENTRY, mark


@jitable
def _type(text: Any, at: int, end: int, out: Any, length: int) -> tuple[int, int, int, bool]:
    """Read a type word, or the opening of a tuple: (reason, place, new length, whether opened)."""
    stop, word = _read_word(text, at, end)
    mark = at
    if word == _TUPLE:
        mark = _skip_space(text, stop, end)
    if mark < end and text[mark] == OPEN:
        out[length] = OPEN
        return OK, mark + 1, length + 1, True
    reason, length = _elementary(text, at, stop, out, length)
    if reason != OK:
        if reason == UNKNOWN_TYPE and _is_library_type(text, at, end):
            reason = LIBRARY_TYPE
        return reason, at, length, False
    if word == _ADDRESS:  # `address payable[]`: the word belongs to the type, arrays may follow
        mark = _skip_space(text, stop, end)
        after, second = _read_word(text, mark, end)
        if second == _PAYABLE:
            stop = after
    elif word == FUNCTION_WORD:
        stop = _function_type_tail(text, stop, end)
        if stop < 0:
            return UNBALANCED, end, length, False
    return OK, stop, length, False


@jitable
def parameter_list(text: Any, at: int, end: int, out: Any, length: int, notes: Any) -> tuple[int, int, int, int]:
    """Read a parameter list after its ``(``: (reason, place, new length, times ``indexed``)."""
    depth = 1
    indexed = 0
    wants_type = True
    may_close = True  # directly after an opening parenthesis: the list may be empty
    notes[NOTED] = FIRST_NOTE
    while True:
        at = _skip_space(text, at, end)
        if at == end:
            return UNBALANCED, at, length, indexed
        byte = text[at]
        if wants_type and not (may_close and byte == CLOSE):
            reason, at, length, opened = _type(text, at, end, out, length)
            if reason != OK:
                return reason, at, length, indexed
            may_close = opened
            if opened:
                depth += 1
                continue
        elif byte == CLOSE:
            out[length] = CLOSE
            length += 1
            at += 1
            depth -= 1
            if depth == 0:
                return OK, at, length, indexed
        elif byte == COMMA:
            out[length] = COMMA
            length += 1
            at += 1
            wants_type = True
            may_close = False
            continue
        else:
            return BAD_ARRAY if byte == _LEFT or byte == _RIGHT else BAD_NAME, at, length, indexed
        wants_type = False
        reason, at, length = _arrays(text, at, end, out, length)
        if reason != OK:
            return reason, at, length, indexed
        reason, at, times = _parameter_words(text, at, end, length, notes)
        if reason != OK:
            return reason, at, length, indexed
        indexed += times


@jitable
def declaration(
    text: Any, start: int, end: int, declared_kind: int, default_kind: int, out: Any, length: int, notes: Any
) -> tuple[int, int, int, int]:
    """Append the canonical form of ``text[start:end]`` to ``out[:length]``: (reason, place, length, collection).

    The collection is that of the declaration's own keyword, else ``declared_kind`` (what the input states beside
    the text, or UNKNOWN), else events where there is ``indexed`` or ``anonymous``, else ``default_kind``.
    ``place`` is where a reject was noticed, counted like ``start``. ``notes`` gets what else an accepted text says.
    """
    at = _skip_space(text, start, end)
    if at == end:
        return EMPTY, at, length, declared_kind
    if end - start > MAX_TEXT_BYTES:
        return TOO_LONG, start + MAX_TEXT_BYTES, length, declared_kind
    first = length
    name = at
    stop, word = _read_word(text, at, end)
    keyword = 0
    mark = _skip_space(text, stop, end)
    if mark > stop and mark < end and is_name_start(text[mark]):
        keyword = word
        if not (keyword == FUNCTION_WORD or keyword == EVENT_WORD or keyword == ERROR_WORD):
            return BAD_NAME, mark, length, declared_kind
        name = mark
        stop, word = _read_word(text, name, end)
        mark = _skip_space(text, stop, end)
    if keyword == EVENT_WORD:
        collection = EVENTS
    elif keyword != 0:
        collection = FUNCTIONS
    else:
        collection = declared_kind
    if name == stop or not is_name_start(text[name]):
        return BAD_NAME, name, length, collection
    if mark == end or text[mark] != OPEN:
        if mark == end:
            return BAD_ENTRY, mark, length, collection
        return UNBALANCED if text[mark] == CLOSE else BAD_NAME, mark, length, collection
    for k in range(name, stop):
        out[length] = text[k]
        length += 1
    out[length] = OPEN
    reason, at, length, indexed = parameter_list(text, mark + 1, end, out, length + 1, notes)
    if reason != OK:
        return reason, at, first, collection
    reason, at = _tail(text, at, end, keyword, notes)
    if reason != OK:
        return reason, at, first, collection
    notes[KEYWORD] = keyword
    anonymous = notes[ANONYMOUS] != 0
    if collection == UNKNOWN:
        collection = EVENTS if indexed > 0 or anonymous else default_kind
    if word == (EVENT_WORD if collection == EVENTS else FUNCTION_WORD):
        return BAD_NAME, name, first, collection
    if collection == EVENTS and indexed > (4 if anonymous else 3):
        return TOO_MANY_INDEXED, name, first, collection
    if length - first > MAX_TEXT_BYTES:
        return TOO_LONG, start + MAX_TEXT_BYTES, first, collection
    return OK, at, length, collection


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
    check_encoding(raw)
    out = bytearray(2 * min(len(raw), MAX_TEXT_BYTES) + 16)
    reason, place, length, collection = declaration(raw, 0, len(raw), declared_kind, default_kind, out, 0, {})
    if reason != OK:
        raise GrammarError(REASONS[reason], place + 1, _shown(raw))
    return Signature(out[:length].decode("ascii"), collection)


def check_encoding(text: bytes) -> None:
    """Raise GrammarError for a text that is not UTF-8; one that is too long is not looked at."""
    if len(text) <= MAX_TEXT_BYTES:
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise GrammarError("encoding", error.start + 1, _shown(text)) from None


def _shown(text: bytes) -> str:
    return text[:MAX_TEXT_BYTES].decode(errors="backslashreplace")


def is_signature(text: str | bytes) -> bool:
    """Whether ``normalise`` accepts a text."""
    try:
        normalise(text)
    except GrammarError:
        return False
    return True
