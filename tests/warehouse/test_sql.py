"""The derived views, the macros, the user's own files as views, and the files that a query reads."""

from __future__ import annotations

import gzip
import json
import re
import sys
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sigdir
from sigdir.warehouse import QueryError, Warehouse, WarehouseError
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import Database, Result
from sigdir.warehouse.sql.guard import STRANGERS_VIEWS
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.paths import Paths
from tests.conftest import import_lines
from tests.examples import examples
from tests.warehouse.support import Run, digest_of

SIGNATURES = ["a1(uint256)", "b1()", "a2()", "c()", "b2(bool,(address,uint8[2])[],string)", "a3()", "b2()"]
EVENTS = ["c()", "C(address)", "b2(bool)"]


def by_first_letter(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Digests that begin with the text's first letter, four times, so that chosen texts collide."""
    joined = b"".join(item[0].encode() * 4 + digest_of(item)[4:] for item in text.to_pylist())
    return np.frombuffer(joined, np.uint8).reshape(-1, 32)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Two imports of a few texts whose selectors are their first letters. Tests do not change it."""
    paths = Paths(tmp_path_factory.mktemp("colliding") / "warehouse")
    for signatures, events in ((SIGNATURES[:4], EVENTS), (SIGNATURES[4:], [])):
        with Run(paths, [signatures], [events] if events else [], digest=by_first_letter) as run:
            run.publish()
    return sigdir.open(paths.root)


def test_the_derived_views(warehouse: Warehouse) -> None:
    """Collisions are selectors with several texts, oldest first; names are counted with their case; no view is hidden."""
    assert warehouse.sql("SHOW TABLES").rows() == [(view,) for view in sorted(VIEWS)]
    strangers = Database(warehouse.paths, warehouse.snapshot, strangers=True)
    assert strangers.sql("SHOW TABLES").rows() == [(view,) for view in sorted(STRANGERS_VIEWS)]
    found = warehouse.sql("SELECT hex_signature, texts, text_signatures, hash FROM collisions ORDER BY hash").rows()
    assert found == [
        ("0x61616161", 3, ["a1(uint256)", "a2()", "a3()"], b"aaaa"),
        ("0x62626262", 3, ["b1()", "b2(bool,(address,uint8[2])[],string)", "b2()"], b"bbbb"),
    ]
    found = warehouse.sql("SELECT name, texts, signatures, event_signatures FROM names ORDER BY name").rows()
    assert found == [
        ("C", 1, 0, 1), ("a1", 1, 1, 0), ("a2", 1, 1, 0), ("a3", 1, 1, 0), ("b1", 1, 1, 0), ("b2", 3, 2, 1),
        ("c", 2, 1, 1),
    ]  # fmt: skip
    long = SIGNATURES[4]
    assert warehouse.sql("SELECT * FROM parameters WHERE id <> 1 ORDER BY collection, id, position").rows() == [
        ("event-signatures", 2, 1, "address", "C(address)"),
        ("event-signatures", 3, 1, "bool", "b2(bool)"),
        ("signatures", 5, 1, "bool", long),
        ("signatures", 5, 2, "(address,uint8[2])[]", long),
        ("signatures", 5, 3, "string", long),
    ]
    query = "SELECT count(*) FROM imports a JOIN imports b ON a.import_id <= b.import_id"
    assert warehouse.sql(query).rows() == warehouse.sql(query).rows() == [(3,)]  # the log can be read repeatedly


TYPES = st.recursive(
    st.sampled_from(["uint256", "address[2][]", "function"]),
    lambda inner: st.tuples(st.lists(inner, max_size=3), st.sampled_from(["", "[]", "[3][]"])).map(
        lambda parts: f"({','.join(parts[0])}){parts[1]}"
    ),
    max_leaves=8,
)


@cache
def engine() -> Database:
    """One engine for all examples, because making one takes longer than a query."""
    paths = Paths(Path("/nonexistent"))
    return Database(paths, read_snapshot(paths))


@settings(max_examples=examples(40))
@given(st.lists(st.lists(TYPES, max_size=5), min_size=1, max_size=20))
def test_parameter_types_splits_what_was_joined(lists: list[list[str]]) -> None:
    """parameter_types gives the types that a text was composed from, however deep its tuples are."""
    texts = [f"f{number}({','.join(types)})" for number, types in enumerate(lists)]
    query = "SELECT parameter_types(t), parameter_list(t), signature_name(t) FROM (SELECT unnest($texts) AS t)"
    found = engine().sql(query, {"texts": texts}).rows()
    expected = [(types, ",".join(types), f"f{number}") for number, types in enumerate(lists)]
    assert sorted(found, key=lambda row: row[2]) == sorted(expected, key=lambda row: row[2])


def test_declarations_of_many_texts_need_little_memory(tmp_path: Path) -> None:
    """A stranger's query has 256 MiB for a million and a half of them, and does not spill."""
    declared = (f"function call{n}(address owner{n}, uint256 amount{n}) returns (bool)" for n in range(50_000))
    paths = Paths(import_lines(tmp_path / "warehouse", *declared))
    database = Database(paths, read_snapshot(paths), "32MB", 1, strangers=True)
    assert database.sql("SELECT count(*), sum(count) FROM declarations").rows() == [(50_000, 50_000)]


@pytest.mark.parametrize("depth", [12, 13, 400])
def test_tuples_of_any_depth_are_one_parameter(depth: int) -> None:
    """A tuple deeper than the pattern reaches is one parameter too, also among 10,000 others."""
    deep = "(" * depth + "bool,bool" + ")" * depth
    texts = [f"f(int8,{deep}[],bool)", f"f({deep}{',int8' * 10_000})"]
    found = engine().sql("SELECT parameter_types(unnest($texts))", {"texts": texts}).rows()
    assert found == [(["int8", f"{deep}[]", "bool"],), ([deep, *["int8"] * 10_000],)]


HEX_OF = {
    "'0xa9059cbb'": "0xa9059cbb", "'0XA9059CBB'": "0xa9059cbb", "'A9059cbb'": "0xa9059cbb", "'12345678'": "0x12345678",
    "unhex('a9059cbb')": "0xa9059cbb", "2835717307": "0xa9059cbb", "2835717307::UINTEGER": "0xa9059cbb",
    "1": "0x00000001", "4294967296": "0x" + "1".rjust(56, "0") + "00000000", "'0xabc'": None, "''": None, "'f()'": None,
    "-1": None, "1.5::DOUBLE": None,
}  # fmt: skip


def test_hex_of_takes_any_spelling_of_a_hash() -> None:
    """And gives the one of the views; macros of NULL are NULL."""
    for value, expected in HEX_OF.items():
        assert engine().sql(f"SELECT hex_of({value})").rows() == [(expected,)], value
    for macro in ("signature_name", "parameter_list", "parameter_types", "hex_of"):
        assert engine().sql(f"SELECT {macro}(NULL)").rows() == [(None,)], macro


# Files of the user's own.


FILES = {
    "lines.txt": b"transfer(address,uint256)\n\"quoted\", 'as it stands'\n\nlast",
    "lines.txt.gz": gzip.compress(b"transfer(address,uint256)\n\"quoted\", 'as it stands'\nlast"),
    "table.csv": b'text,n\n"f(bool,bool)",1\ng(),2\n',
    "table.tsv": b"text\tn\nf(bool,bool)\t1\ng()\t2\n",
    "rows.ndjson": b'{"text": "f(bool,bool)", "n": 1}\n{"text": "g()", "n": 2}\n',
    "rows.json": b'[{"text": "f(bool,bool)", "n": 1}, {"text": "g()", "n": 2}]',
}


def test_a_file_is_a_view_with_the_given_name(warehouse: Warehouse, tmp_path: Path) -> None:
    """The file name's ending selects the format; a text file has one column, whatever its lines contain."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    rows = [{"text": "f(bool,bool)", "n": 1}, {"text": "g()", "n": 2}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "rows.parquet")
    views = {f"v{number}": file for number, file in enumerate(sorted(folder.iterdir()))}
    mine = sigdir.open(warehouse.paths.root, files=views)
    for view, file in views.items():
        found = mine.sql(f"FROM {view}").arrow().to_pylist()
        if "lines" in file.name:
            found = [row["text"] for row in found if row["text"]]
            assert found == ["transfer(address,uint256)", "\"quoted\", 'as it stands'", "last"]
        else:
            assert found == rows, file.name
    assert mine.sql("SELECT count(*) FROM signatures").rows() == [(len(SIGNATURES),)]


def test_wide_integers_of_a_file_keep_their_digits(warehouse: Warehouse, tmp_path: Path) -> None:
    """The engine would read those of JSON as floats; of over 128 bits they are text. A column with a fraction is floats."""
    wei, word, half = 10**21 + 1, 2**256 - 1, 1.5
    rows = [{"wei": wei, "word": word, "price": half}, {"wei": -5, "word": 1, "price": 10**21}, {"price": None}]
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "a.csv").write_text(f"wei,word,price\n{wei},{word},{half}\n-5,1,{10**21}\n,,\n")
    for file in tmp_path.iterdir():
        found = sigdir.open(warehouse.paths.root, files={"mine": file}).sql("SELECT wei, word, price FROM mine").rows()
        assert found == [(wei, str(word), half), (-5, "1", 1e21), (None, None, None)], file


def test_wide_integers_of_json_change_no_other_column(warehouse: Warehouse, tmp_path: Path) -> None:
    """A date in another form, and keys that differ in case, are what they are without such integers beside them."""
    (tmp_path / "a.json").write_text(f'[{{"day": "01-31-2026", "Wei": 1, "wei": {10**21 + 1}}}]')
    mine = sigdir.open(warehouse.paths.root, files={"mine": tmp_path / "a.json"})
    assert mine.sql("FROM mine").rows() == [(date(2026, 1, 31), 1, 10**21 + 1)]


def test_a_named_file_allows_no_other_access(warehouse: Warehouse, tmp_path: Path) -> None:
    """A query may read the named file, and neither write it nor read one next to it; the error says how it is given one."""
    file, other = tmp_path / "mine.csv", tmp_path / "other.csv"
    for each in (file, other):
        each.write_text("n\n1\n")
    mine = sigdir.open(warehouse.paths.root, files={"mine": file})
    assert mine.sql(f"SELECT n FROM '{file}'").rows() == [(1,)]
    for query in (f"FROM '{other}'", f"FROM '{tmp_path}/*.csv'", "FROM read_csv('../x.csv')"):
        with pytest.raises(QueryError, match=r"--file NAME=PATH \(in Python files="):
            mine.sql(query).rows()
    with pytest.raises(QueryError):
        mine.sql(f"COPY (SELECT 1) TO '{file}'")
    assert file.read_text() == "n\n1\n"


COLUMNS = {"selector": ["61616161", "0x7A7A7A7A"], "n": [1, 2]}


def test_a_table_in_memory_is_a_view_with_the_given_name(warehouse: Warehouse) -> None:
    """Without the index of a DataFrame; confined as ever."""
    given = {
        "pandas": pd.DataFrame(COLUMNS, index=["x", "y"]), "polars": polars.DataFrame(COLUMNS), "arrow": pa.table(COLUMNS),
        "stream": pa.table(COLUMNS).to_reader(),
    }  # fmt: skip
    opened = sigdir.open(warehouse.paths.root, files=given)
    for mine in [*given, "stream"]:
        found = opened.sql(f"FROM {mine} SEMI JOIN signatures ON hex_signature = hex_of(selector)").arrow().to_pylist()
        assert found == [{"selector": "61616161", "n": 1}]
    with pytest.raises(QueryError):
        opened.sql("FROM 'pyproject.toml'")


def test_a_table_that_cannot_be_read_fails_at_open(warehouse: Warehouse, tmp_path: Path) -> None:
    """In one line, without the names of the command's options; of a file with its path. Its name must be valid and unused."""
    (damaged := tmp_path / "damaged.parquet").write_bytes(b"PAR1 but no more")
    wrong = {
        None: "a path, a DataFrame or Arrow data is expected, not",
        "nowhere.csv": "no such file",
        damaged: str(damaged),
    }
    for table, reason in wrong.items():
        with pytest.raises(QueryError, match=reason) as error:
            sigdir.open(warehouse.paths.root, files={"mine": table})
        assert "--file" not in str(error.value)
        assert "\n" not in str(error.value)
    with pytest.raises(QueryError, match="mine: Duplicate column names"):
        sigdir.open(warehouse.paths.root, files={"mine": pd.DataFrame([[1, 2]], columns=["a", "a"])})
    for name in ("Imports", "no name", "1st", ""):
        with pytest.raises(QueryError, match="name"):
            sigdir.open(warehouse.paths.root, files={name: pa.table(COLUMNS)})


def test_a_view_that_cannot_be_created_is_an_error_at_each_query(tmp_path: Path) -> None:
    """Of that view and of those after it: to say that there is none would be wrong."""
    with sigdir.open(import_lines(tmp_path / "warehouse", "function f(uint a)")) as opened:
        assert opened.sql("SELECT 1").rows() == [(1,)]
        for file in opened.snapshot.evidence.all_files():
            file.path.unlink()
        for query in ("FROM ranked", "FROM ranked", "FROM contracts", "SHOW TABLES"):
            with pytest.raises(QueryError, match=r"Cannot access file .*/evidence/"):
                opened.sql(query)


# The package.


def test_a_time_opens_the_version_that_was_the_newest(warehouse: Warehouse) -> None:
    """To the millisecond of the commit; without a zone it is UTC. An earlier time is an error that has the first one."""
    first, second = (entry["committed_at"] for entry in warehouse.history())
    root, step = warehouse.paths.root, timedelta(milliseconds=1)
    assert [sigdir.open(root, as_of=time).version for time in (first, second, second + step)] == [1, 2, 2]
    given = (first.replace(tzinfo=None), 1, "1", first.isoformat())
    assert [sigdir.open(root, as_of=time).version for time in given] == [1] * 4
    named = first.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    with pytest.raises(WarehouseError, match=rf"has no version at .*; the first is of {re.escape(named)}$"):
        sigdir.open(root, as_of=first - step)
    for wrong in ("yesterday", first.date(), True):
        with pytest.raises(QueryError, match="is neither a version nor a time such as"):
            sigdir.open(root, as_of=wrong)


def test_a_collection_is_counted_by_either_of_its_names(warehouse: Warehouse) -> None:
    """Its own and that of its view; another name is an error that has the names."""
    assert warehouse.count("event_signatures") == warehouse.count("event-signatures")
    with pytest.raises(QueryError, match="'events' is no collection; the collections are signatures, event-signatures"):
        warehouse.count("events")


def test_a_result_says_how_its_rows_are_fetched(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its repr runs nothing; fetchall is rows by DuckDB's name; pl says if polars is missing; a closed engine has none."""
    with sigdir.open(warehouse.paths.root) as opened:
        result = opened.sql("SELECT id, error('run') AS ran FROM signatures")
        assert repr(result).startswith("<Result of columns (id BIGINT, ran ")
        assert opened.sql("SELECT 1 AS a").fetchall() == [(1,)]
        result = opened.sql("SELECT id FROM signatures ORDER BY id LIMIT 2")
        assert result.pl().to_dicts() == [{"id": 1}, {"id": 2}]
        monkeypatch.setitem(sys.modules, "polars", None)
        with pytest.raises(QueryError, match=r"^pl\(\) needs polars, which is not installed: pip install polars$"):
            result.pl()
    with pytest.raises(QueryError):
        result.rows()


def test_the_help_of_the_package_names_the_methods() -> None:
    """Of what open gives, and of a result."""
    text = sigdir.__doc__ or ""
    classes = (Warehouse, Result)
    missing = {name for each in classes for name in vars(each) if not name.startswith("_") and name not in text}
    assert missing == {"database", "types"}  # the engine, and its names of types
