"""The kernel that writes records, against json and datetime."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.records import render_record, render_rows
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
    """What two JSON readers agree the records are; the strict one refuses what is not UTF-8."""
    body = b"[" + rendered(rows, order, width) + b"]"
    value: list[dict[str, Any]] = json.loads(body)
    assert orjson.loads(body) == value
    return value


def row(id: int = 1, created_at: int = NOON, text: str = "f()", hash: bytes = b"abcd") -> Row:
    return Row(id, created_at, text, hash)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("place", ["all", "first", "last"])
def test_every_byte_of_a_hash_is_its_character(width: int, place: str) -> None:
    """Each byte value becomes the character of that code, wherever it stands in a hash."""
    zeros = bytes(width - 1)
    shapes = {"all": lambda b: b * width, "first": lambda b: b + zeros, "last": lambda b: zeros + b}
    rows = [row(id=byte + 1, hash=shapes[place](bytes([byte]))) for byte in range(256)]
    assert records(rows, width=width) == [record_of(each) for each in rows]


@pytest.mark.parametrize("width", WIDTHS)
def test_bytes_read_as_json_dumps_writes_them(width: int) -> None:
    """A reader gets from our bytes_signature just what it gets from json.dumps of the same text."""
    for byte in range(256):
        hash = bytes([byte]) * width
        (record,) = records([row(hash=hash)], width=width)
        assert record["bytes_signature"] == json.loads(json.dumps(hash.decode("latin-1")))
        assert record["hex_signature"] == "0x" + hash.hex()


@settings(deadline=None)
@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=20))
def test_any_hash_is_written_as_json_has_it(hashes: list[bytes]) -> None:
    """Neighbouring bytes never run together: any event hash reads back as it is."""
    rows = [row(id=number, hash=hash) for number, hash in enumerate(hashes, 1)]
    assert records(rows, width=32) == [record_of(each) for each in rows]


def test_every_character_of_a_text_is_escaped_as_json_wants() -> None:
    """Quotes, backslashes and control characters of a text are escaped, all others stand as they are."""
    rows = [row(id=code + 1, text=f"a{chr(code)}b") for code in range(0x250)]
    assert records(rows) == [record_of(each) for each in rows]


@settings(deadline=None)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=10))
def test_any_text_reads_back(texts: list[str]) -> None:
    """Any text reads back as it was, also outside ASCII."""
    rows = [row(id=number, text=text) for number, text in enumerate(texts, 1)]
    assert [record["text_signature"] for record in records(rows)] == texts


@pytest.mark.parametrize("digits", range(1, 20))
def test_ids_of_any_length_are_written_in_full(digits: int) -> None:
    """The smallest and largest ids of 1 to 19 digits stand in the record as they are."""
    ids = [10 ** (digits - 1), min(10**digits, 2**63) - 1]
    assert [record["id"] for record in records([row(id=id) for id in ids])] == ids


@settings(deadline=None)
@given(st.one_of(st.integers(FIRST, LAST), st.datetimes(EPOCH.replace(tzinfo=None)).map(
    lambda at: (at.replace(tzinfo=UTC) - EPOCH) // MICROSECOND)))  # fmt: skip
def test_times_are_the_calendar_s(microseconds: int) -> None:
    """created_at is UTC with six decimals, leap years and all, as datetime has it."""
    (record,) = records([row(created_at=microseconds)])
    assert record == record_of(row(created_at=microseconds))
    assert datetime.strptime(record["created_at"], "%Y-%m-%dT%H:%M:%S.%f%z") == EPOCH + microseconds * MICROSECOND


@pytest.mark.parametrize("year", [1600, 1900, 1970, 1999, 2000, 2024, 2026, 2100, 9999])
def test_the_days_round_the_turns_of_year_and_february(year: int) -> None:
    """First and last microseconds of the days where a calendar goes wrong are right."""
    days = [datetime(year, 1, 1, tzinfo=UTC), datetime(year, 2, 28, tzinfo=UTC), datetime(year, 3, 1, tzinfo=UTC)]
    times = [(day - EPOCH) // MICROSECOND + shift for day in days for shift in (0, 86_399_999_999, 86_400_000_000)]
    rows = [row(created_at=at) for at in times]
    assert records(rows) == [record_of(each) for each in rows]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), max_size=30))
def test_rows_are_written_in_the_order_asked(order: list[int]) -> None:
    """Records stand in the order of the row numbers given, as often as these name them."""
    rows = [row(id=number + 1, text=f"f{number}()" * (number + 1)) for number in range(10)]
    assert records(rows, order) == [record_of(rows[number]) for number in order]


def test_no_rows_are_nothing() -> None:
    """No rows are no bytes: the caller's brackets stay an empty list."""
    assert rendered([]) == b""
    assert rendered([row()], order=[]) == b""


def test_the_longest_record_has_room() -> None:
    """Where every byte takes the most space there is, nothing is cut and nothing written over."""
    worst = row(id=2**63 - 1, created_at=LAST, text='"\\\0\x1f' * 5000, hash=bytes(32))
    rows = [worst._replace(id=worst.id - number) for number in range(20)]
    assert records(rows, width=32) == [record_of(each) for each in rows]


def test_records_have_no_blanks_and_the_order_of_the_contract() -> None:
    """A record is compact and begins with its id, then time, text, hash and bytes."""
    assert rendered([row()]) == (
        b'{"id":1,"created_at":"2023-11-14T22:13:20.000000Z","text_signature":"f()",'
        b'"hex_signature":"0x61626364","bytes_signature":"abcd"}'
    )


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(FIRST, LAST), st.text(max_size=30), st.binary(min_size=4, max_size=4))
def test_one_record_from_values_is_the_segment_s(id: int, created_at: int, text: str, hash: bytes) -> None:
    """A record made without a segment has the same values in the same order."""
    made = Row(id, created_at, text, hash)
    one, page = (json.loads(body, object_pairs_hook=list) for body in (render_record(*made), rendered([made])))
    assert one == page
