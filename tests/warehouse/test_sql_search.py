"""SQL's search(fragment): the rows that the API's lists and OpenChain's search find."""

from __future__ import annotations

from pathlib import Path

import pytest

import sigdir
from sigdir.serve.pages.search import find
from sigdir.serve.pages.search_query import parse_search
from sigdir.signatures.collections import COLLECTIONS, SIGNATURES
from sigdir.warehouse import QueryError, Warehouse
from sigdir.warehouse.index.view import Reader, View
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.warehouse.support import Run

ROWS = 1 << 14  # have grams
SIGNATURES_OF = [
    [*(f"name{number:x}(uint256)" for number in range(ROWS)), "balanceOf(address)", "getBalanceOf(address,uint8[2])"],
    ["BALANCEOF()", "a$_1(bool[])", "transfer(address,uint256)"],
]
EVENTS_OF = [["BalanceOf(address)", "Transfer(address,address,uint256)"], []]
FRAGMENTS = ["balanceof", " balanceOf ", "name3ff", "(address", "uint8[2]", "$_", "f", "", "no such text", "é", "a\0"]
PATTERNS = ["balanceOf*", "*BalanceOf(*)", "?ransfer(*", "*[]", "*[?]*", "name??(uint256)", "**?", "x*"]


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> tuple[Paths, View]:
    """A warehouse of two versions whose index a server has made, and what that server reads. Tests do not change it."""
    paths = Paths(tmp_path_factory.mktemp("searched") / "warehouse")
    for signatures, events in zip(SIGNATURES_OF, EVENTS_OF, strict=True):
        with Run(paths, [signatures], [events] if events else []) as run:
            run.publish()
    reader = Reader(paths)
    reader.close()
    return paths, reader.held()


@pytest.fixture(scope="module")
def warehouse(view: tuple[Paths, View]) -> Warehouse:
    return sigdir.open(view[0].root)


def served(view: View, fragment: str) -> list[tuple[str, int, str, str]]:
    """Collection, id, text and hash of the rows that servers find."""
    is_pattern = "*" in fragment or "?" in fragment
    found = []
    for collection in COLLECTIONS:
        for segment in view.segments[collection]:
            rows = segment.like(fragment, segment.rows) if is_pattern else segment.with_text(fragment.strip())
            for row in rows.tolist():
                hex = "0x" + segment.hash[row].tobytes().hex()
                found.append((str(collection), int(segment.ids[row]), segment.text_at(row), hex))
    return sorted(found)


def test_sql_finds_what_servers_find(warehouse: Warehouse, view: tuple[Paths, View]) -> None:
    """The same rows, of any fragment or pattern, and their number."""
    columns = "collection, id, text_signature, hex_signature"
    for fragment in (*FRAGMENTS, *PATTERNS):
        found = warehouse.sql(f"SELECT {columns} FROM search(?) ORDER BY collection, id", [fragment]).rows()
        assert found == served(view[1], fragment), fragment
        assert warehouse.sql("SELECT count(*) FROM search(?)", [fragment]).rows() == [(len(found),)]


def test_the_columns_are_those_of_the_views(warehouse: Warehouse) -> None:
    """Also where the engine asks for rows in another order than theirs; a fragment may come from another table or be NULL."""
    columns = "id, text_signature, hex_signature, created_at, hash"
    last = "ORDER BY text_signature DESC LIMIT 5"
    for collection in COLLECTIONS:
        query = f"SELECT {columns} FROM search('o') WHERE collection = '{collection}' {last}"
        expected = f"SELECT {columns} FROM {collection.view_name} WHERE text_signature ILIKE '%o%' {last}"
        assert warehouse.sql(query).arrow() == warehouse.sql(expected).arrow()
    fragments = "(VALUES ('balanceof'), ('nothing like it'), (NULL), ('Transfer*')) AS given(fragment)"
    query = f"SELECT fragment, count(*) FROM {fragments}, search(fragment) GROUP BY ALL ORDER BY 1"
    assert warehouse.sql(query).rows() == [("Transfer*", 1), ("balanceof", 4)]
    query = "SELECT import_id FROM search('getBalanceOf') JOIN signatures USING (id, text_signature)"
    assert warehouse.sql(query).rows() == [(1,)]
    older = sigdir.open(warehouse.paths.root, as_of=warehouse.version - 1)
    assert older.sql("SELECT count(*) FROM search('balanceof')").rows() == [(3,)]


STRUCTURES = {
    "(address,*)": {"balanceOf(address)", "getBalanceOf(address,uint8[2])", "transfer(address,uint256)", "BalanceOf(address)",
                    "Transfer(address,address,uint256)"},
    "transfer (address,uint)": {"transfer(address,uint256)"},
    "*of params:2": {"getBalanceOf(address,uint8[2])"},
    "type:bool[]": {"a$_1(bool[])"},
}  # fmt: skip


def test_names_and_parameters_are_found(warehouse: Warehouse) -> None:
    """As the search page finds them. What a text does not say is refused, and a fragment or pattern of 257 characters."""
    for query, texts in STRUCTURES.items():
        assert {text for (text,) in warehouse.sql("SELECT text_signature FROM search(?)", [query]).rows()} == texts
    refused = {
        "kind:error": "^Invalid Input Error: search.. takes a name, parameters",
        "a (uint7)": "at column 4$",
    } | dict.fromkeys(("a" * 257, "a" * 256 + "*"), "at most 256 characters, and these are 257")
    for query, problem in refused.items():
        with pytest.raises(QueryError, match=problem):
            warehouse.sql("FROM search(?)", [query]).rows()
    assert warehouse.sql("FROM search(?)", ["a" * 256]).rows() == []


ORDERS = {
    "pay": None, "PAY (*)": None, "()": None, "*pay (*)": None, "type:bool": None, "kind": [],
    "balanceOf": ["balanceOf(address)", "balanceOf(address,uint256)"],
    "(address,*)": [
        "balanceOf(address)", "transfer(address,uint256)", "balanceOf(address,uint256)",
        "Transfer(address,address,uint256)",
    ],
    "transfer (*)": ["transfer(address,uint256)", "Transfer(address,address,uint256)", "Transfer()"],
}  # fmt: skip
"""Queries, and the order of some: of standards the best known comes first, and the text of an event is none of them."""


def test_the_weight_orders_as_the_search_page_does(tmp_path: Path) -> None:
    """By how well a text matches, then by its evidence; more sources are better, whatever their witness."""
    listed = ["balanceOf(address)", "Transfer(address,address,uint256)"]
    others = ["repay()", "payNow()", "pay(bool)", "transfer(address,uint256)", "PAYEE()", "Transfer()"]
    declared = ["function pay() view", "function unpay() view", "function balanceOf(address,uint256) view"]
    import_lines(tmp_path / "warehouse", *listed, source="first")
    import_lines(tmp_path / "warehouse", *listed, *others, *declared, source="second")
    reader = Reader(Paths(tmp_path / "warehouse"))
    reader.close()
    warehouse = sigdir.open(tmp_path / "warehouse")
    for query, texts in ORDERS.items():
        rows = warehouse.sql("SELECT text_signature, weight >> 32 FROM search(?) ORDER BY weight, id", [query]).rows()
        found = [text for text, _ in rows]
        assert found == [row.text for row in find(reader.held(), SIGNATURES, parse_search(query), 0, 20).rows]
        assert texts in (None, found)
    assert [match for _, match in rows] == [0, 2, 2], "the last two have another case"
