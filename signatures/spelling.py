"""Declarations in one canonical spelling, from what the grammar noted while it wrote the canonical text.

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

from typing import Any

from numba.extending import register_jitable

from sigdir.signatures.collections import EVENTS
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
    KEYWORD,
    MUTABILITY,
    NOTE_SIZE,
    NOTED,
    OK,
    OPEN,
    RETURNS,
    RETURNS_AT,
    SPACE,
    append,
    packed,
    parameter_list,
)
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
