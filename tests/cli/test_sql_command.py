"""The command sql: parameters, files to read and to write, statements from standard input, errors."""

from __future__ import annotations

import csv
import gzip
import io
import json
import signal
import subprocess
from pathlib import Path

import click.testing
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import sigdir
from sigdir.cli.main import main
from tests.conftest import (
    ROOT,
    command_line,
    environment,
    import_files,
)

QUERY = "SELECT id, text_signature, hex_signature FROM signatures ORDER BY id"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled sample, imported. Not to be changed."""
    found = tmp_path_factory.mktemp("asked") / "house"
    import_files(["samples"], found)
    return found


def ask(folder: Path, *arguments: str | Path, stdin: str | bytes | None = None) -> click.testing.Result:
    """``sigdir sql`` in this process."""
    words = ["sql", "--warehouse", str(folder), *map(str, arguments)]
    return click.testing.CliRunner().invoke(main, words, input=stdin)


def answer(folder: Path, *arguments: str | Path, stdin: str | None = None) -> list[dict[str, object]]:
    """Its rows."""
    done = ask(folder, *arguments, "--format", "ndjson", stdin=stdin)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(folder: Path, *arguments: str | Path, stdin: str | bytes | None = None) -> str:
    """What it says when it ends with status 2: an error and no traceback."""
    done = ask(folder, *arguments, stdin=stdin)
    assert (type(done.exception), done.exit_code) == (SystemExit, 2), done.output
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_values_are_bound_in_their_order(folder: Path) -> None:
    """To ? and to $1, as texts that become numbers where they meet some; never as SQL."""
    assert answer(folder, "SELECT ? AS a, ? AS b", "1", "x'; --") == [{"a": "1", "b": "x'; --"}]
    assert answer(folder, "SELECT text_signature FROM signatures WHERE id = $1", "1") == [
        {"text_signature": "totalSupply()"}
    ]
    assert answer(folder, "SELECT $2 || $1 AS both", "a", "b") == [{"both": "ba"}]


def test_named_values_are_bound_by_name(folder: Path) -> None:
    """What stands behind the first = is the value, as it is."""
    found = answer(folder, "SELECT $text AS t, $n::INT + 1 AS n", "--param", "text=a=b", "--param", "n=41")
    assert found == [{"t": "a=b", "n": 42}]


def test_functions_are_there(folder: Path) -> None:
    """The selector of a declaration finds the row."""
    query = "SELECT text_signature FROM signatures WHERE hex_signature = selector(?)"
    found = answer(folder, query, "function transfer(address to, uint amount)")
    assert found == [{"text_signature": "transfer(address,uint256)"}]


def test_json_is_a_word_for_the_format(folder: Path) -> None:
    """--json is --format json."""
    done = ask(folder, "SELECT 1 AS a UNION ALL SELECT 2 ORDER BY a", "--json")
    assert json.loads(done.stdout) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.json", "rows.ndjson", "rows.parquet", "rows.csv.gz", "rows.ndjson.zst"]
)
def test_output_is_written_as_its_name_says(folder: Path, tmp_path: Path, name: str) -> None:
    """With the same rows in each, and nothing on standard output."""
    expected = sigdir.open(folder).sql(QUERY).arrow().to_pylist()
    done = ask(folder, QUERY, "--output", tmp_path / name)
    assert (done.exit_code, done.output) == (0, "")
    content = (tmp_path / name).read_bytes()
    if name.endswith(".gz"):
        content = gzip.decompress(content)
    elif name.endswith(".zst"):
        content = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    kind = name.split(".")[1]
    if kind == "csv":
        found = [row | {"id": int(row["id"])} for row in csv.DictReader(io.StringIO(content.decode()))]
    elif kind == "json":
        found = json.loads(content)
    elif kind == "ndjson":
        found = [json.loads(line) for line in content.splitlines()]
    else:
        found = pq.read_table(pa.BufferReader(content)).to_pylist()
    assert found == expected
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_an_output_without_ending_takes_the_format_that_is_named(folder: Path, tmp_path: Path) -> None:
    """And one that says nothing is refused, before anything is asked."""
    assert ask(folder, "SELECT 1 AS a", "--output", tmp_path / "rows", "--format", "csv").exit_code == 0
    assert (tmp_path / "rows").read_text() == "a\n1\n"
    assert "--output" in refused(folder, "SELECT 1 AS a", "--output", tmp_path / "rows.xlsx")
    assert not (tmp_path / "rows.xlsx").exists()


def test_a_failure_leaves_the_output_as_it_was(folder: Path, tmp_path: Path) -> None:
    """Also one that comes after the first rows."""
    target = tmp_path / "rows.csv"
    target.write_text("what was there")
    query = "SELECT CASE WHEN range > 2900000 THEN error('boom') ELSE range END AS x FROM range(3000000)"
    assert "boom" in refused(folder, query, "--output", target)
    assert target.read_text() == "what was there"
    assert list(tmp_path.iterdir()) == [target]


def test_a_foreign_list_is_read(folder: Path, tmp_path: Path) -> None:
    """Lines of text as a table, of which those that we lack are asked for."""
    theirs = tmp_path / "theirs.txt"
    theirs.write_text("transfer(address,uint)\nnever(uint,uint)\nbroken(\n")
    query = """
        SELECT text, canonical(text) AS canonical FROM theirs
        WHERE canonical(text) IS NULL OR canonical(text) NOT IN (SELECT text_signature FROM signatures) ORDER BY text"""
    assert answer(folder, query, "--file", f"theirs={theirs}") == [
        {"text": "broken(", "canonical": None}, {"text": "never(uint,uint)", "canonical": "never(uint256,uint256)"},
    ]  # fmt: skip


def test_statements_come_from_standard_input(folder: Path) -> None:
    """One after the other, up to the first that fails."""
    script = "SELECT 1 AS a;\n-- a remark; and more\nSELECT ';' AS b\n;"
    assert answer(folder, stdin=script) == [{"a": 1}, {"b": ";"}]
    assert answer(folder, "SELECT 1 AS a; SELECT 2 AS a") == [{"a": 1}, {"a": 2}]
    assert answer(folder, stdin="") == []
    done = ask(folder, "--format", "csv", stdin="SELECT 1 AS a; SELECT b; SELECT 3 AS c")
    assert (done.exit_code, done.stdout) == (2, "a\n1\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["SELECT ?, $b", "1", "--param", "b=2"],
        ["SELECT ?"],
        ["SELECT 1", "1"],
        ["SELECT $a", "--param", "a"],
        ["SELECT $a", "--param", "=1"],
        ["SELECT $a", "--param", "a=1", "--param", "a=2"],
        ["SELECT $a", "--param", "b=1"],
        ["SELECT 1; SELECT ?", "1"],
        ["SELECT 1; SELECT 2", "--output", "both.csv"],
        ["", "--output", "none.csv"],
        ["FROM x", "--file", "x"],
        ["FROM x", "--file", "x=/nonexistent"],
        ["FROM x", "--file", "x=/"],
        ["FROM signatures", "--file", "signatures=Makefile"],
        ["SELECT 1", "--output", "/nonexistent/x.csv"],
        ["SELECT 1", "--output", "/nonexistent/x"],
        ["SELECT 1", "--memory-limit", "much"],
        ["SELECT 1", "--as-of", "99"],
        ["COPY (SELECT 1) TO 'x.csv'"],
        ["CREATE TABLE t AS SELECT 1"],
    ],
)
def test_what_cannot_be_done_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """Status 2, an error, and no file."""
    monkeypatch.chdir(tmp_path)
    assert "Error: " in refused(folder, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["SELECT ?"], "0 of 1 values: give the values after the query"),
        (["SELECT $1, $2", "a"], "1 of 2 values: give the values after the query"),
        (["SELECT ?", "--param", "a=1"], "0 of 1 values: give the values after the query"),
        (["SELECT $a, $b, $c", "--param", "b=1"], "no value for $a, $c: give --param a=VALUE --param c=VALUE"),
    ],
)
def test_values_that_are_missing_are_asked_for(folder: Path, arguments: list[str], said: str) -> None:
    """With the way to give them."""
    assert refused(folder, *arguments) == f"Error: {said}\n"


def test_names_of_parameters_have_no_case(folder: Path) -> None:
    """As everywhere in the engine."""
    assert answer(folder, "SELECT $Since AS a", "--param", "since=1") == [{"a": "1"}]


@pytest.mark.parametrize("parent", ["nowhere", "file"])
def test_an_output_that_cannot_be_made_is_told_by_its_own_name(folder: Path, tmp_path: Path, parent: str) -> None:
    """Not by that of the file beside it that is written first."""
    (tmp_path / "file").write_text("")
    target = tmp_path / parent / "x.csv"
    assert refused(folder, "SELECT 1", "--output", target).startswith(f"Error: {target}: ")


def test_input_that_is_no_text_is_told(folder: Path) -> None:
    """With the place of the first byte that is none."""
    assert "byte 7" in refused(folder, stdin=b"SELECT \xff")


def test_ctrl_c_ends_a_query(folder: Path) -> None:
    """With status 130 and one line, while the engine computes."""
    query = "SELECT 1 AS begun; SELECT max(hash(a.range * b.range)) FROM range(100000000) a, range(1000000) b"
    command = [*command_line(), "sql", "--warehouse", str(folder), "--format", "csv", query]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(folder) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"interrupted\n"
        assert process.wait() == 130
