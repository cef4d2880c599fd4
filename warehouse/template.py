"""Rows to bytes by a template, in one compiled kernel, and the pieces that such kernels are made of.

A template is a row's text with names in braces for what differs: ``0x{hash},{text}``. It is cut up once;
the kernel then goes through its pieces row by row: 10 M rows a second for that one, 4 M where a time is
written, on one core.
"""

from __future__ import annotations

from string import Formatter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import njit

from warehouse.mapped import Segment

Array = npt.NDArray[Any]

HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_CONTROL = np.frombuffer(b"\\u00", np.uint8)


@njit(nogil=True, cache=True)
def put(out: Array, at: Any, piece: Array) -> Any:
    for k in range(np.uint64(len(piece))):
        out[at + k] = piece[k]
    return at + np.uint64(len(piece))


@njit(nogil=True, cache=True)
def digits(out: Array, at: Any, value: int, width: int) -> Any:
    """Write a number that is not negative, with leading zeros."""
    rest = np.uint64(value)  # a signed division by ten costs twice as much
    ten = np.uint64(10)
    for k in range(width):
        after = rest // ten
        out[at + np.uint64(width - 1 - k)] = np.uint64(48) + rest - after * ten
        rest = after
    return at + np.uint64(width)


@njit(nogil=True, cache=True)
def decimal(out: Array, at: Any, value: int) -> Any:
    """Write a number that is not negative, with as many digits as it has."""
    places = 1
    rest = np.uint64(value) // np.uint64(10)
    while rest > 0:
        places += 1
        rest //= np.uint64(10)
    return digits(out, at, value, places)


@njit(nogil=True, cache=True)
def escaped(out: Array, at: Any, byte: int) -> Any:
    """Write one ASCII byte as a JSON string has it; bytes above are the caller's business."""
    if byte == 0x22 or byte == 0x5C:
        out[at] = 0x5C
        out[at + np.uint64(1)] = byte
        return at + np.uint64(2)
    if byte < 0x20:
        at = put(out, at, _CONTROL)
        out[at] = HEX[byte >> 4]
        out[at + np.uint64(1)] = HEX[byte & 15]
        return at + np.uint64(2)
    out[at] = byte
    return at + np.uint64(1)


@njit(nogil=True, cache=True)
def character(out: Array, at: Any, byte: int) -> Any:
    """Write the character whose code a byte is, as a JSON string has it, in UTF-8."""
    if byte < 0x80:
        return escaped(out, at, byte)
    out[at] = 0xC0 | (byte >> 6)
    out[at + np.uint64(1)] = 0x80 | (byte & 0x3F)
    return at + np.uint64(2)


@njit(nogil=True, cache=True)
def moment(out: Array, at: Any, microseconds: int) -> Any:
    """Write ``YYYY-MM-DDTHH:MM:SS.ffffff`` for microseconds since 1970."""
    seconds, fraction = divmod(microseconds, 1_000_000)
    days, second = divmod(seconds, 86_400)
    # Days to a date in the calendar that begins its year in March, so that the leap day comes last.
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    at = digits(out, at, year, 4)
    out[at] = 0x2D
    at = digits(out, at + np.uint64(1), month, 2)
    out[at] = 0x2D
    at = digits(out, at + np.uint64(1), day, 2)
    out[at] = 0x54
    at = digits(out, at + np.uint64(1), second // 3600, 2)
    out[at] = 0x3A
    at = digits(out, at + np.uint64(1), second // 60 % 60, 2)
    out[at] = 0x3A
    at = digits(out, at + np.uint64(1), second % 60, 2)
    out[at] = 0x2E
    return digits(out, at + np.uint64(1), fraction, 6)


@njit(nogil=True, cache=True)
def moment_again(out: Array, at: Any, microseconds: int, where: Any) -> Any:
    """Write what ``moment`` writes, where a moment of the same second stands at ``where`` already."""
    for k in range(np.uint64(20)):
        out[at + k] = out[where + k]
    return digits(out, at + np.uint64(20), microseconds % 1_000_000, 6)


_LITERAL, _ID, _CREATED_AT, _TEXT, _TEXT_CSV, _TEXT_JSON, _HASH, _BYTES_JSON = range(8)

FIELDS: Final = {
    "id": _ID,
    "created_at": _CREATED_AT,
    "text": _TEXT,
    "text_csv": _TEXT_CSV,
    "text_json": _TEXT_JSON,
    "hash": _HASH,
    "bytes_json": _BYTES_JSON,
}
"""What a template may name. ``created_at`` has six digits and no zone, ``hash`` is hex digits without 0x,
``bytes_json`` a character a byte of the hash; ``_csv`` and ``_json`` go between quotes."""

# The most bytes that one byte of the text, or of the hash, becomes.
_OF_TEXT = {_TEXT: 1, _TEXT_CSV: 2, _TEXT_JSON: 6}
_OF_HASH = {_HASH: 2, _BYTES_JSON: 6}


class Template:
    """A pattern that was cut up, ready to render rows."""

    def __init__(self, pattern: str) -> None:
        """``pattern`` names FIELDS in braces; a brace itself is doubled."""
        pieces: list[int] = []
        literals: list[bytes] = []
        for literal, name, _, _ in Formatter().parse(pattern):
            if literal:
                pieces.append(_LITERAL)
                literals.append(literal.encode())
            if name is not None:
                pieces.append(FIELDS[name])
        self._pieces = np.array(pieces, np.uint8)
        self._literals = np.frombuffer(b"".join(literals), np.uint8)
        self._bounds = np.cumsum([0, *map(len, literals)], dtype=np.int64)
        self._of_row = len(self._literals) + 20 * pieces.count(_ID) + 26 * pieces.count(_CREATED_AT)
        self._of_text = sum(_OF_TEXT.get(piece, 0) for piece in pieces)
        self._of_hash = sum(_OF_HASH.get(piece, 0) for piece in pieces)

    def render(self, segment: Segment, rows: Array) -> bytes:
        """The rows with these numbers (int64), in this order, one behind the other."""
        width = segment.hash.shape[1]
        size = int((segment.offsets[rows + 1] - segment.offsets[rows]).sum())
        room = len(rows) * (self._of_row + width * self._of_hash) + size * self._of_text
        out = _fill(
            np.empty(room, np.uint8), self._pieces, self._literals, self._bounds,
            segment.ids, segment.created_at, segment.offsets, segment.text, segment.hash, rows,
        )  # fmt: skip
        rendered: bytes = out.tobytes()
        return rendered


@njit(nogil=True, cache=True)
def _fill(
    out: Array, pieces: Array, literals: Array, bounds: Array,
    ids: Array, created_at: Array, offsets: Array, text: Array, hashes: Array, rows: Array,
) -> Array:  # fmt: skip
    width = hashes.shape[1]
    at = np.uint64(0)
    one = np.uint64(1)
    for row in rows:
        literal = 0
        for piece in pieces:
            if piece == _LITERAL:
                for k in range(np.uint64(bounds[literal]), np.uint64(bounds[literal + 1])):
                    out[at] = literals[k]
                    at += one
                literal += 1
            elif piece == _TEXT:
                for k in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                    out[at] = text[k]
                    at += one
            elif piece == _HASH:
                for k in range(width):
                    byte = hashes[row, k]
                    out[at] = HEX[byte >> 4]
                    out[at + one] = HEX[byte & 15]
                    at += np.uint64(2)
            elif piece == _ID:
                at = decimal(out, at, ids[row])
            elif piece == _CREATED_AT:
                at = moment(out, at, created_at[row])
            elif piece == _TEXT_JSON:
                for k in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                    byte = text[k]
                    if byte < 0x20 or byte == 0x22 or byte == 0x5C:
                        at = escaped(out, at, byte)
                    else:
                        out[at] = byte
                        at += one
            elif piece == _TEXT_CSV:
                for k in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                    out[at] = text[k]
                    at += one
                    if text[k] == 0x22:
                        out[at] = 0x22
                        at += one
            else:
                for k in range(width):
                    byte = hashes[row, k]
                    at = character(out, at, byte)
    return out[:at]
