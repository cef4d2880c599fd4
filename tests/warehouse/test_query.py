"""SQL over a version: the views, the limits of a query, and the errors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import sigdir
from sigdir.signatures.collections import COLLECTIONS, EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse import QueryError, UnreadableWarehouse, WarehouseError
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql.guard import TABLE_FUNCTIONS
from sigdir.warehouse.sql.views import VIEWS as ALL_VIEWS
from sigdir.warehouse.table.paths import Paths
from tests.conftest import empty_warehouse
from tests.warehouse.support import (
    Run,
    assert_fails_in_one_line,
    call_command,
    copied,
    digest_of,
    flip,
    names,
    publish,
    stage,
    table_of,
)

ROW_COLUMNS = (
    "id BIGINT, text_signature VARCHAR, hex_signature VARCHAR, created_at TIMESTAMP WITH TIME ZONE, import_id BIGINT,"
    " hash BLOB, bytes_signature VARCHAR"
)
SOURCE = (
    'STRUCT(path VARCHAR, format VARCHAR, bytes BIGINT, sha256 VARCHAR, "read" BIGINT,'
    " imported BIGINT, duplicate BIGINT, rejected BIGINT, fault VARCHAR)[]"
)
VIEWS = {
    "signatures": ROW_COLUMNS,
    "event_signatures": ROW_COLUMNS,
    "imports": (
        "import_id BIGINT, version BIGINT, committed_at TIMESTAMP WITH TIME ZONE, source VARCHAR, files BIGINT, read BIGINT,"
        " imported BIGINT, duplicate BIGINT, rejected BIGINT, sightings BIGINT, seconds DOUBLE,"
        f" sources {SOURCE}, faults STRUCT(path VARCHAR, reason VARCHAR)[]"
    ),
    "rejects": (
        "import_id BIGINT, collection VARCHAR, text VARCHAR, reason VARCHAR, position INTEGER, file VARCHAR, line BIGINT"
    ),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Three versions: an import with rejects, one with a fold, one of rejects only. Tests do not change it."""
    paths = Paths(tmp_path_factory.mktemp("filled") / "warehouse")
    publish(paths, names("f", 100), names("E", 10), ["1bad(", "2bad("])
    stage(paths, SIGNATURES, "posted()")
    publish(paths, names("g", 50))
    publish(paths, rejects=["3bad("])
    return paths


@pytest.fixture
def own(filled: Paths, tmp_path: Path) -> Paths:
    """A copy of it that a test may change."""
    return copied(filled, tmp_path)


# The views.


def test_views_have_the_same_columns_everywhere(filled: Paths) -> None:
    """Names, order and types, of version 0 and of a filled one."""
    for warehouse in (sigdir.open(filled.root), sigdir.open(filled.root, 0)):
        for view, columns in VIEWS.items():
            described = warehouse.sql(f"DESCRIBE {view}").rows()
            assert ", ".join(f"{name} {kind}" for name, kind, *_ in described) == columns


def test_an_empty_warehouse_has_empty_views(tmp_path: Path) -> None:
    """Queries work before the first import, and reading makes no file."""
    warehouse = sigdir.open(empty_warehouse(tmp_path))
    files = set(tmp_path.iterdir())
    assert warehouse.version == -1
    for view in (view for view in ALL_VIEWS if view != "standards"):
        found = warehouse.sql(f"FROM {view}").arrow()
        assert found.num_rows == 0
        assert found.num_columns > 3
    assert [warehouse.count(collection) for collection in COLLECTIONS] == [0, 0]
    assert warehouse.history() == []
    assert set(tmp_path.iterdir()) == files


def test_views_have_the_rows_the_history_and_the_rejects(filled: Paths) -> None:
    """Each row of the snapshot once with the derived columns, a row per import with its sums, each reject with its place."""
    warehouse = sigdir.open(filled.root)
    for collection, view in ((SIGNATURES, "signatures"), (EVENT_SIGNATURES, "event_signatures")):
        found = warehouse.sql(f"SELECT * FROM {view} ORDER BY id").arrow()
        stored = table_of(warehouse.snapshot, collection)
        assert found.select(stored.schema.names).to_pylist() == stored.to_pylist()
        assert found["hex_signature"].to_pylist() == ["0x" + value.hex() for value in stored["hash"].to_pylist()]
    assert warehouse.count(SIGNATURES) == 151
    imports = warehouse.sql(
        "SELECT import_id, version, source, files, read, imported, duplicate, rejected, seconds,"
        " sources[1].path, sources[1].imported FROM imports ORDER BY import_id"
    ).rows()
    assert imports == [
        (1, 1, "by hand", 1, 112, 110, 0, 2, 0.5, "in.txt", 110),
        (2, 2, "by hand", 1, 50, 50, 0, 0, 0.5, "in.txt", 50),
        (3, 3, "by hand", 1, 1, 0, 0, 1, 0.5, "in.txt", 0),
    ]
    (times,) = zip(*warehouse.sql("SELECT committed_at FROM imports ORDER BY import_id").rows(), strict=True)
    assert list(times) == sorted(times) == [entry["committed_at"] for entry in warehouse.history()]
    assert all(entry["committed_at"].tzinfo is UTC for entry in warehouse.history())
    assert abs(times[-1] - datetime.now(UTC)).total_seconds() < 3600
    assert warehouse.sql("SELECT * FROM rejects ORDER BY import_id, line").rows() == [
        (1, SIGNATURES, "1bad(", "bad_name", 1, "in.txt", 1),
        (1, SIGNATURES, "2bad(", "bad_name", 1, "in.txt", 2),
        (3, SIGNATURES, "3bad(", "bad_name", 1, "in.txt", 1),
    ]


def test_an_older_version_has_its_own_views(filled: Paths) -> None:
    """The rows, imports, rejects and history of an older version are those that it had."""
    expected = {0: (0, 0, 0, []), 1: (100, 10, 2, [1]), 2: (151, 10, 2, [1, 2]), 3: (151, 10, 3, [1, 2, 3])}
    for version, (signatures, events, rejects, imports) in expected.items():
        warehouse = sigdir.open(filled.root, version)
        assert warehouse.version == version
        assert warehouse.count(SIGNATURES) == signatures
        assert warehouse.sql("SELECT count(*) FROM signatures").rows() == [(signatures,)]
        assert warehouse.sql("SELECT count(*) FROM event_signatures").rows() == [(events,)]
        assert warehouse.sql("SELECT count(*) FROM rejects").rows() == [(rejects,)]
        found = warehouse.sql("SELECT import_id, version FROM imports ORDER BY 1").rows()
        assert found == [(number, number) for number in imports]
        assert [entry["version"] for entry in warehouse.history()] == imports


def test_hashes_are_written_as_in_the_specification(tmp_path: Path) -> None:
    """hex_signature has 0x and lower case; bytes_signature has one character per byte, with the byte's code."""
    paths = Paths(tmp_path / "warehouse")
    hashes = [bytes(range(first, first + 4)) * 8 for first in range(0, 256, 4)]
    texts = [f"f{number}()" for number in range(len(hashes))]

    def digest(text: pa.StringArray) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(hashes), np.uint8).reshape(-1, 32)

    with Run(paths, [texts], [texts], digest=digest) as run:
        run.publish()
    for view, width in (("signatures", 4), ("event_signatures", 32)):
        query = f"SELECT text_signature, hash, hex_signature, bytes_signature FROM {view} ORDER BY id"
        expected = [
            (text, value[:width], f"0x{value[:width].hex()}", value[:width].decode("latin-1"))
            for text, value in zip(texts, hashes, strict=True)
        ]
        assert sigdir.open(paths.root).sql(query).rows() == expected


# Queries and results.


def test_parameters_are_bound(filled: Paths) -> None:
    """``?``, ``$1`` and ``$name`` work, and their content is a value, never SQL."""
    warehouse = sigdir.open(filled.root)
    (row,) = warehouse.sql("SELECT text_signature FROM signatures WHERE hash = ?", [digest_of("posted()")[:4]]).rows()
    assert row == ("posted()",)
    assert warehouse.sql("SELECT id FROM signatures WHERE text_signature = $1", ["f0(uint256)"]).rows() == [(1,)]
    query = "SELECT id FROM signatures WHERE id >= $low AND id < $high ORDER BY id"
    assert warehouse.sql(query, {"low": 5, "high": 7}).rows() == [(5,), (6,)]
    evil = "x' OR 1 = 1; DROP VIEW signatures; --"
    assert warehouse.sql("SELECT id FROM signatures WHERE text_signature = ?", [evil]).rows() == []
    assert warehouse.sql("SELECT ?", [evil]).rows() == [(evil,)]
    assert warehouse.sql("SELECT ?", [None]).rows() == [(None,)]


def test_a_result_is_an_arrow_table_a_frame_tuples_and_a_stream(filled: Paths) -> None:
    """All have the same rows, with times in UTC to the microsecond, and can be read repeatedly; without rows, the columns."""
    warehouse = sigdir.open(filled.root)
    result = warehouse.sql("SELECT id, created_at, text_signature, hash FROM signatures ORDER BY id LIMIT 3")
    table, frame, rows = result.arrow(), result.df(), result.rows()
    assert isinstance(frame, pd.DataFrame)
    assert table.schema.types == [pa.int64(), pa.timestamp("us", tz="UTC"), pa.string(), pa.binary()]
    assert rows == [tuple(row.values()) for row in table.to_pylist()]
    assert frame.columns.tolist() == table.column_names
    assert str(frame["created_at"].dtype) == "datetime64[us, UTC]"
    assert frame["text_signature"].tolist() == [row[2] for row in rows]
    assert frame["hash"].tolist() == [row[3] for row in rows]
    assert rows[0][1] == table_of(warehouse.snapshot, SIGNATURES)["created_at"][0].as_py()
    assert result.rows() == rows
    assert "f0(uint256)" in str(result)
    reader = warehouse.sql("SELECT id FROM signatures ORDER BY id").reader(50)
    assert pa.Table.from_batches(list(reader))["id"].to_pylist() == list(range(1, 152))
    none = warehouse.sql("SELECT id, hash FROM signatures WHERE id < 0")
    assert none.rows() == []
    assert none.arrow().schema.types == [pa.int64(), pa.binary()]


def test_threads_share_a_warehouse(filled: Paths) -> None:
    """They wait for each other. While a reader is open, another query is refused, and the error says why."""
    with sigdir.open(filled.root) as warehouse, ThreadPoolExecutor(4) as pool:
        counts = pool.map(
            lambda least: warehouse.sql("FROM range(100000) WHERE range >= ?", [least]).arrow(), range(40)
        )
        assert [table.num_rows for table in counts] == [100_000 - least for least in range(40)]
        reader = warehouse.sql("FROM range(1000000)").reader()
        next(reader)
        with pytest.raises(QueryError, match="the reader of another result is open: read it to its end"):
            warehouse.sql("SELECT 1").rows()


_FORKED = """
import os, sys, sigdir
warehouse = sigdir.open(sys.argv[1])
result = warehouse.sql("FROM signatures")
if not (child := os.fork()):
    try:
        result.rows()
    except Exception as error:
        warehouse = sigdir.open(sys.argv[1])
        print(error, warehouse.sql("SELECT count(*) FROM signatures WHERE text_signature <> ''").rows(), flush=True)
        os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_process_opens_a_warehouse_again(filled: Paths) -> None:
    """The engine's threads are not in it: a query would wait for them for ever, and to close the engine ends it."""
    command = [sys.executable, "-W", "ignore", "-c", _FORKED, str(filled.root)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    rows = sigdir.open(filled.root).count("signatures")
    assert shown == f"the process was forked after the warehouse was opened; open it again in this one [({rows},)]\n"


def test_bad_sql_is_a_query_error(filled: Paths) -> None:
    """Errors of parsing, of running and of parameters that do not fit raise QueryError in every form of the result."""
    warehouse = sigdir.open(filled.root)
    bad: list[tuple[str, Any]] = [
        ("SELEC 1", None), ("SELECT nothing FROM signatures", None), ("SELECT ?", None), ("SELECT error('boom')", None),
        ("SELECT $1", [1, 2]), ("SELECT $1", {"other": 1}), ("SELECT $1", [object()]),
    ]  # fmt: skip
    for query, parameters in bad:
        for form in ("arrow", "df", "rows", "__str__"):
            with pytest.raises(QueryError):
                getattr(warehouse.sql(query, parameters), form)()


# A warehouse in Python.


def test_a_warehouse_stays_at_its_version(own: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until ``refresh``, and a pinned one then too; also where the working directory changes."""
    monkeypatch.chdir(own.root.parent)
    warehouse = sigdir.open("warehouse")
    monkeypatch.chdir("/")
    pinned = sigdir.open(own.root, 1)
    publish(own, ["new()"])
    count = "SELECT count(*) FROM signatures"
    assert (warehouse.version, warehouse.count(SIGNATURES), warehouse.sql(count).rows()) == (3, 151, [(151,)])
    warehouse.refresh()
    assert (warehouse.version, warehouse.count(SIGNATURES), warehouse.sql(count).rows()) == (4, 152, [(152,)])
    pinned.refresh()
    assert (pinned.version, pinned.count(SIGNATURES), pinned.count(EVENT_SIGNATURES)) == (1, 100, 10)


# What a query may access.


REFUSED = [
    "SELECT * FROM '{outside}'",
    "SELECT * FROM '{root}/warehouse.json'",
    "DESCRIBE (FROM read_text('{root}/warehouse.json'))",
    "SELECT (SELECT content FROM read_text('{root}/warehouse.json'))",
    "EXPLAIN ANALYZE FROM read_text('{root}/warehouse.json')",
    "ATTACH '{outside}.db' AS other",
    "INSTALL httpfs",
    "SET memory_limit = '100GB'",
    "SELECT * FROM frame",
    "SELECT * FROM warehouse",
    "COPY (SELECT 1) TO '{file}'",
    "EXPORT DATABASE '{root}/export'",
    "SELECT 1; COPY (SELECT 1) TO '{file}'",
    "SELECT ' EXPLAIN '; COPY (SELECT 1) TO '{file}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{file}'",
    "EXPLAIN SELECT 1; COPY (SELECT 1) TO '{file}'",
    "EXPLAIN ANALYZE WITH x AS (COPY (SELECT 1) TO '{file}') FROM x",
    "SELECT (WITH x AS (COPY (SELECT 1) TO '{file}') SELECT count(*) FROM x)",
    "FROM (WITH x AS MATERIALIZED (COPY (SELECT 1) TO '{file}') FROM x)",
]


def test_a_query_reads_the_warehouse_and_nothing_else(own: Paths) -> None:
    """No other file, network, variable of the caller or setting; and it writes no file: SQL may come from anyone."""
    frame = pa.table({"secret": [1]})
    outside = own.root.with_name("outside.txt")
    outside.write_text("secret")
    file = read_snapshot(own).files[SIGNATURES][0].path

    def content() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in own.root.parent.rglob("*") if path.is_file()}

    before = content()
    warehouse = sigdir.open(own.root)
    for query in REFUSED:
        with pytest.raises(QueryError):
            warehouse.sql(query.format(root=own.root, outside=outside, file=file)).rows()
        assert content() == before, query
    assert frame.num_rows == 1


def test_only_listed_table_functions_can_be_called(filled: Paths) -> None:
    """Also not those that a later version of the engine adds: each that it lists is tried by its name."""
    warehouse = sigdir.open(filled.root)
    listed = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro', 'pragma')"
    names = {name for (name,) in warehouse.sql(listed).rows()}
    assert {"read_text", "json_execute_serialized_sql", "enable_profiling", "range"} < names
    others = ("FROM main.\"READ_TEXT\"('a')", 'SELECT * FROM range(1), LATERAL (FROM "read_text"(1))')
    for query in (*(f'FROM "{name}"()' for name in sorted(names - TABLE_FUNCTIONS)), *others):
        with pytest.raises(QueryError, match=r"^\w+\(\) reaches more than the warehouse"):
            warehouse.sql(query)
    with pytest.raises(QueryError):
        warehouse.sql("CALL read_text('a')")


def test_unsafe_sql_has_the_whole_engine(own: Paths) -> None:
    """With unsafe=True or --unsafe, whose help says so, queries read and write files and change settings."""
    outside = own.root.parent / "outside.csv"
    outside.write_text("secret\n7\n")
    query = f"SELECT secret FROM '{outside}'"
    warehouse = sigdir.open(own.root, unsafe=True)
    assert warehouse.sql(query).rows() == [(7,)]
    warehouse.sql(f"COPY (SELECT id FROM signatures LIMIT 1) TO '{own.root.parent}/out.csv'").rows()
    assert (own.root.parent / "out.csv").exists()
    warehouse.sql("SET memory_limit = '2GB'").rows()
    assert warehouse.sql("SELECT count(*) FROM signatures").rows() == [(warehouse.count(SIGNATURES),)]
    arguments = ["sql", "--warehouse", str(own.root), "--format", "csv", query]
    assert_fails_in_one_line(call_command(*arguments))
    unsafe = call_command(*arguments, "--unsafe")
    assert (unsafe.exit_code, unsafe.stdout.split()) == (0, ["secret", "7"])
    help_text = " ".join(call_command("sql", "--help").stdout.split())
    assert "With --unsafe it does whatever DuckDB can: read and write any file that you can" in help_text


def test_every_reading_statement_is_allowed(filled: Paths) -> None:
    """Statements that only read run, also those that look like writing."""
    warehouse = sigdir.open(filled.root)
    for query in (
        "WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM x WHERE a < 3) FROM x",
        "SELECT id FROM signatures UNION SELECT id FROM event_signatures",
        "FROM RANGE(3)",
        "SHOW TABLES",
        "SUMMARIZE signatures",
        "EXPLAIN SELECT * FROM signatures",
        "explain analyze select count(*) from signatures",
        "SELECT 'COPY (SELECT 1) TO x; EXPLAIN '",
        "SELECT 1 AS copy_query_node; -- that is all",
    ):
        assert warehouse.sql(query).rows(), query


# Damage.


def data_file(paths: Paths) -> Path:
    return read_snapshot(paths).files[SIGNATURES][0].path


def put_other_table(paths: Paths, columns: dict[str, Any], partition_by: list[str]) -> None:
    shutil.rmtree(paths.table)
    write_deltalake(paths.table.as_uri(), pa.table(columns), partition_by=partition_by)


LOG_DAMAGES: dict[str, Callable[[Paths], object]] = {
    "garbage": lambda paths: paths.log_entry(2).write_bytes(b"\xff\xfe no json"),
    "a missing first entry": lambda paths: paths.log_entry(0).unlink(),
    "a gap": lambda paths: paths.log_entry(2).unlink(),
    "the table of others": lambda paths: put_other_table(paths, {"x": [1, 2]}, []),
    "one with collections": lambda paths: put_other_table(
        paths, {"collection": [SIGNATURES], "id": [1]}, ["collection"]
    ),
}
FILE_DAMAGES: dict[str, Callable[[Paths], object]] = {
    "a missing data file": lambda paths: data_file(paths).unlink(),
    "a flipped data file": lambda paths: flip(data_file(paths)),
    "missing rejects": lambda paths: shutil.rmtree(paths.rejects),
}


@pytest.mark.parametrize("damage", [*LOG_DAMAGES, *FILE_DAMAGES])
def test_damage_is_an_error_of_one_line(own: Paths, tmp_path: Path, damage: str) -> None:
    """It names the folder, or the file, in Python and in the commands; an import changes nothing."""
    (LOG_DAMAGES | FILE_DAMAGES)[damage](own)
    log = sorted(own.log.glob("*"))
    named = str(own.root) if damage in LOG_DAMAGES else ".parquet"
    query = "SELECT count(text_signature), max(text) FROM signatures, rejects"
    with pytest.raises((UnreadableWarehouse, QueryError), match=re.escape(named)) as caught:
        sigdir.open(own.root).sql(query).rows()
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, UnreadableWarehouse) or damage not in LOG_DAMAGES
    commands: list[list[str | Path]] = [["sql", query]]
    if damage in LOG_DAMAGES:
        commands += [["stats"], ["history"], ["rejects"]]
    if damage != "missing rejects":
        (lines := tmp_path / "lines.txt").write_text("fresh()\nf1(uint256)\n")
        commands += [["import", lines, "--quiet"]]
    for arguments in commands:
        assert_fails_in_one_line(call_command(*arguments, "--warehouse", own.root))
    assert sorted(own.log.glob("*")) == log


def test_older_versions_survive_damage_to_newer_ones(own: Paths) -> None:
    """A version can be read as long as its own entries and files are intact."""
    LOG_DAMAGES["garbage"](own)
    warehouse = sigdir.open(own.root, 1)
    assert warehouse.sql("SELECT count(*) FROM signatures").rows() == [(100,)]


def test_what_is_missing_is_an_error(filled: Paths, tmp_path: Path) -> None:
    """A version is named by its number, also in a warehouse without any; a mistyped path by name, and no folder is made."""
    empty = empty_warehouse(tmp_path / "empty")
    for version in (4, 2**40, -1):
        for root in (filled.root, empty):
            with pytest.raises(UnreadableWarehouse, match=str(version)) as caught:
                sigdir.open(root, version)
            assert "\n" not in str(caught.value)
    with pytest.raises(WarehouseError, match=f"^{tmp_path / 'missing'}: there is no such folder"):
        sigdir.open(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == [empty]
    (path := tmp_path / "file").write_text("x")
    with pytest.raises(UnreadableWarehouse, match=str(path)):
        sigdir.open(path)
