"""Rows rendered by the kernels, compared with json, csv, datetime and str.format."""

from __future__ import annotations

import csv
import io
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
@pytest.mark.parametrize("place", ["all", "first", "last"])
def test_every_byte_of_a_hash_is_its_character(width: int, place: str) -> None:
    """Each byte becomes the character with its code, at any place in a hash."""
    zeros = bytes(width - 1)
    shapes = {"all": lambda b: b * width, "first": lambda b: b + zeros, "last": lambda b: zeros + b}
    rows = [row(id=byte + 1, hash=shapes[place](bytes([byte]))) for byte in range(256)]
    assert records(rows, width=width) == [record_of(each) for each in rows]


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20))
def test_any_hash_reads_back(hashes: list[bytes]) -> None:
    """Any event hash reads back: the escapes of neighbouring bytes do not merge."""
    rows = [row(id=number, hash=hash) for number, hash in enumerate(hashes, 1)]
    assert records(rows, width=32) == [record_of(each) for each in rows]


def test_texts_are_escaped_as_in_json() -> None:
    """Quotes, backslashes and control characters of a text are escaped; no other character is."""
    rows = [row(id=code + 1, text=f"a{chr(code)}b") for code in range(0x250)]
    assert records(rows) == [record_of(each) for each in rows]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=10))
def test_any_text_reads_back(texts: list[str]) -> None:
    """Any text reads back, also with characters outside ASCII."""
    rows = [row(id=number, text=text) for number, text in enumerate(texts, 1)]
    assert [record["text_signature"] for record in records(rows)] == texts


def test_ids_of_any_length_are_written_in_full() -> None:
    """The smallest and largest ids of 1 to 19 digits are written exactly."""
    ids = [id for digits in range(1, 20) for id in (10 ** (digits - 1), min(10**digits, 2**63) - 1)]
    assert [record["id"] for record in records([row(id=id) for id in ids])] == ids


@given(st.one_of(st.integers(FIRST, LAST), st.datetimes(EPOCH.replace(tzinfo=None)).map(
    lambda at: (at.replace(tzinfo=UTC) - EPOCH) // MICROSECOND)))  # fmt: skip
def test_times_are_those_of_datetime(microseconds: int) -> None:
    """created_at is UTC with six decimals and equals datetime's for any year from 1 to 9999."""
    (record,) = records([row(created_at=microseconds)])
    assert record == record_of(row(created_at=microseconds))
    assert datetime.strptime(record["created_at"], "%Y-%m-%dT%H:%M:%S.%f%z") == EPOCH + microseconds * MICROSECOND


@given(st.lists(st.integers(0, 9), max_size=30))
def test_rows_are_written_in_the_given_order(order: list[int]) -> None:
    """Records follow the order of the given row numbers, repeated ones included."""
    rows = [row(id=number + 1, text=f"f{number}()" * (number + 1)) for number in range(10)]
    assert records(rows, order) == [record_of(rows[number]) for number in order]


def test_records_are_no_longer_than_their_size() -> None:
    """Of the longest id, and a hash whose bytes take most."""
    segment = segment_of([row(id=2**63 - 1, created_at=LAST, hash=b"\xff" * 32)] * 3, width=32)
    order = np.arange(3)
    assert len(render_rows(segment, order)) <= records_size(segment, order)


def test_the_longest_record_has_room() -> None:
    """Records whose every byte takes the most space are neither truncated nor overwritten."""
    worst = row(id=2**63 - 1, created_at=LAST, text='"\\\0\x1f' * 5000, hash=bytes(32))
    rows = [worst._replace(id=worst.id - number) for number in range(20)]
    assert records(rows, width=32) == [record_of(each) for each in rows]


def test_records_are_compact_and_in_the_order_of_the_contract() -> None:
    """A record has no blanks and the order id, time, text, hash, bytes. No rows give no bytes."""
    assert rendered([row()]) == (
        b'{"id":1,"created_at":"2023-11-14T22:13:20.000000Z","text_signature":"f()",'
        b'"hex_signature":"0x61626364","bytes_signature":"abcd"}'
    )
    assert rendered([]) == rendered([row()], order=[]) == b""


@given(st.integers(0, 2**63 - 1), st.integers(FIRST, LAST), st.text(max_size=30), st.binary(min_size=4, max_size=4))
def test_one_record_from_values_equals_that_of_a_segment(id: int, created_at: int, text: str, hash: bytes) -> None:
    """A record that is rendered without a segment has the same values in the same order."""
    made = Row(id, created_at, text, hash)
    one, page = (json.loads(body, object_pairs_hook=list) for body in (render_record(*made), rendered([made])))
    assert one == page


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


@pytest.mark.parametrize("width", [4, 32])
@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "literal",
        "{{}}",
        *(f"<{{{name}}}>" for name in FIELDS),
        "0x{hash},{text}\n",
        '{{"id":{id},"t":"{text_json}","b":"{bytes_json}"}}\n',
        "{text}{text}{text_json}{text_csv}",
    ],
)
def test_a_template_renders_as_format_does(pattern: str, width: int) -> None:
    """A template gives the bytes of str.format for the same rows."""
    made = rows(width)
    chosen = random.Random(1).sample(range(len(made)), 100)
    rendered = Template(pattern).render(segment_of(made, width=width), np.array(chosen, np.int64))
    assert rendered.decode() == "".join(expected(made[number], pattern) for number in chosen)


def test_rendered_json_and_csv_read_back() -> None:
    """json and csv read the rendered rows back."""
    made = rows(4)
    everything = np.arange(len(made))
    lines = Template('{{"t":"{text_json}","b":"{bytes_json}"}}\n').render(segment_of(made), everything).split(b"\n")
    assert [json.loads(line) for line in lines if line] == [
        {"t": row.text, "b": row.hash.decode("latin-1")} for row in made
    ]
    table = Template('"{text_csv}",{id}\r\n').render(segment_of(made), everything).decode()
    assert list(csv.reader(io.StringIO(table, newline=""))) == [[row.text, str(row.id)] for row in made]


def test_no_rows_and_unknown_names() -> None:
    """No rows render as no bytes. A template with an unknown field raises KeyError."""
    assert Template("{id}{text}").render(segment_of(rows(4)), np.empty(0, np.int64)) == b""
    with pytest.raises(KeyError):
        Template("{nothing}")
