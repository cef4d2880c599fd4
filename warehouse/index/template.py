"""Rows to bytes by a template, in one compiled kernel; records, and lines of hash and text.

A template is a row's text with field names in braces: ``0x{hash},{text}``. It is cut into pieces once; the kernel
then writes the pieces row by row: 15 M rows a second for that one, 4 M records of the API, on one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Any, Final

import numpy as np

from sigdir.signatures.arrow import Array
from sigdir.signatures.candidates import as_readonly
from sigdir.signatures.kernels import kernel
from sigdir.warehouse.index.segment import Segment
from sigdir.warehouse.table.fields import RECORD_FIELDS, fields


def fixed(text: str) -> Array:
    """A text as ``put`` takes it."""
    return np.frombuffer(text.encode(), np.uint8)


@kernel(nogil=True)
def put(out: Array, at: Any, piece: Array) -> Any:
    for k in range(np.uint64(len(piece))):
        out[at + k] = piece[k]
    return at + np.uint64(len(piece))


_ONE, _TWO, _TEN, _HUNDRED = (np.uint64(number) for number in (1, 2, 10, 100))
_PAIRS: Final = fixed("".join(f"{number:02}" for number in range(100)))
_HEX_PAIRS: Final = fixed("".join(f"{number:02x}" for number in range(256)))


# Inlined by numba, because LLVM does not inline it. A loop over any number of digits takes a third of a record's time.
@kernel(inline="always")
def pair(out: Array, at: Any, number: Any) -> Any:
    """Write a number below a hundred with two digits."""
    out[at], out[at + _ONE] = _PAIRS[_TWO * number], _PAIRS[_TWO * number + _ONE]
    return at + _TWO


@kernel(nogil=True)
def decimal(out: Array, at: Any, value: int) -> Any:
    """Write a number that is not negative, with as many digits as it has."""
    rest = np.uint64(value)  # unsigned division is half the work of signed
    places, limit = 1, _TEN
    while places < 19 and rest >= limit:
        places += 1
        limit *= _TEN
    end = at + np.uint64(places)
    to = end
    while rest >= _HUNDRED:
        above = rest // _HUNDRED
        to -= _TWO
        pair(out, to, rest - above * _HUNDRED)
        rest = above
    if rest >= _TEN:
        pair(out, to - _TWO, rest)
    else:
        out[to - _ONE] = np.uint64(48) + rest
    return end


@kernel(inline="always")
def hex_digits(out: Array, at: Any, byte: int) -> Any:
    """Write a byte as two hex digits."""
    place = _TWO * np.uint64(byte)
    out[at], out[at + _ONE] = _HEX_PAIRS[place], _HEX_PAIRS[place + _ONE]
    return at + _TWO


def _characters() -> tuple[Array, Array]:
    """How JSON writes each character below 256 in UTF-8: eight bytes each, and how many of them count."""
    written, lengths = np.zeros((256, 8), np.uint8), np.zeros(256, np.uint8)
    for code in range(256):
        character = f"\\u{code:04x}" if code < 0x20 else "\\" + chr(code) if code in b'"\\' else chr(code)
        raw = character.encode()
        written[code, : len(raw)], lengths[code] = np.frombuffer(raw, np.uint8), len(raw)
    return written, lengths


_WRITTEN, _LENGTHS = _characters()
CHARACTER_ROOM: Final = 8
"""Bytes that ``character`` always writes, so the last one needs this much room too."""


@kernel(nogil=True)
def character(out: Array, at: Any, byte: int) -> Any:
    """Write the character whose code is ``byte`` as a JSON string has it, in UTF-8.

    Always eight bytes, without a branch: a branch on a hash's bytes cannot be predicted.
    """
    for k in range(np.uint64(8)):
        out[at + k] = _WRITTEN[byte, k]
    return at + np.uint64(_LENGTHS[byte])


@kernel(nogil=True)
def escaped(out: Array, at: Any, byte: int) -> Any:
    """Write one byte of a text as a JSON string has it."""
    if byte < 0x20 or byte == 0x22 or byte == 0x5C:
        return character(out, at, byte)
    out[at] = byte
    return at + np.uint64(1)


_MARKS: Final = fixed("--T::.")


@kernel(nogil=True)
def timestamp(out: Array, at: Any, microseconds: int) -> Any:
    """Write microseconds since 1970 as ``YYYY-MM-DDTHH:MM:SS.ffffff``."""
    seconds, rest = divmod(microseconds, 1_000_000)
    days, second = divmod(seconds, 86_400)
    # Days to a date in a calendar whose year starts in March, so that the leap day comes last.
    days += 719_468
    era, day_of_era = divmod(days, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    year = year_of_era + era * 400 + (1 if month <= 2 else 0)
    parts = (year % 100, month, day, second // 3600, second // 60 % 60, second % 60)
    at = pair(out, at, np.uint64(year // 100))
    for k in range(6):
        at = pair(out, at, np.uint64(parts[k]))
        out[at] = _MARKS[k]
        at += _ONE
    above = rest // 100
    at = pair(out, pair(out, at, np.uint64(above // 100)), np.uint64(above % 100))
    return pair(out, at, np.uint64(rest - above * 100))


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
"""The names of a template. ``created_at`` has six decimals and no zone, ``hash`` is hex digits without 0x,
``bytes_json`` one character a byte of the hash; ``_csv`` and ``_json`` go between quotes."""

# The most bytes that one byte of the text, or of the hash, becomes.
_OF_TEXT = {_TEXT: 1, _TEXT_CSV: 2, _TEXT_JSON: 6}
_OF_HASH = {_HASH: 2, _BYTES_JSON: 6}


class Template:
    """A pattern cut into pieces, ready to render rows."""

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
        self._of_row = len(self._literals) + 19 * pieces.count(_ID) + 26 * pieces.count(_CREATED_AT)
        self._of_text = sum(_OF_TEXT.get(piece, 0) for piece in pieces)
        self._of_hash = sum(_OF_HASH.get(piece, 0) for piece in pieces)

    def render(self, segment: Segment, rows: Array) -> bytes:
        """The rows with these numbers (int64), in this order, one after the other."""
        # Short ones hold the GIL: reacquiring it under load takes longer than rendering a page.
        render = _render_holding_gil if len(rows) <= _SHORT_ROWS else _render
        out = render(
            self._pieces, self._literals, self._bounds, self._of_row, self._of_text, self._of_hash,
            segment.ids, segment.created_at, segment.offsets, segment.text, segment.hash, rows,
        )  # fmt: skip
        rendered: bytes = out.tobytes()
        return rendered


_SHORT_ROWS = 1024  # 0.12 ms


@kernel(nogil=True)
def _render(
    pieces: Array, literals: Array, bounds: Array, of_row: int, of_text: int, of_hash: int,
    ids: Array, created_at: Array, offsets: Array, text: Array, hashes: Array, rows: Array,
) -> Array:  # fmt: skip
    width = hashes.shape[1]
    size = CHARACTER_ROOM + len(rows) * (of_row + width * of_hash)
    for row in rows:
        size += of_text * (offsets[row + 1] - offsets[row])
    out = np.empty(size, np.uint8)
    is_plain = _are_plain(offsets, text, rows)
    at = np.uint64(0)
    one = np.uint64(1)
    for row in rows:
        literal = 0
        for piece in pieces:
            if piece == _LITERAL:
                at = put(out, at, literals[bounds[literal] : bounds[literal + 1]])
                literal += 1
            elif piece == _TEXT or (is_plain and (piece == _TEXT_JSON or piece == _TEXT_CSV)):
                at = put(out, at, text[offsets[row] : offsets[row + 1]])
            elif piece == _HASH:
                for k in range(width):
                    at = hex_digits(out, at, hashes[row, k])
            elif piece == _ID:
                at = decimal(out, at, ids[row])
            elif piece == _CREATED_AT:
                at = timestamp(out, at, created_at[row])
            elif piece == _TEXT_JSON:
                for k in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                    at = escaped(out, at, text[k])
            elif piece == _TEXT_CSV:
                for k in range(np.uint64(offsets[row]), np.uint64(offsets[row + 1])):
                    out[at] = text[k]
                    at += one
                    if text[k] == 0x22:
                        out[at] = 0x22
                        at += one
            else:
                for k in range(width):
                    at = character(out, at, hashes[row, k])
    return out[:at]


@kernel()
def _render_holding_gil(*arguments: Any) -> Array:
    return _render(*arguments)


@kernel(nogil=True)
def _are_plain(offsets: Array, text: Array, rows: Array) -> bool:
    """Whether no text needs an escape in JSON or CSV, as canonical ones never do.

    Rows that are neighbours are checked in one go.
    """
    if len(rows) == 0:
        return True
    first, last = rows.min(), rows.max()
    if last - first + 1 == len(rows):
        return _is_plain(text, offsets[first], offsets[last + 1])
    for row in rows:  # noqa: SIM110
        if not _is_plain(text, offsets[row], offsets[row + 1]):
            return False
    return True


@kernel(nogil=True)
def _is_plain(text: Array, start: int, end: int) -> bool:
    odd = False
    for k in range(np.uint64(start), np.uint64(end)):
        byte = text[k]
        odd |= (byte < 0x20) | (byte == 0x22) | (byte == 0x5C)
    return not odd


# Records, as 4byte.directory writes them, and lines of hash and text. A page of 100 records takes 16 us so, 100 us with dicts and orjson.

RECORD: Final = "{{" + ",".join(f'"{field.name}":{field.json}' for field in RECORD_FIELDS) + "}}"
"""The template of a record."""

_RECORDS, _RECORD_LINES, _HASH_LINES = Template(RECORD + ","), Template(RECORD + "\n"), Template("0x{hash},{text}\n")
_TEXT_LINES = Template('"{text_json}"\n')

_RECORD_FRAME = len(RECORD) + 40

LINE_FRAME = len("0x,\n")
"""Bytes of a line ``0x<hash>,<text>`` without its text and the digits of its hash."""


def csv_line(names: Sequence[str]) -> str:
    """The template of a row as a line of CSV with these fields."""
    return ",".join(field.csv for field in fields(names)) + "\n"


def csv_head(names: Sequence[str]) -> str:
    """The line above them."""
    return ",".join(names) + "\n"


def render_record(id: int, created_at: int, text: str, hash: bytes) -> bytes:
    """One record from values; ``created_at`` in microseconds since 1970."""
    raw, digest = np.frombuffer(text.encode(), np.uint8), np.frombuffer(hash, np.uint8).reshape(1, -1)
    numbers = as_readonly(np.array([id, created_at, 0, len(raw)], np.int64))
    return render_rows(Segment(1, numbers[:1], numbers[1:2], numbers[2:], raw, digest, {}), np.zeros(1, np.int64))


def render_rows(segment: Segment, rows: Array) -> bytes:
    """The records of some rows (int64, in the order wanted), joined by commas."""
    return _RECORDS.render(segment, rows)[:-1]


def render_records(segment: Segment, rows: Array) -> bytes:
    """The same as NDJSON."""
    return _RECORD_LINES.render(segment, rows)


def records_size(segment: Segment, rows: Array) -> int:
    """About how many bytes the records of rows take: their texts are canonical, so need no escape."""
    text = (segment.offsets[rows + 1] - segment.offsets[rows]).sum()
    return int(text) + len(rows) * (_RECORD_FRAME + 4 * int(segment.hash.shape[1]))


def render_texts(segment: Segment, rows: Array) -> list[bytes]:
    """The texts of rows as JSON."""
    return _TEXT_LINES.render(segment, rows).split(b"\n")[:-1]


def render_lines(segment: Segment, first: int, last: int) -> bytes:
    """The rows ``first`` up to and without ``last`` as lines ``0x<hash>,<text>``."""
    return _HASH_LINES.render(segment, np.arange(first, last))
