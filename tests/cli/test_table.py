"""The table that people see: which rows and columns it shows, and what it says about the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from sigdir.warehouse import Warehouse
from sigdir.warehouse.table.paths import Paths
from tests.warehouse.support import names, publish


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    folder: Path = tmp_path_factory.mktemp("table") / "warehouse"
    publish(Paths(folder), names("f", 3))
    return Warehouse(folder)


def lines(warehouse: Warehouse, query: str, width: int | None = None) -> list[str]:
    return warehouse.sql(query).drawn(width).splitlines()


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_table_has_names_types_and_rows(warehouse: Warehouse) -> None:
    """NULL, times in UTC and lists are readable, bytes are left out, and text of others does not control the terminal."""
    query = "SELECT 12 AS id, NULL AS text, TIMESTAMPTZ '2026-11-21 08:05:07Z' AS at, ['bool', 'int8'] AS types"
    drawn = lines(warehouse, query)
    assert cells(drawn[1]) == ["id", "text", "at", "types"]
    assert cells(drawn[4]) == ["12", "NULL", "2026-11-21 08:05:07+00", "[bool, int8]"]
    assert "bytes" not in lines(warehouse, "FROM signatures")[1]
    assert cells(lines(warehouse, "SELECT '\\xa9\\x05'::BLOB AS hash")[1]) == ["hash"]  # there is no other column
    assert cells(lines(warehouse, "SELECT 'a' || chr(27) || '[2J' || chr(10) || 'b' AS text")[4]) == ["a\\e[2J\\nb"]
    assert "╭─" in lines(warehouse, "EXPLAIN SELECT 1")[0]  # a drawing of several lines


def test_no_line_is_wider_than_the_terminal(warehouse: Warehouse) -> None:
    """Long cells are cut, and columns left out; without a terminal nothing is."""
    query = "SELECT id, 'f(' || repeat('uint256,', 20) || 'bool)' AS text, '0xa9059cbb' AS hex FROM signatures"
    for width in (80, 100):
        assert max(map(len, lines(warehouse, query, width))) <= width
    assert f"f({'uint256,' * 20}bool)" in lines(warehouse, query)[4]


def test_of_many_rows_the_first_and_the_last_are_shown(warehouse: Warehouse) -> None:
    """Of 10,000 and more no more are computed, so the last are not known: the first are shown, and a line says so."""
    drawn = lines(warehouse, "FROM range(100)")
    assert [cells(line)[0] for line in drawn[4:-3]] == [*map(str, range(20)), *"···", *map(str, range(80, 100))]
    assert "100 rows" in drawn[-2]
    assert "9999 rows" in lines(warehouse, "FROM range(9999)")[-2].replace(",", "")
    for rows in (10_000, 30_000):
        drawn = lines(warehouse, f"FROM range({rows})")
        assert [cells(line)[0] for line in drawn[4:-2]] == [*map(str, range(20))]
        assert drawn[-1] == "the first 20 of 10,000 rows or more"
