"""The derived views, the macros, the user's own files as views, and the files that a query reads."""

from __future__ import annotations

import gzip
import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.warehouse import QueryError, UnreadableWarehouse, WarehouseError
from sigdir.warehouse.jobs.compact import compact, everything
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import Database, Result
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.examples import examples
from tests.warehouse.support import Run, digest_of, publish

SIGNATURES = ["a1(uint256)", "b1()", "a2()", "c()", "b2(bool,(address,uint8[2])[],string)", "a3()", "b2()"]
EVENTS = ["c()", "C(address)", "b2(bool)"]


def by_first_letter(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Digests that begin with the text's first letter, four times, so that chosen texts collide."""
    joined = b"".join(item[0].encode() * 4 + digest_of(item)[4:] for item in text.to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(-1, 32)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> sigdir.warehouse.Warehouse:
    """Two imports of a few texts whose selectors are their first letters. Tests do not change it."""
    paths = Paths(tmp_path_factory.mktemp("colliding") / "warehouse")
    for signatures, events in ((SIGNATURES[:4], EVENTS), (SIGNATURES[4:], [])):
        with Run(paths, [signatures], [events] if events else [], digest=by_first_letter) as run:
            run.publish()
    return sigdir.open(paths.root)


def test_the_views_are_listed(warehouse: sigdir.warehouse.Warehouse) -> None:
    """SHOW TABLES lists the views and no internal table."""
    assert warehouse.sql("SHOW TABLES").rows() == [(view,) for view in sorted(VIEWS)]


def test_collisions_are_selectors_with_several_texts(warehouse: sigdir.warehouse.Warehouse) -> None:
    """Each collision has its texts, across imports, equally known ones oldest first; one text is no collision."""
    found = warehouse.sql("SELECT hex_signature, texts, text_signatures, hash FROM collisions ORDER BY hash").rows()
    assert found == [
        ("0x61616161", 3, ["a1(uint256)", "a2()", "a3()"], b"aaaa"),
        ("0x62626262", 3, ["b1()", "b2(bool,(address,uint8[2])[],string)", "b2()"], b"bbbb"),
    ]


def test_names_count_their_texts(warehouse: sigdir.warehouse.Warehouse) -> None:
    """Each name has its number of texts, in all and by collection; names are case-sensitive."""
    found = warehouse.sql("SELECT name, texts, signatures, event_signatures FROM names ORDER BY name").rows()
    assert found == [
        ("C", 1, 0, 1), ("a1", 1, 1, 0), ("a2", 1, 1, 0), ("a3", 1, 1, 0), ("b1", 1, 1, 0), ("b2", 3, 2, 1),
        ("c", 2, 1, 1),
    ]  # fmt: skip


def test_parameters_has_a_row_per_parameter(warehouse: sigdir.warehouse.Warehouse) -> None:
    """A row has collection, id, position and type; a tuple is one parameter; a text without parameters has no row."""
    found = warehouse.sql("SELECT * FROM parameters ORDER BY collection, id, position").rows()
    long = SIGNATURES[4]
    assert found == [
        ("event-signatures", 2, 1, "address", "C(address)"),
        ("event-signatures", 3, 1, "bool", "b2(bool)"),
        ("signatures", 1, 1, "uint256", "a1(uint256)"),
        ("signatures", 5, 1, "bool", long),
        ("signatures", 5, 2, "(address,uint8[2])[]", long),
        ("signatures", 5, 3, "string", long),
    ]


TYPES = st.recursive(
    st.sampled_from(["uint256", "address[2][]", "function"]),
    lambda inner: st.tuples(st.lists(inner, max_size=3), st.sampled_from(["", "[]", "[3][]"])).map(
        lambda parts: f"({','.join(parts[0])}){parts[1]}"
    ),
    max_leaves=8,
)


@settings(max_examples=examples(60))
@given(st.lists(st.lists(TYPES, max_size=5), min_size=1, max_size=20))
def test_parameter_types_splits_what_was_joined(lists: list[list[str]]) -> None:
    """parameter_types gives the types that a text was composed from, however deep its tuples are."""
    texts = [f"f{number}({','.join(types)})" for number, types in enumerate(lists)]
    query = "SELECT parameter_types(t), parameter_list(t), signature_name(t) FROM (SELECT unnest($texts) AS t)"
    found = _engine().sql(query, {"texts": texts}).rows()
    expected = [(types, ",".join(types), f"f{number}") for number, types in enumerate(lists)]
    assert sorted(found, key=lambda row: row[2]) == sorted(expected, key=lambda row: row[2])


_ENGINES: list[Database] = []


def test_declarations_of_many_texts_need_little_memory(tmp_path: Path) -> None:
    """A stranger's query has 256 MiB for a million and a half of them, and does not spill."""
    declared = (f"function call{n}(address owner{n}, uint256 amount{n}) returns (bool)" for n in range(100_000))
    paths = Paths(import_lines(tmp_path / "warehouse", *declared))
    database = Database(paths, read_snapshot(paths), "64MB", 1, strangers=True)
    assert database.sql("SELECT count(*), sum(count) FROM declarations").rows() == [(100_000, 100_000)]


def _engine() -> Database:
    """One engine for all examples, because making one takes longer than a query."""
    if not _ENGINES:
        paths = Paths(Path("/nonexistent"))
        _ENGINES.append(Database(paths, read_snapshot(paths)))
    return _ENGINES[0]


@pytest.mark.parametrize("depth", [1, 11, 12, 13, 14, 400])
def test_tuples_of_any_depth_are_one_parameter(depth: int) -> None:
    """A tuple deeper than the pattern reaches is one parameter too, also among 10,000 others."""
    deep = "(" * depth + "bool,bool" + ")" * depth
    texts = [f"f({deep})", f"f(int8,{deep}[],bool)", f"f({deep}{',int8' * 10_000})"]
    found = _engine().sql("SELECT parameter_types(unnest($texts))", {"texts": texts}).rows()
    assert found == [([deep],), (["int8", f"{deep}[]", "bool"],), ([deep, *["int8"] * 10_000],)]


def test_macros_of_null_are_null() -> None:
    macros = ("signature_name", "parameter_list", "parameter_types", "hex_of")
    assert [_engine().sql(f"SELECT {macro}(NULL)").rows() for macro in macros] == [[(None,)]] * 4


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'0xa9059cbb'", "0xa9059cbb"),
        ("'0XA9059CBB'", "0xa9059cbb"),
        ("'A9059cbb'", "0xa9059cbb"),
        ("'12345678'", "0x12345678"),
        ("unhex('a9059cbb')", "0xa9059cbb"),
        ("2835717307", "0xa9059cbb"),
        ("2835717307::UINTEGER", "0xa9059cbb"),
        ("1", "0x00000001"),
        ("4294967296", "0x" + "1".rjust(56, "0") + "00000000"),
        ("'0xabc'", None),
        ("''", None),
        ("'f()'", None),
        ("-1", None),
        ("1.5::DOUBLE", None),
    ],
)
def test_hex_of_takes_any_spelling_of_a_hash(value: str, expected: str | None) -> None:
    """And gives the one of the views."""
    assert _engine().sql(f"SELECT hex_of({value})").rows() == [(expected,)]


# What a query reads.


@pytest.mark.long
def test_old_log_entries_are_read_only_for_the_history(tmp_path: Path) -> None:
    """After a checkpoint only imports and rejects read old entries, so only they fail on a damaged one."""
    paths = Paths(tmp_path / "warehouse")
    for number in range(8):
        publish(paths, [f"f{number}()"], rejects=[f"{number}bad("])
    compact(paths, everything)
    DeltaTable(paths.table).create_checkpoint()
    warehouse = sigdir.open(paths.root)
    expected = warehouse.sql("SELECT count(*) FROM signatures").rows()
    paths.log_entry(1).write_bytes(b'{"commitInfo": cut off')
    warehouse = sigdir.open(paths.root)
    assert warehouse.sql("SELECT count(*) FROM signatures").rows() == expected == [(8,)]
    assert warehouse.sql("SELECT count(*) FROM parameters").rows() == [(0,)]
    for view in ("imports", "rejects"):
        with pytest.raises(UnreadableWarehouse, match=str(paths.log_entry(1))) as caught:
            warehouse.sql(f"SELECT count(*) FROM {view}").rows()
        assert "\n" not in str(caught.value)
    assert warehouse.sql("SELECT count(*) FROM signatures").rows() == [(8,)]


def test_a_view_of_the_log_can_be_read_repeatedly(warehouse: sigdir.warehouse.Warehouse) -> None:
    """A view of the log can be joined with itself and queried again."""
    query = "SELECT count(*) FROM imports a JOIN imports b ON a.import_id <= b.import_id"
    assert warehouse.sql(query).rows() == warehouse.sql(query).rows() == [(3,)]


# Files of the user's own.


FILES = {
    "lines.txt": b"transfer(address,uint256)\n\"quoted\", 'as it stands'\n\nlast",
    "table.csv": b'text,n\n"f(bool,bool)",1\ng(),2\n',
    "table.tsv": b"text\tn\nf(bool,bool)\t1\ng()\t2\n",
    "rows.ndjson": b'{"text": "f(bool,bool)", "n": 1}\n{"text": "g()", "n": 2}\n',
    "rows.json": b'[{"text": "f(bool,bool)", "n": 1}, {"text": "g()", "n": 2}]',
}


@pytest.mark.parametrize("name", [*FILES, "lines.txt.gz", "rows.parquet"])
def test_a_file_is_a_view_with_the_given_name(warehouse: sigdir.warehouse.Warehouse, tmp_path: Path, name: str) -> None:
    """The file name's ending selects the format; a text file has one column, whatever its lines contain."""
    file = tmp_path / "it's here" / name
    file.parent.mkdir()
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"text": ["f(bool,bool)", "g()"], "n": [1, 2]}), file)
    else:
        content = FILES[name.removesuffix(".gz")]
        file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    mine = sigdir.open(warehouse.paths.root, files={"mine": file})
    found = mine.sql("FROM mine").arrow().to_pylist()
    if "lines" in name:
        assert [row["text"] for row in found if row["text"]] == [
            "transfer(address,uint256)", "\"quoted\", 'as it stands'", "last",
        ]  # fmt: skip
    else:
        assert found == [{"text": "f(bool,bool)", "n": 1}, {"text": "g()", "n": 2}]
    assert mine.sql("SELECT count(*) FROM signatures").rows() == [(len(SIGNATURES),)]


def test_a_named_file_allows_no_other_access(warehouse: sigdir.warehouse.Warehouse, tmp_path: Path) -> None:
    """A query may read the named file, and neither write it nor read one next to it."""
    file, other = tmp_path / "mine.csv", tmp_path / "other.csv"
    file.write_text("n\n1\n")
    other.write_text("n\n2\n")
    mine = sigdir.open(warehouse.paths.root, files={"mine": file})
    assert mine.sql(f"SELECT n FROM '{file}'").rows() == [(1,)]
    for query in (f"FROM '{other}'", f"FROM '{tmp_path}/*.csv'", f"COPY (SELECT 1) TO '{file}'"):
        with pytest.raises(QueryError):
            mine.sql(query).rows()
    assert file.read_text() == "n\n1\n"


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "stream"])
def test_a_table_in_memory_is_a_view_with_the_given_name(warehouse: sigdir.warehouse.Warehouse, kind: str) -> None:
    """Without the index of a DataFrame; confined as ever."""
    columns = {"selector": ["61616161", "0x7A7A7A7A"], "n": [1, 2]}
    if kind == "polars":
        mine = pytest.importorskip("polars").DataFrame(columns)
    else:
        mine = pd.DataFrame(columns, index=["x", "y"]) if kind == "pandas" else pa.table(columns)
    opened = sigdir.open(warehouse.paths.root, files={"mine": mine.to_reader() if kind == "stream" else mine})
    for _ in range(2):
        found = opened.sql("FROM mine SEMI JOIN signatures ON hex_signature = hex_of(selector)").arrow().to_pylist()
        assert found == [{"selector": "61616161", "n": 1}]
    with pytest.raises(QueryError):
        opened.sql("FROM 'pyproject.toml'")


def test_a_warehouse_is_a_context_manager(warehouse: sigdir.warehouse.Warehouse) -> None:
    """At the end of the block the engine is closed; results that were not fetched fail."""
    with sigdir.open(warehouse.paths.root) as opened:
        result = opened.sql("SELECT count(*) FROM signatures")
        assert opened.sql("SELECT 1").rows() == [(1,)]
    with pytest.raises(QueryError):
        result.rows()


def test_a_time_opens_the_version_that_was_the_newest(warehouse: sigdir.warehouse.Warehouse) -> None:
    """To the millisecond of the commit; without a zone it is UTC; after the last version it is the newest."""
    first, second = (entry["committed_at"] for entry in warehouse.history())
    root, step = warehouse.paths.root, timedelta(milliseconds=1)
    assert [sigdir.open(root, as_of=time).version for time in (first, second, second + step)] == [1, 2, 2]
    assert sigdir.open(root, as_of=first.replace(tzinfo=None)).version == 1
    assert [sigdir.open(root, as_of=given).version for given in (1, "1", first.isoformat())] == [1, 1, 1]


def test_a_time_before_the_first_version_is_an_error(warehouse: sigdir.warehouse.Warehouse) -> None:
    """It names the time of the first version, and what --as-of takes."""
    root, first = warehouse.paths.root, warehouse.history()[0]["committed_at"]
    named = first.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with pytest.raises(WarehouseError, match=rf"has no version at .*; the first is of {re.escape(named)}$"):
        sigdir.open(root, as_of=first - timedelta(milliseconds=1))
    for wrong in ("yesterday", first.date(), True):
        with pytest.raises(QueryError, match="is neither a version nor a time such as"):
            sigdir.open(root, as_of=wrong)


def test_a_collection_is_counted_by_either_of_its_names(warehouse: sigdir.warehouse.Warehouse) -> None:
    """Its own and that of its view; another name is an error that has the names."""
    assert warehouse.count("event_signatures") == warehouse.count("event-signatures")
    with pytest.raises(QueryError, match="'events' is no collection; the collections are signatures, event-signatures"):
        warehouse.count("events")


@pytest.mark.parametrize("table", [[1, 2], 7, None, "nowhere.csv"])
def test_a_table_that_cannot_be_read_fails_at_open(warehouse: sigdir.warehouse.Warehouse, table: Any) -> None:
    """Not at the first query, and without the names of the command's options."""
    with pytest.raises(
        QueryError, match=r"mine: a path, a DataFrame or Arrow data is expected, not|no such file"
    ) as error:
        sigdir.open(warehouse.paths.root, files={"mine": table})
    assert "--file" not in str(error.value)


def test_a_file_that_a_query_names_itself(warehouse: sigdir.warehouse.Warehouse) -> None:
    """The error says how a query is given a file."""
    for query in ("FROM '../x.csv'", "FROM read_csv('../x.csv')"):
        with pytest.raises(QueryError, match=r"--file NAME=PATH \(in Python files="):
            warehouse.sql(query).rows()


def test_a_result_says_how_its_rows_are_fetched(warehouse: sigdir.warehouse.Warehouse) -> None:
    """Its repr has the columns and runs nothing; fetchall is rows by DuckDB's name."""
    result = warehouse.sql("SELECT id, error('run') AS ran FROM signatures")
    assert repr(result).startswith("<Result of columns (id BIGINT, ran ")
    assert warehouse.sql("SELECT 1 AS a").fetchall() == [(1,)]


def test_the_help_of_the_package_names_the_methods() -> None:
    """Of what open gives, and of a result."""
    text = sigdir.__doc__ or ""
    classes = (sigdir.warehouse.Warehouse, Result)
    missing = {name for each in classes for name in vars(each) if not name.startswith("_") and name not in text}
    assert missing == {"database", "types"}  # the engine, and its names of types


def test_rows_as_a_polars_frame(warehouse: sigdir.warehouse.Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where polars is missing, an error says so in one line."""
    result = warehouse.sql("SELECT id FROM signatures ORDER BY id LIMIT 2")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "polars", None)
        with pytest.raises(QueryError, match=r"^pl\(\) needs polars, which is not installed: pip install polars$"):
            result.pl()
    pytest.importorskip("polars")
    assert result.pl().to_dicts() == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("name", ["signatures", "Imports", "no name", "1st", 'x"y', ""])
def test_a_file_needs_a_valid_unused_name(warehouse: sigdir.warehouse.Warehouse, tmp_path: Path, name: str) -> None:
    """A name that is no SQL identifier, or that a view has, is an error."""
    file = tmp_path / "mine.csv"
    file.write_text("n\n1\n")
    with pytest.raises(QueryError, match="name"):
        sigdir.open(warehouse.paths.root, files={name: file}).sql("SELECT 1")


@pytest.mark.parametrize("content", [None, b"PAR1 but no more"])
def test_an_unreadable_file_is_an_error(
    warehouse: sigdir.warehouse.Warehouse, tmp_path: Path, content: bytes | None
) -> None:
    """The error has one line and the path of the file."""
    file = tmp_path / "mine.parquet"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(QueryError, match=str(file)) as caught:
        sigdir.open(warehouse.paths.root, files={"mine": file}).sql("SELECT 1")
    assert "\n" not in str(caught.value)
