"""The change feed and the lists' cursors: a client that follows gets every row once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sigdir.serve.bulk.changes import changes
from sigdir.serve.lists.paging import cursor_at, id_of, page_of, parse
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES, Collection
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.publish.publish import Publisher, fold
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment, import_lines
from tests.processes import run_forked
from tests.serve.support import (
    EVENTS_PATH,
    SIGNATURES_PATH,
    Application,
    Row,
    application,
    get,
    post_text,
    record_of,
    segment_of,
    view_of,
)

CHANGES_PATH = "/api/v1/changes/"


def step(app: Application, after: str) -> tuple[list[dict[str, Any]], str, bool]:
    """One answer of the feed: rows, the cursor to go on with, whether there is more now."""
    answer = get(app, f"{CHANGES_PATH}?collection=signatures&after={after}&limit=1000")
    assert answer.status == 200, answer.body
    assert answer.header("Content-Type") == "application/x-ndjson"
    *rows, last_line = [json.loads(line) for line in answer.body.splitlines()]
    assert set(last_line) == {"next", "more", "left"}
    assert last_line["more"] == (last_line["left"] > 0)
    return rows, last_line["next"], last_line["more"]


# Without a server.

ROWS = [Row(id, 10**15 + id, f"f{id}(uint256)", id.to_bytes(4, "big")) for id in (1, 2, 3, 7, 8, 20, 21, 30)]
SEGMENTS = [segment_of(ROWS[:3], by_hash=True), segment_of(ROWS[3:6], by_hash=True), segment_of(ROWS[6:], slack=3)]


@pytest.mark.parametrize("limit", [1, 3, 8, 100])
def test_the_feed_gives_all_rows_in_order_whatever_the_limit(limit: int) -> None:
    """A cursor between ids or ahead of them is one like any other."""
    view = view_of(SEGMENTS)
    seen: list[bytes] = []
    after, more = 0, True
    while more:
        found = changes(view, SIGNATURES, after, limit)
        lines = b"".join(found.lines()).splitlines()
        assert len(lines) == min(limit, len(ROWS) - len(seen))
        seen += lines
        assert found.left == len(ROWS) - len(seen)
        after, more = found.last_id, found.left > 0
    assert [json.loads(line) for line in seen] == [record_of(row) for row in ROWS]
    rest = changes(view, SIGNATURES, after, limit)
    assert (rest.parts, rest.last_id, rest.left) == ((), 30, 0)
    between, ahead = (changes(view, SIGNATURES, id, 1).last_id for id in (5, 99))
    assert (between, ahead) == (7, 99)


@pytest.mark.parametrize("collection", COLLECTIONS)
@pytest.mark.parametrize("id", [0, 255, 2**59])
def test_a_cursor_reads_back_in_its_own_collection(collection: Collection, id: int) -> None:
    cursor = cursor_at(collection, id)
    assert id_of(collection, cursor) == id
    (other,) = set(COLLECTIONS) - {collection}
    for wrong in (f"{cursor} ", cursor.upper(), cursor[1:], "", "s-1", "s01", "s" + "f" * 40):
        assert id_of(collection, wrong) is None
    assert id_of(other, cursor) is None


@pytest.mark.parametrize(
    "wanted", ["", "&text_signature=f2&ordering=created_at", "&created_at__gt=2001-09-09T01:46:40.000002Z"]
)
def test_pages_by_cursor_have_every_row_once(wanted: str) -> None:
    view = view_of(SEGMENTS)
    plain = json.loads(page_of(view, SIGNATURES, parse(f"page_size=1000{wanted}"), "http://a/").body())
    assert plain["results"]
    for size in (1, 3, 1000):
        rows, query = [], f"http://a/?cursor=&page_size={size}{wanted}"
        while query:
            page = json.loads(page_of(view, SIGNATURES, parse(query.partition("?")[2]), "http://a/").body())
            assert (page["count"], page["previous"]) == (plain["count"], None)
            rows += page["results"]
            query = page["next"]
        assert rows == plain["results"]


def test_rows_that_come_meanwhile_move_nothing_to_another_page() -> None:
    """Newest first, with a row more before the second page: by number a row would come twice."""
    before, after = view_of(SEGMENTS), view_of([*SEGMENTS, segment_of([Row(31, 10**16, "new()", b"abcd")])])
    first = json.loads(page_of(before, SIGNATURES, parse("cursor=&page_size=3"), "").body())
    second = json.loads(page_of(after, SIGNATURES, parse(first["next"].partition("?")[2]), "").body())
    assert [row["id"] for row in first["results"] + second["results"]] == [30, 21, 20, 8, 7, 3]


# What a publish holds back.


def held_back(paths: Paths) -> dict[Collection, int]:
    with closing(Reader(paths)) as reader:
        return dict(reader.current().stable_up_to)


@pytest.mark.parametrize("point", ["begun", "written", "committed"])
def test_what_a_dead_import_reserved_holds_the_feed_back_until_the_next_publisher(warehouse: Path, point: str) -> None:
    """One that died after its commit holds nothing back."""
    paths = Paths(warehouse)
    import_lines(warehouse, "old()", "event Old()")
    (lines := warehouse.with_name("new.txt")).write_text("new()\nnewer()\n")
    variables = environment(warehouse) | {"SIGDIR_FAILPOINT": point}
    assert run_forked(["import", str(lines), "--quiet"], ROOT, variables, SAFETY_SECONDS).returncode < 0
    stable_up_to, is_committed = held_back(paths), point == "committed"
    assert read_snapshot(paths).count(SIGNATURES) == (3 if is_committed else 1)
    assert (stable_up_to[SIGNATURES] == 1, stable_up_to[SIGNATURES] > 10**18) == (not is_committed, is_committed)
    assert stable_up_to[EVENT_SIGNATURES] > 10**18  # it had no event
    assert fold(paths) is None
    assert held_back(paths)[SIGNATURES] > 10**18


# Over HTTP.


@pytest.fixture
def app(warehouse: Path) -> Iterator[Application]:
    with application(warehouse) as app:
        yield app


def test_bad_parameters_are_refused(app: Application) -> None:
    for query, name in (("collection=x", "collection"), ("after=x", "after"), ("after=e1", "after")):
        answer = get(app, f"{CHANGES_PATH}?{query}")
        assert (answer.status, list(answer.json())) == (400, [name])
    for limit in ("0", "-1", "x", "%D9%A3"):
        assert get(app, f"{CHANGES_PATH}?limit={limit}").status == 400
    assert get(app, f"{CHANGES_PATH}?limit=1").status == 200
    assert get(app, f"{SIGNATURES_PATH}?cursor=x").status == 404
    assert get(app, f"{EVENTS_PATH}?cursor=s1").status == 404
    assert get(app, CHANGES_PATH[:-1]).header("Location") == CHANGES_PATH


def test_a_row_posted_while_an_import_is_in_work_waits_for_it(app: Application) -> None:
    """The import has reserved its ids; the POSTed row lies above them and is in the lists at once."""
    import_lines(app.folder, *(f"before{n}()" for n in range(3)))
    _, start, _ = step(app, "")
    paths = Paths(app.folder)
    with Publisher(paths) as publisher:
        with publisher.staging.exclusive() as staging:
            staging.begin_publish("run")
            place = staging.reserve(SIGNATURES, 10, publisher.snapshot.high_water[SIGNATURES])
            staging.reserve_from("run", SIGNATURES, place.first_id)
        row = post_text(app, "while()").json()
        assert row["id"] == place.first_id + 10
        assert get(app, f"{SIGNATURES_PATH}?page_size=1").json()["results"] == [row]
        assert step(app, start) == ([], start, False)
        with publisher.staging.exclusive() as staging:
            staging.end_publish("run")
    assert step(app, start) == ([row], cursor_at(SIGNATURES, row["id"]), False)
