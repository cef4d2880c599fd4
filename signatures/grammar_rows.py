"""The grammar over many texts: a batch to canonical texts, kinds and declarations.

It spells declarations in one canonical form, from what the grammar noted while it wrote the canonical text.

Invariants
    The types of a spelled declaration are those of the canonical text; only words and spaces are added.
    Spelling a spelled declaration gives it back.
    Depth and length are bounded: beyond ``MAX_TUPLES`` and ``MAX_DECLARATION_BYTES`` there is no declaration. A name
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

    Nothing is parsed here: the canonical text is copied, and the noted words are put between its types. Only a list of
    ``returns``, which the grammar skips, is read by it now; it is left out if it cannot be read.

    The keyword of a text decides its kind. Without one it is an event in the collection of events, else the kind that
    the input states, else a function where a word of a function follows the list.
    A text without a keyword and names adds nothing to the canonical text, so it has no declaration.

Source: the ABI of the Solidity documentation, and ethers' Human-Readable ABI, which this form follows. Tuples have no
word `tuple`, as abitype writes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba.extending import register_jitable

from sigdir.signatures.arrow import Array, validity
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.collections import EVENTS, FUNCTIONS, UNKNOWN
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import (
    ANONYMOUS,
    CLOSE,
    COMMA,
    ERROR_WORD,
    EVENT_WORD,
    FIRST_NOTE,
    FUNCTION_WORD,
    HAS_TAIL,
    INDEXED,
    JITABLE,
    KEYWORD,
    MAX_TEXT_BYTES,
    MUTABILITY,
    NOTE_SIZE,
    NOTED,
    OK,
    OPEN,
    RETURNS,
    RETURNS_AT,
    SPACE,
    append,
    declaration,
    is_name_start,
    packed,
    parameter_list,
)
from sigdir.signatures.kernels import kernel, pointer
from sigdir.signatures.types import MAX_DECLARATION_BYTES, MAX_NAME_BYTES, MAX_TUPLES

_UNKNOWN, _FUNCTION, _EVENT, _ERROR = int(Kind.UNKNOWN), int(Kind.FUNCTION), int(Kind.EVENT), int(Kind.ERROR)
_ANONYMOUS_START, _ANONYMOUS_REST = packed(" anonymo"), packed("us")


@register_jitable
def _append_word(out: Any, length: int, word: int) -> int:
    out[length] = SPACE
    return append(out, length + 1, word)


@register_jitable
def _spell_note(text: Any, notes: Any, note: int, with_indexed: bool, out: Any, length: int) -> int:
    """Append the words that follow a type."""
    if with_indexed and notes[note + 1] > 0:
        length = _append_word(out, length, INDEXED)
    name, name_end = notes[note + 2], notes[note + 3]
    if 0 < name_end - name <= MAX_NAME_BYTES:
        out[length] = SPACE
        length += 1
        for at in range(name, name_end):
            out[length] = text[at]
            length += 1
    return length


@register_jitable
def _spell_list(
    text: Any, canonical: Any, first: int, last: int, notes: Any, is_event: bool, out: Any, length: int
) -> tuple[int, bool]:
    """Append the list ``canonical[first:last]`` with the noted words: (new length, whether there are any).

    The length is -1 if tuples nest too deeply.
    """
    depth = 0
    says_more = False
    note = FIRST_NOTE
    for at in range(first, last):
        if note < notes[NOTED] and notes[note] == at:
            before = length
            length = _spell_note(text, notes, note, is_event and depth == 1, out, length)
            says_more = says_more or length > before
            note += NOTE_SIZE
        byte = canonical[at]
        out[length] = byte
        length += 1
        if byte == OPEN:
            depth += 1
            if depth > MAX_TUPLES:
                return -1, False
        elif byte == CLOSE:
            depth -= 1
        elif byte == COMMA:
            out[length] = SPACE
            length += 1
    return length, says_more


@register_jitable
def _kind(notes: Any, stated: int, collection: int) -> int:
    keyword = notes[KEYWORD]
    if keyword != 0:
        return _FUNCTION if keyword == FUNCTION_WORD else _EVENT if keyword == EVENT_WORD else _ERROR
    if collection == EVENTS:
        return _EVENT
    if stated == _UNKNOWN and notes[HAS_TAIL] != 0:
        return _FUNCTION
    return stated


@register_jitable
def _keyword_of(kind: int) -> int:
    return FUNCTION_WORD if kind == _FUNCTION else EVENT_WORD if kind == _EVENT else ERROR_WORD


@register_jitable
def _spell_returns(text: Any, at: int, end: int, canonical: Any, last: int, notes: Any, out: Any, length: int) -> int:
    """Append the list of returns after its ``(``; the length stays where it is empty or cannot be read.

    Its canonical form is written behind ``canonical[:last]``.
    """
    canonical[last] = OPEN
    reason, _, stop, _ = parameter_list(text, at, end, canonical, last + 1, notes)
    if reason != OK or stop == last + 2:
        return length
    before = length
    length = _append_word(out, length, RETURNS)
    out[length] = SPACE
    length, _ = _spell_list(text, canonical, last, stop, notes, False, out, length + 1)
    return length if length >= 0 else before


@register_jitable
def spell(
    text: Any, end: int, canonical: Any, first: int, last: int, notes: Any, stated: int, collection: int,
    out: Any, length: int,
) -> tuple[int, int]:  # fmt: skip
    """Append the declaration of an accepted text to ``out[:length]``: (kind, new length).

    ``canonical[first:last]`` and ``notes`` are what the grammar made of the text, ``stated`` is the kind that the input
    states beside it. The length stays where there is no declaration.
    """
    begin = length
    kind = _kind(notes, stated, collection)
    if kind != _UNKNOWN:
        length = append(out, length, _keyword_of(kind))
        out[length] = SPACE
        length += 1
    says_more = notes[KEYWORD] != 0 or notes[HAS_TAIL] != 0
    length, named = _spell_list(text, canonical, first, last, notes, kind == _EVENT, out, length)
    if length < 0:
        return kind, begin
    if kind == _EVENT and notes[ANONYMOUS] != 0:
        length = append(out, append(out, length, _ANONYMOUS_START), _ANONYMOUS_REST)
        says_more = True
    elif kind == _FUNCTION:
        if notes[MUTABILITY] != 0:
            length = _append_word(out, length, notes[MUTABILITY])
        if notes[RETURNS_AT] >= 0:
            length = _spell_returns(text, notes[RETURNS_AT], end, canonical, last, notes, out, length)
    if not (says_more or named) or length - begin > MAX_DECLARATION_BYTES:
        return kind, begin
    return kind, length


for part in JITABLE:
    register_jitable(part)

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

    digits = b"0123456789"
    starts = [byte for byte in range(128) if is_name_start(byte)]
    rows[_BEGIN] = dict.fromkeys(starts, _NAME)
    rows[_NAME] = dict.fromkeys([*starts, *digits], _NAME) | {OPEN: _AFTER_OPEN}
    for word in ("function", "event"):
        rows[walk(_BEGIN, word, rows[_NAME])].pop(OPEN)
    after_type = {COMMA: _AFTER_COMMA, CLOSE: _AFTER_TYPE, ord("["): _BRACKET}
    for word in words:
        rows[walk(_AFTER_COMMA, word, {})].update(after_type)
    rows[_AFTER_COMMA][OPEN] = _AFTER_OPEN
    rows[_AFTER_OPEN] = rows[_AFTER_COMMA] | {CLOSE: _AFTER_TYPE}
    rows[_AFTER_TYPE] = after_type
    rows[_BRACKET] = dict.fromkeys(digits[1:], _LENGTH) | {ord("]"): _AFTER_TYPE}
    rows[_LENGTH] = dict.fromkeys(digits, _LENGTH) | {ord("]"): _AFTER_TYPE}
    table = np.zeros((len(rows), 256), np.uint8)
    for state, row in enumerate(rows):
        for byte, following in row.items():
            table[state, byte] = following
    return table.ravel()


_AUTOMATON = _canonical_automaton()


@kernel(nogil=True)
def is_canonical(data: Array, start: Any, end: Any) -> bool:
    """Whether ``data[start:end]`` is canonical; False may also mean that the grammar must decide.

    98.8 % of real candidates are, and one table look-up a byte is nearly three times faster than parsing
    the text (``benchmarks/bench_hash.py``).
    """
    state = np.uint32(_BEGIN)
    depth = 0
    for at in range(np.uint64(start), np.uint64(end)):
        byte = data[at]
        state = np.uint32(_AUTOMATON[(state << np.uint32(8)) | np.uint32(byte)])
        if byte == OPEN:
            depth += 1
            if depth > MAX_TUPLES:
                return False
        elif byte == CLOSE:
            depth -= 1
            if depth <= 0:
                return bool(state == _AFTER_TYPE and at + np.uint64(1) == np.uint64(end))
        if state == _DEAD:
            return False
    return False


@kernel(nogil=True)
def normalised(
    data: Array, starts: Array, ends: Array, declared_kinds: Array, default_kind: int, stated: Array
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    """The columns of ``Normalised``. ``stated`` is empty if no declarations are wanted."""
    rows, spells = len(starts), len(stated) > 0
    size = 0
    longest = 0
    for row in range(rows):
        width = min(int(ends[row]) - int(starts[row]), MAX_TEXT_BYTES)
        size += width
        longest = max(longest, width)
    # `fixed,` becomes `fixed128x18,` and is spelled `fixed128x18, `; a keyword may be added. Three bytes make a parameter
    # with words of another one: `(...)a`.
    out, spelled = np.empty(2 * size + 16, np.uint8), np.empty(3 * size + 64 * len(stated), np.uint8)
    notes = np.empty(FIRST_NOTE + NOTE_SIZE * (longest // 3 + 1), np.int64)
    offsets, spelled_offsets = np.zeros(rows + 1, np.int32), np.zeros(len(stated) + 1, np.int32)
    reasons, columns, collections = np.zeros(rows, np.uint8), np.zeros(rows, np.int32), np.empty(rows, np.uint8)
    kinds = stated.copy()
    length = spelled_length = 0
    for row in range(rows):
        start, end = starts[row], ends[row]
        if end - start <= MAX_TEXT_BYTES and is_canonical(data, start, end):
            to = np.uint64(length)
            for at in range(np.uint64(start), np.uint64(end)):
                out[to] = data[at]
                to += np.uint64(1)
            length += end - start
            collections[row] = default_kind if declared_kinds[row] == UNKNOWN else declared_kinds[row]
        else:
            first = length
            reason, place, length, collection = declaration(
                pointer(data), start, end, declared_kinds[row], default_kind, pointer(out), length, pointer(notes)
            )
            reasons[row] = reason
            columns[row] = place - start + 1 if reason != OK else 0
            collections[row] = collection
            if spells and reason == OK:
                kinds[row], spelled_length = spell(
                    pointer(data), end, pointer(out), first, length, pointer(notes), int(kinds[row]), collection,
                    pointer(spelled), spelled_length,
                )  # fmt: skip
        offsets[row + 1] = length
        if spells:
            spelled_offsets[row + 1] = spelled_length
    return out, offsets, reasons, columns, collections, kinds, spelled, spelled_offsets


@dataclass(frozen=True, slots=True)
class Normalised:
    """The result on a batch, one row each candidate.

    Row ``i`` has the canonical text ``data[offsets[i]:offsets[i + 1]]`` (empty for a reject), the
    reason ``reasons[i]`` (an index into REASONS, 0 for none), the column where a reject was noticed
    (from 1, in bytes of the text as read) and its collection (FUNCTIONS or EVENTS; UNKNOWN for a reject
    whose input states none).

    If declarations are wanted it has the kind ``kinds[i]`` and the declaration
    ``spelled[spelled_offsets[i]:spelled_offsets[i + 1]]``, empty for none. A text that is written canonically keeps the
    kind that its input states.
    """

    data: Array  # uint8
    offsets: Array  # int32, rows + 1
    reasons: Array  # uint8
    columns: Array  # int32
    collections: Array  # uint8
    kinds: Array  # uint8, numbers of ``Kind``
    spelled: Array  # uint8
    spelled_offsets: Array  # int32, rows + 1

    def texts(self) -> pa.StringArray:
        """The canonical texts as a column."""
        return _column(self.offsets, self.data)

    def declarations(self) -> pa.StringArray:
        """The declarations as a column, null for none."""
        return _column(self.spelled_offsets, self.spelled, validity(np.diff(self.spelled_offsets) > 0))


def _column(offsets: Array, data: Array, is_valid: pa.Buffer | None = None) -> pa.StringArray:
    """Without what the kernel did not write: Arrow writes some bytes beyond the last text."""
    buffers = pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]])
    return pa.StringArray.from_buffers(len(offsets) - 1, *buffers, is_valid)


def normalise_rows(
    data: Array,
    starts: Array,
    ends: Array,
    declared_kinds: Array,
    default_kind: int = FUNCTIONS,
    stated: Array | None = None,
) -> Normalised:
    """Normalise the candidates ``data[starts[i]:ends[i]]``.

    ``data`` is uint8; ``starts`` and ``ends`` are int32; ``declared_kinds`` is uint8 of the same length, the
    collection that the input states for each row, or UNKNOWN. Texts must be UTF-8: ``canonicalise`` checks that.
    With ``stated``, the number of the ``Kind`` that the input states for each row, there are kinds and declarations.
    """
    found: Any = normalised(
        as_readonly(data), as_readonly(starts), as_readonly(ends), as_readonly(declared_kinds), default_kind,
        np.empty(0, np.uint8) if stated is None else stated,
    )  # fmt: skip
    return Normalised(*found)
