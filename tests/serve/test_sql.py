"""SQL over HTTP: what strangers may ask, what they get, and what ends a query."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from falcon.testing import Result, TestClient

from sigdir.serve.core.named_queries import parse_queries, read_queries
from sigdir.warehouse import QueryError
from tests.conftest import import_lines
from tests.pipeline.support import invoke
from tests.serve.support import TRANSFER, application, get, selector

PATH = "/api/v1/sql/"
ENDLESS = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
QUERIES = """
-- name: like
-- Texts that begin
-- with a name.
-- $name: transfer
SELECT text_signature FROM signatures
-- a comment
WHERE text_signature LIKE $name || '(%' ORDER BY id;
-- name: one

SELECT 1 AS one
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql")
    for number, texts in enumerate(([TRANSFER], [f"f{n}(uint256)" for n in range(1500)])):
        import_lines(folder / "warehouse", *texts, name=f"texts{number}.txt")
    (folder / "queries.sql").write_text(QUERIES)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Iterator[TestClient]:
    with application(folder / "warehouse", sql=True, sql_queries=folder / "queries.sql", sql_seconds=20) as app:
        yield app.client


def ask(client: TestClient, sql: str, **parameters: str) -> Result:
    return client.simulate_get(PATH, params={"sql": sql} | parameters)


def test_rows_come_with_columns_and_version(client: TestClient) -> None:
    """Values of parameters are bound by their names or places, in an address and in a body."""
    sql = "SELECT id, text_signature FROM signatures WHERE hex_signature = $hash"
    wanted = {
        "version": 2, "columns": [{"name": "id", "type": "BIGINT"}, {"name": "text_signature", "type": "VARCHAR"}],
        "rows": [[1, TRANSFER]], "truncated": False,
    }  # fmt: skip
    assert ask(client, sql, hash=selector(TRANSFER)).json == wanted
    by_place = sql.replace("$hash", "?")
    assert ask(client, by_place, **{"1": selector(TRANSFER)}).json == wanted
    assert client.simulate_post(PATH, json={"sql": sql, "params": {"hash": selector(TRANSFER)}}).json == wanted
    assert client.simulate_post(PATH, json={"sql": by_place, "params": [selector(TRANSFER)]}).json == wanted


def test_more_rows_than_a_thousand_are_truncated(client: TestClient) -> None:
    """Each format has the same first thousand rows, and says that there are more."""
    sql = "SELECT id, text_signature FROM signatures ORDER BY id"
    whole = ask(client, sql).json
    assert (len(whole["rows"]), whole["truncated"]) == (1000, True)
    answers = {form: ask(client, sql, format=form) for form in ("csv", "ndjson", "parquet", "arrow")}
    assert {answer.headers["truncated"] for answer in answers.values()} == {"true"}
    tables = [
        pq.read_table(io.BytesIO(answers["parquet"].content)), pa.ipc.open_stream(answers["arrow"].content).read_all(),
    ]  # fmt: skip
    lines = answers["ndjson"].text.splitlines()
    assert all([list(row.values()) for row in table.to_pylist()] == whole["rows"] for table in tables)
    assert [list(json.loads(line).values()) for line in lines] == whole["rows"]
    assert answers["csv"].text.splitlines()[:2] == ["id,text_signature", f'1,"{TRANSFER}"']
    assert ask(client, "SELECT 1 AS a").json["truncated"] is False


@pytest.mark.parametrize("value", ["INTERVAL 1 DAY", "MAP {}"])
def test_what_parquet_cannot_have_is_no_error_of_the_server(client: TestClient, value: str) -> None:
    answer = ask(client, f"SELECT {value} AS a", format="parquet")
    assert (answer.status_code, answer.json["sql"][0][:28]) == (400, "Parquet has no such type; CA")


def test_an_older_version_can_be_asked(client: TestClient) -> None:
    sql = "SELECT count(*) FROM signatures"
    assert ask(client, sql).json["rows"] == [[1501]]
    assert ask(client, sql, as_of="1").json["rows"] == [[1]]
    assert ask(client, sql, as_of="9").json == {"as_of": ["There is no such version, or it is not kept any more."]}


def test_an_etag_names_the_version_and_the_query(client: TestClient, folder: Path) -> None:
    """A client that has the answer gets a 304; another query, format, version or list of named queries has another ETag."""
    tag = ask(client, "SELECT 1 AS a").headers["etag"]
    again = client.simulate_get(PATH, params={"sql": "SELECT 1 AS a"}, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    others = [
        ask(client, "SELECT 2 AS a"),
        ask(client, "SELECT 1 AS a", format="csv"),
        ask(client, "SELECT 1 AS a", as_of="1"),
    ]
    assert len({tag, *(other.headers["etag"] for other in others)}) == 4
    (file := folder / "edited.sql").write_text(QUERIES.replace("1 AS one", "2 AS one"))
    with application(folder / "warehouse", sql=True, sql_queries=file, sql_seconds=20) as app:
        for path in (f"{PATH}?query=one", PATH, "/sql/"):
            assert get(app, path).header("ETag") != client.simulate_get(path).headers["etag"]


REFUSED = [
    "SELECT main.current_setting('allowed_paths')", "FROM duckdb_views()", "FROM sqlite_master",
    "WITH sqlite_master AS (SELECT 1) FROM sqlite_master", "FROM information_schema.views", "SUMMARIZE duckdb_views",
    "FROM parts.sources", "FROM '/etc/passwd'", "FROM rejects", "EXPLAIN FROM signatures", "SELECT pg_get_viewdef(1)",
    "SELECT 1; SELECT 2", "COPY (SELECT 1) TO '/tmp/x'", "SET threads = 4", "CREATE TABLE a (b INT)",
    "PRAGMA database_list", "SHOW ALL TABLES", "SELECT list_transform(['threads'], lambda x: current_setting(x))",
    "FROM query_table(['sqlite_master'])", ";", "--", "SELECT (SELECT count(*) FROM duckdb_settings())",
    "SELECT json_serialize_plan('SELECT current_setting(''allowed_paths'')', optimize := true)",
    'WITH "main.duckdb_views" AS (SELECT 1) FROM main.duckdb_views',
    'WITH "parts.sources" AS (SELECT 1) FROM parts.sources',
]  # fmt: skip


@pytest.mark.parametrize("sql", REFUSED)
def test_strangers_reach_our_views_and_nothing_else(client: TestClient, folder: Path, sql: str) -> None:
    """A 400 that names no path of the server."""
    answer = ask(client, sql)
    assert (answer.status_code, list(answer.json)) == (400, ["sql"])
    assert str(folder) not in answer.text


def test_no_view_has_a_folder_of_the_server(client: TestClient, folder: Path) -> None:
    """Every view can be read, and none of them has a path that the operator imported from."""
    views = client.simulate_get(PATH).json["views"]
    for view in views:
        answer = ask(client, f"FROM {view} LIMIT 100", format="ndjson")
        assert answer.status_code == 200
        assert str(folder) not in answer.text
        assert view != "imports" or "texts0.txt" in answer.text
    assert "imports" in views


ERRORS = {
    "SELECT * FORM x": 'line 1, column 15: syntax error at or near "x"',
    "SELECT 1,\n  'ä', ,": 'line 2, column 8: syntax error at or near ","',
    "SELECT 'abc'::INT": "line 1, column 13: Could not convert string 'abc' to INT32",
    f"FROM search('{'a' * 300}')": "search() takes at most 256 characters, and these are 300",
}


@pytest.mark.parametrize("sql", ERRORS)
def test_an_error_names_its_place(client: TestClient, sql: str) -> None:
    answer = ask(client, sql)
    assert (answer.status_code, answer.json) == (400, {"sql": [ERRORS[sql]]})


def test_wrong_fields_are_named(client: TestClient) -> None:
    """Each has an error of its own."""
    for name, value in (
        ("b", "2"), ("seconds", "21"), ("seconds", "nan"), ("seconds", "\u0663"), ("format", "xml"), ("as_of", "soon"),
        ("as_of", "\u0661"), ("as_of", "0001-01-01T00:00+14:00"),
    ):  # fmt: skip
        answer = ask(client, "SELECT 1", **{name: value})
        assert (answer.status_code, list(answer.json)) == (400, [name])
    for fields, name in (({"sql": "SELECT $a"}, "a"), ({"query": "none"}, "query")):
        answer = client.simulate_get(PATH, params=fields)
        assert (answer.status_code, list(answer.json)) == (400, [name])
    for body in ({"sql": "SELECT ?", "params": [{}]}, {"sql": "SELECT ?", "params": [2**200]}, {"sql": 1}, {"rows": 2}):
        assert client.simulate_post(PATH, json=body).status_code == 400
    named = client.simulate_post(PATH, json={"sql": "SELECT $\u00b2 AS a", "params": {"\u00b2": 4}})
    assert named.json["rows"] == [[4]]
    half = client.simulate_post(PATH, body=rb'{"sql":"SELECT \ud800"}', content_type="application/json")
    assert (half.status_code, half.json) == (400, {"sql": ["'\\ud800' at character 8: the query is no UTF-8"]})


def test_limits_of_memory_bytes_and_time_are_told(client: TestClient, folder: Path) -> None:
    """413 for memory and bytes, 422 for time; what is nested deeply is refused."""
    assert ask(client, "SELECT list(range) FROM range(100000000)").status_code == 413
    assert ask(client, "SELECT repeat('x', 5000000) AS x").json == {
        "detail": "The answer is larger than 4 MiB. Ask for fewer rows or columns."
    }
    late = ask(client, ENDLESS, seconds="0.1")
    assert (late.status_code, late.json) == (422, {"detail": "The query was stopped after 0.1 s."})
    with application(folder / "warehouse", sql=True, sql_seconds=0.1) as app:
        told = ask(app.client, ENDLESS).json
    assert told == {"detail": "The query was stopped after 0.1 s, this server's --sql-seconds."}
    for deep in ("[" * 30_000 + "]" * 30_000, "+".join("1" * 30_000)):
        assert client.simulate_post(PATH, json={"sql": f"SELECT {deep}"}).status_code == 400


def test_named_queries_have_sentences_and_usual_values(client: TestClient) -> None:
    """They are listed, and run by their names."""
    like, one = client.simulate_get(PATH).json["queries"]
    assert (like["name"], like["values"]) == ("like", {"name": "transfer"})
    assert like["about"] == "Texts that begin with a name."
    assert one["sql"] == "SELECT 1 AS one"
    assert client.simulate_get(PATH, params={"query": "like"}).json["rows"] == [[TRANSFER]]
    assert client.simulate_get(PATH, params={"query": "like", "name": "f3"}).json["rows"] == [["f3(uint256)"]]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("SELECT 1", "line 1: a query needs a name"), ("-- name: a b\nSELECT 1", "line 1: 'a b' is no name"),
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "line 3: a is there twice"), ("-- name: a\n-- b", "a: there is no SQL"),
    ],
)  # fmt: skip
def test_a_wrong_file_of_queries_names_the_line(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match=error):
        parse_queries(text.splitlines())
    (file := tmp_path / "queries.sql").write_bytes(b"\xff")
    with pytest.raises(QueryError, match="not UTF-8 at byte 0"):
        read_queries(file)


def test_the_page_shows_rows_inputs_and_errors(client: TestClient) -> None:
    """It works without a script: a form of an address, a field for each parameter, links to the other formats."""

    def page(**fields: str) -> str:
        return client.simulate_get("/sql/", params=fields).text

    rows = page(sql="SELECT text_signature, NULL AS b FROM signatures ORDER BY id LIMIT 1")
    assert f">{TRANSFER}</td>" in rows
    assert "format=parquet" in rows
    assert 'name="name"' in page(query="like")
    assert "give their values" in page(sql="SELECT $a || 'x' AS b")
    assert '<td data-label="b" class="nowrap">1x</td>' in page(sql="SELECT $a || 'x' AS b", a="1")
    assert 'class="nowrap">\\u202eecila</td>' in page(sql="SELECT $a AS b", a="\u202eecila")
    assert 'name="a" value="x"' in page(sql="SELECT $a::INT AS b", a="x")
    wrong = client.simulate_get("/sql/", params={"sql": "SELECT <b>"})
    assert (wrong.status_code, ">line 1, column 8" in wrong.text, "<b>" in wrong.text) == (400, True, False)
    assert '<a href="/sql/">' in client.simulate_get("/docs/").text


def test_sql_is_off_by_default(folder: Path) -> None:
    """With few threads it cannot be served."""
    with application(folder / "warehouse") as app:
        assert [get(app, path).status for path in (PATH, "/sql/")] == [404, 404]
        assert '<a href="/sql/">' not in get(app, "/docs/").body.decode()
    result = invoke(folder, "serve", "--sql", "--threads", "2")
    assert (result.status, "--threads 3 or more" in result.stderr) == (2, True)
