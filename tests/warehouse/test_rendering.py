"""Rows rendered by the kernels, compared with json, csv, datetime and str.format."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.template import FIELDS, Template, records_size, render_record, render_rows
from tests.serve.support import Row, record_of, segment_of

WIDTHS = sorted({collection.hash_bytes for collection in COLLECTIONS})
NOON = 1_700_000_000_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // MICROSECOND


def rendered(rows: list[Row], order: list[int] | None = None, width: int = 4) -> bytes:
    numbers = np.array(list(range(len(rows))) if order is None else order, np.int64)
    return render_rows(segment_of(rows, width=width), numbers)


def records(rows: list[Row], order: list[int] | None = None, width: int = 4) -> list[dict[str, Any]]:
    """The records as two JSON readers agree on them; orjson refuses anything that is not UTF-8."""
    body = b"[" + rendered(rows, order, width) + b"]"
    value: list[dict[str, Any]] = json.loads(body)
    assert orjson.loads(body) == value
    return value


def row(id: int = 1, created_at: int = NOON, text: str = "f()", hash: bytes = b"abcd") -> Row:
    return Row(id, created_at, text, hash)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_byte_of_a_hash_is_its_character(width: int) -> None:
    """Each byte becomes the character with its code, at any place in a hash."""
    zeros = bytes(width - 1)
    hashes = [
        hash for byte in range(256) for one in [bytes([byte])] for hash in (one * width, one + zeros, zeros + one)
    ]
    rows = [row(id=number, hash=hash) for number, hash in enumerate(hashes, 1)]
    assert records(rows, width=width) == [record_of(each) for each in rows]


VALUES = st.tuples(
    st.integers(0, 2**63 - 1), st.integers(FIRST, LAST), st.text(max_size=30), st.binary(min_size=32, max_size=32)
)


@given(st.lists(VALUES.map(lambda values: Row(*values)), min_size=1, max_size=10), st.randoms())
def test_any_row_reads_back(rows: list[Row], dice: random.Random) -> None:
    """With neighbouring bytes whose escapes do not merge, in any order, also without a segment."""
    order = dice.choices(range(len(rows)), k=dice.randrange(12))
    assert records(rows, order, width=32) == [record_of(rows[number]) for number in order]
    one, page = render_record(*rows[0]), rendered(rows, [0], width=32)
    assert json.loads(one, object_pairs_hook=list) == json.loads(page, object_pairs_hook=list)


def test_the_edges_of_a_record() -> None:
    """Each character, ids of 1 to 19 digits, the first and last times, and rows whose every byte takes the most space."""
    rows = [row(text=f"a{chr(code)}b") for code in range(0x250)]
    rows += [row(id=id) for digits in range(1, 20) for id in (10 ** (digits - 1), min(10**digits, 2**63) - 1)]
    rows += [row(created_at=at) for at in (FIRST, -1, 0, LAST)]
    rows += [row(id=2**63 - 1, created_at=LAST, text='"\\\0\x1f' * 5000, hash=bytes(4))] * 20
    assert records(rows) == [record_of(each) for each in rows]
    worst = [row(id=2**63 - 1, created_at=LAST, hash=b"\xff" * 32)] * 3
    assert len(rendered(worst, width=32)) <= records_size(segment_of(worst, width=32), np.arange(3))


def test_records_are_compact_and_in_the_order_of_the_contract() -> None:
    """A record has no blanks and the order id, time, text, hash, bytes. No rows give no bytes."""
    assert rendered([row()]) == (
        b'{"id":1,"created_at":"2023-11-14T22:13:20.000000Z","text_signature":"f()",'
        b'"hex_signature":"0x61626364","bytes_signature":"abcd"}'
    )
    assert rendered([]) == rendered([row()], order=[]) == b""


_CHARACTERS = [*"abcXYZ019_$,()[]", '"', "\\", "\x00", "\n", "\x1f", " ", "\x7f", "é", "語", "😀"]


def rows(width: int) -> list[Row]:
    dice = random.Random(width)
    ids = [0, 1, 9, 10, 99, 100, 2**62, 2**63 - 1, *range(1_000, 1_200)]
    return [
        Row(
            id,
            dice.randrange(0, 253_402_300_799_999_999),
            "".join(dice.choices(_CHARACTERS, k=dice.choice([0, 1, 7, 80]))),
            dice.randbytes(width),
        )
        for id in ids
    ]


def expected(row: Row, pattern: str) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=row.created_at)
    return pattern.format(
        id=row.id,
        created_at=moment.isoformat(timespec="microseconds").removesuffix("+00:00"),
        text=row.text,
        text_csv=row.text.replace('"', '""'),
        text_json=_escapes(row.text),
        hash=row.hash.hex(),
        bytes_json=_escapes(row.hash.decode("latin-1")),
    )


def _escapes(text: str) -> str:
    """Escaped as in a JSON string, control characters by number."""
    return "".join(f"\\u{ord(c):04x}" if c < " " else "\\" + c if c in '"\\' else c for c in text)


PATTERNS = (
    "", "literal", "{{}}", *(f"<{{{name}}}>" for name in FIELDS), "0x{hash},{text}\n", "{text}{text}{text_json}{text_csv}",
    '{{"id":{id},"t":"{text_json}","b":"{bytes_json}"}}\n',
)  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
def test_a_template_renders_as_format_does(width: int) -> None:
    """A template gives the bytes of str.format for the same rows. One with an unknown field raises KeyError."""
    made = rows(width)
    chosen = random.Random(1).sample(range(len(made)), 100)
    for pattern in PATTERNS:
        rendered = Template(pattern).render(segment_of(made, width=width), np.array(chosen, np.int64))
        assert rendered.decode() == "".join(expected(made[number], pattern) for number in chosen), pattern
    assert Template("{id}{text}").render(segment_of(made, width=width), np.empty(0, np.int64)) == b""
    with pytest.raises(KeyError):
        Template("{nothing}")
