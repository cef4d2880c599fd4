"""The table that people see: which rows and columns it shows, and what it says about the others."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from sigdir.cli.table import draw


def table(columns: dict[str, pa.Array], width: int | None = None) -> list[str]:
    """The lines of a table with these columns."""
    made = pa.table(columns)
    return list(draw(made.to_reader(max_chunksize=1_000), width))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_table_has_names_and_rows_and_no_types() -> None:
    """Numbers are on the right, text on the left; NULL, times and lists are readable."""
    time = datetime(2026, 11, 21, 8, 5, 7, 123456, UTC)
    assert table(
        {
            "id": pa.array([1, 12]),
            "text": pa.array(["f()", None]),
            "at": pa.array([time, None], pa.timestamp("us", tz="UTC")),
            "types": pa.array([["bool", "int8"], []], pa.list_(pa.string())),
        }
    ) == [
        "┌────┬──────┬─────────────────────┬─────────────────┐",
        "│ id │ text │ at                  │ types           │",
        "├────┼──────┼─────────────────────┼─────────────────┤",
        '│  1 │ f()  │ 2026-11-21 08:05:07 │ ["bool","int8"] │',
        "│ 12 │ NULL │ NULL                │ []              │",
        "└────┴──────┴─────────────────────┴─────────────────┘",
        "2 rows",
    ]


def test_columns_of_bytes_are_left_out_and_named() -> None:
    """Where there are no other columns they are shown as hex."""
    hashes = pa.array([b"\xa9\x05\x9c\xbb"])
    lines = table({"id": pa.array([1]), "hash": hashes, "bytes_signature": pa.array(["\xa9\x05\x9c\xbb"])})
    assert (cells(lines[1]), lines[-1]) == (["id"], "1 row; not shown: hash, bytes_signature")
    assert cells(table({"hash": hashes})[3]) == ["0xa9059cbb"]


def test_a_narrow_terminal_cuts_long_cells_then_leaves_out_the_last_columns() -> None:
    """No line is wider than the terminal."""
    columns = {"id": pa.array([7]), "text": pa.array([f"f({'uint256,' * 20}bool)"]), "hex": pa.array(["0xa9059cbb"])}
    wide, narrow, narrowest = (table(columns, width) for width in (300, 60, 36))
    assert max(map(len, wide)) > 120
    assert cells(narrow[3])[0::2] == ["7", "0xa9059cbb"]
    assert cells(narrow[3])[1].endswith("…")
    assert (cells(narrowest[1]), narrowest[-1]) == (["id", "text"], "1 row; not shown: hex")
    for lines, width in ((narrow, 60), (narrowest, 36)):
        assert max(map(len, lines)) <= width


def test_of_a_file_the_end_of_its_name_is_shown() -> None:
    """Where a terminal of 80 characters shows a reject, its file and line are in it."""
    reject = {
        "import_id": pa.array([1]), "text": pa.array([f"f({'uint256,' * 20}bool)"]),
        "reason": pa.array(["too_many_indexed"]), "file": pa.array(["/a/folder/with/a/long/name/list.txt"]),
        "line": pa.array([1234]), "position": pa.array([1]),
    }  # fmt: skip
    lines = table(reject, 80)
    assert cells(lines[3])[2:] == ["too_many_indexed", "…g/name/list.txt", "1234"]
    assert lines[-1] == "1 row; not shown: position"


def test_of_many_rows_the_first_and_the_last_are_shown() -> None:
    """Of over 10,000 the first; the others are not computed."""
    assert len(table({"n": pa.array(range(40))})) == 40 + 5
    lines = table({"n": pa.array(range(41))})
    assert [cells(line)[0] for line in lines[3:-2]] == [*map(str, range(20)), "·", *map(str, range(21, 41))]
    assert lines[-1] == "41 rows, the first and last 20 shown"
    lines = table({"n": pa.array(range(30_000))})
    assert [cells(line)[0] for line in lines[3:-2]] == [*map(str, range(40))]
    assert lines[-1] == "over 10,000 rows, the first 40 shown"


def test_text_of_others_does_not_control_the_terminal() -> None:
    """Line breaks and escape sequences are written as such; wide characters take two places."""
    lines = table({"text": pa.array(["a\x1b[2J\nb", "字"])})
    assert cells(lines[3]) == ["a\\x1b[2J\\nb"]
    assert len(lines[4]) == len(lines[3]) - 1


def test_the_plan_of_a_query_is_shown_as_it_is() -> None:
    """EXPLAIN gives a drawing of several lines."""
    assert table({"explain_key": pa.array(["physical_plan"]), "explain_value": pa.array(["╭─╮\n╰─╯"])}) == ["╭─╮\n╰─╯"]
