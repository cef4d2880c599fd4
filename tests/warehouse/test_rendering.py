"""Rows rendered by the kernels, compared with str.format; json and csv read them back."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson
import pytest

from sigdir.signatures.collections import COLLECTIONS
from sigdir.warehouse.index.template import (
    FIELDS,
    RECORD,
    Template,
    records_size,
    render_record,
    render_rows,
)
from tests.serve.support import Row, record_of, segment_of

WIDTHS = sorted({collection.hash_bytes for collection in COLLECTIONS})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // MICROSECOND
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // MICROSECOND


def rendered(rows: list[Row], order: list[int] | None = None, width: int = 4) -> bytes:
    numbers = np.array(list(range(len(rows))) if order is None else order, np.int64)
    return render_rows(segment_of(rows, width=width), numbers)


def row(id: int = 1, created_at: int = 1_700_000_000_000_000, text: str = "f()", hash: bytes = b"abcd") -> Row:
    return Row(id, created_at, text, hash)


def test_records_are_compact_and_in_the_order_of_the_contract() -> None:
    """A record has no blanks and the order id, time, text, hash, bytes. No rows give no bytes."""
    assert rendered([row()]) == (
        b'{"id":1,"created_at":"2023-11-14T22:13:20.000000Z","text_signature":"f()",'
        b'"hex_signature":"0x61626364","bytes_signature":"abcd"}'
    )
    assert rendered([]) == rendered([row()], order=[]) == b""
    worst = [row(id=2**63 - 1, created_at=LAST, hash=b"\xff" * 32)] * 3
    assert len(rendered(worst, width=32)) <= records_size(segment_of(worst, width=32), np.arange(3))


def edges(width: int) -> list[Row]:
    """Each byte at each place of a hash, each character, ids of 1 to 19 digits, the first and last times, long rows."""
    zeros = bytes(width - 1)
    bytes_of = [bytes([byte]) for byte in range(256)]
    rows = [row(hash=hash) for one in bytes_of for hash in (one * width, one + zeros, zeros + one)]
    rows += [row(text=f"a{chr(code)}b\U0001f600", hash=bytes(width)) for code in range(0x250)]
    ids = [id for digits in range(1, 20) for id in (10 ** (digits - 1), min(10**digits, 2**63) - 1)]
    rows += [row(id=id, hash=bytes(width)) for id in (0, *ids)]
    rows += [row(created_at=at, hash=bytes(width)) for at in (FIRST, -1, 0, LAST)]
    longest = row(id=2**63 - 1, created_at=LAST, text='"\\\0\x1f' * 1000, hash=bytes(width))
    return [*rows, *[longest] * 2]


def expected(row: Row, pattern: str) -> str:
    moment = EPOCH + timedelta(microseconds=row.created_at)
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


PATTERNS = ("", "literal", "{{}}", *(f"<{{{name}}}>" for name in FIELDS), "{text}{text}{text_json}{text_csv}", RECORD)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_template_renders_as_format_does(width: int) -> None:
    """The bytes of str.format, which JSON and CSV read back; of a row without a segment too. An unknown field is a KeyError."""
    made = edges(width)
    segment, order = segment_of(made, width=width), random.Random(1).sample(range(len(made)), len(made))
    for pattern in PATTERNS:
        found = Template(pattern).render(segment, np.array(order, np.int64))
        assert found.decode() == "".join(expected(made[number], pattern) for number in order), pattern
    body = b"[" + rendered(made, order, width) + b"]"
    assert json.loads(body) == orjson.loads(body) == [record_of(made[number]) for number in order]
    for one in made[::50]:
        alone, page = render_record(*one), rendered([one], width=width)
        assert json.loads(alone, object_pairs_hook=list) == json.loads(page, object_pairs_hook=list)
    table = Template('"{text_csv}",{id}\r\n').render(segment, np.arange(len(made))).decode()
    assert list(csv.reader(io.StringIO(table, newline=""))) == [[row.text, str(row.id)] for row in made]
    assert Template("{id}{text}").render(segment, np.empty(0, np.int64)) == b""
    with pytest.raises(KeyError):
        Template("{nothing}")
