"""Rows rendered by a template, compared with str.format, csv and json."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from sigdir.warehouse.index.template import FIELDS, Template
from tests.serve.support import Row, segment_of

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
